"""What a panel looks like: a number, lines over time, a table. Each has words that say what it shows, what is
normal and what to do; a unit; the data source by variable; a legend per query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from grafana_foundation_sdk.builders import common, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.queries import not_narrowed

Panel: TypeAlias = stat.Panel | timeseries.Panel | table.Panel
_AnyPanel = TypeVar("_AnyPanel", stat.Panel, timeseries.Panel, table.Panel)

DATASOURCE = model.DataSourceRef("prometheus", "${datasource}")
STAT_HEIGHT, LINES_HEIGHT, TABLE_HEIGHT = 4, 8, 10

# Units, by Grafana's names.
# Counts in full, with the thousands apart: "1 K" says nothing of 1,044 and 1,390.
COUNT, PER_SECOND, PER_MINUTE, SHARE = "locale", "reqps", "cpm", "percentunit"
DOLLARS, SECONDS, BYTES, BYTES_PER_SECOND = "currencyUSD", "s", "bytes", "binBps"
GOOD, WATCH, BAD, NEUTRAL = "green", "orange", "red", "blue"

_REF_IDS = "ABCDEFGHIJ"


class Query(NamedTuple):
    expr: str
    legend: str


class About(NamedTuple):
    """The words of a panel: its title, what it shows, what is normal, what to do when it is not."""

    title: str
    shows: str
    normal: str
    act: str = ""


class _Size(NamedTuple):
    width: int
    height: int


class Step(NamedTuple):
    """From this value on, this colour."""

    value: float
    colour: str


class Link(NamedTuple):
    title: str
    url: str


def page(view: str) -> str:
    """A view of the operator's page, as its address names it."""
    return f"${{semel_url}}/_semel/#/{view}"


INBOX = Link("Decide on the operator's page", page("inbox"))
CALLS = Link("Look at calls on the operator's page", page("calls"))
RUNS = Link("Look at runs on the operator's page", page("runs"))


def link_to(link: Link) -> build.DashboardLink:
    started = build.DashboardLink(link.title).type(model.DashboardLinkType.LINK).url(link.url)
    return started.icon("external link").target_blank(True)


def thresholds(base: str, *steps: Step) -> build.ThresholdsConfig:
    lines = [model.Threshold(None, base), *(model.Threshold(*step) for step in steps)]
    return build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(lines)


def _targets(
    queries: Sequence[Query], *, instant: bool, as_table: bool = False
) -> list[prometheus.Dataquery]:
    made = []
    for name, query in zip("ABCDEFGHIJ", queries, strict=False):
        target = prometheus.Dataquery().ref_id(name).expr(query.expr).legend_format(query.legend)
        target.datasource(DATASOURCE)
        target.format(PromQueryFormat.TABLE if as_table else PromQueryFormat.TIME_SERIES)
        made.append(target.instant() if instant else target.range())
    return made


def _begun(
    panel: _AnyPanel, about: About, unit: str, exprs: Sequence[str], size: _Size, links: Sequence[Link]
) -> _AnyPanel:
    said = "\n\n".join(filter(None, (about.shows, about.normal, about.act, not_narrowed(exprs))))
    begun = panel.title(about.title).description(said).unit(unit).span(size.width).height(size.height)
    return begun.datasource(DATASOURCE).links([link_to(link) for link in links])


def number(
    about: About,
    unit: str,
    *queries: Query,
    base: str = GOOD,
    steps: Sequence[Step] = (),
    width: int = 3,
    height: int = STAT_HEIGHT,
    without: str = "no data",
    decimals: int | None = None,
    links: Sequence[Link] = (),
) -> stat.Panel:
    """One number or a few, as they are at the end of the range shown."""
    exprs = [query.expr for query in queries]
    panel = _begun(stat.Panel(), about, unit, exprs, _Size(width, height), links).no_value(without)
    for target in _targets(queries, instant=True):
        panel.with_target(target)
    if decimals is not None:
        panel.decimals(decimals)
    panel.thresholds(thresholds(base, *steps))
    panel.color_scheme(build.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    panel.graph_mode(looks.BigValueGraphMode.NONE).color_mode(looks.BigValueColorMode.VALUE)
    named = looks.BigValueTextMode.VALUE_AND_NAME if len(queries) > 1 else looks.BigValueTextMode.VALUE
    return panel.text_mode(named)


def words(
    about: About, query: Query, field: str, colours: Mapping[str, tuple[str, str]], *, width: int
) -> stat.Panel:
    """A label instead of a number; `colours` has for each of its values what is said, and the colour."""
    panel = number(about, "string", query, width=width, base=WATCH)
    results = {
        value: model.ValueMappingResult(text, colour, index=index)
        for index, (value, (text, colour)) in enumerate(colours.items())
    }
    targets: list[Builder[Dataquery]] = [*_targets([query], instant=True, as_table=True)]
    panel.targets(targets)
    panel.mappings([model.ValueMap(results)])
    reduced = common.ReduceDataOptions().calcs(["lastNotNull"]).values(True).fields(f"/^{field}$/")
    return panel.reduce_options(reduced)


def lines(
    about: About,
    unit: str,
    *queries: Query,
    width: int = 12,
    stacked: bool = False,
    logarithmic: float = 0,
    steps: Sequence[Step] = (),
    maximum: float | None = None,
    links: Sequence[Link] = (),
) -> timeseries.Panel:
    """How it was over time. With `steps` the threshold is drawn as a line; `logarithmic` is the value below
    which the scale is linear."""
    exprs = [query.expr for query in queries]
    panel = _begun(timeseries.Panel(), about, unit, exprs, _Size(width, LINES_HEIGHT), links)
    panel.no_value("nothing yet")
    for target in _targets(queries, instant=False):
        panel.with_target(target)
    if maximum is not None:
        panel.max(maximum)
    panel.color_scheme(build.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
    panel.line_width(1).fill_opacity(25 if stacked else 8).show_points(looks.VisibilityMode.AUTO)
    panel.span_nulls(False)
    if stacked:
        panel.stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL).group("A"))
    if logarithmic:  # around 0 it is linear, so that nothing is left out
        scale = common.ScaleDistributionConfig().type(looks.ScaleDistribution.SYMLOG)
        panel.scale_distribution(scale.log(10).linear_threshold(logarithmic))
    else:
        panel.min(0)
    if steps:
        panel.thresholds(thresholds("transparent", *steps))
        panel.thresholds_style(
            common.GraphThresholdsStyleConfig().mode(looks.GraphThresholdsStyleMode.DASHED)
        )
    legend = common.VizLegendOptions().show_legend(True).calcs(["lastNotNull", "max"] if width >= 12 else [])
    if width >= 12:
        legend.display_mode(looks.LegendDisplayMode.TABLE).placement(looks.LegendPlacement.RIGHT)
    else:
        legend.display_mode(looks.LegendDisplayMode.LIST).placement(looks.LegendPlacement.BOTTOM)
    panel.legend(legend)
    tooltip = common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI)
    return panel.tooltip(tooltip.sort(looks.SortOrder.DESCENDING))


class Column(NamedTuple):
    """One query of a table: its name, its unit."""

    title: str
    expr: str
    unit: str = COUNT
    decimals: int = 0
    empty: str = "0"
    steps: tuple[Step, ...] = ()


def _property(name: str, value: object) -> model.DynamicConfigValue:
    return model.DynamicConfigValue(name, value)


def rows(
    about: About,
    labels: Mapping[str, str],
    columns: Sequence[Column],
    *,
    width: int = 24,
    height: int = TABLE_HEIGHT,
    links: Sequence[Link] = (),
    nothing: str = "nothing yet",
) -> table.Panel:
    """One row for each combination of `labels` (their names, and what the column is called), a column for
    each query; sorted by the first."""
    panel = _begun(
        table.Panel(), about, COUNT, [one.expr for one in columns], _Size(width, height), links
    ).no_value(nothing)
    queries = [Query(column.expr, column.title) for column in columns]
    for target in _targets(queries, instant=True, as_table=True):
        panel.with_target(target)
    # Several queries are named "Value #A" and so on once they are merged; where only one has an answer, and
    # that is the first then, it is "Value".
    values = {f"Value #{name}": one.title for name, one in zip(_REF_IDS, columns, strict=False)}
    titles = {**labels, "Value": columns[0].title, **values}
    organize = {
        "excludeByName": {"Time": True},
        "includeByName": {},
        "indexByName": {name: index for index, name in enumerate(titles)},
        "renameByName": titles,
    }
    panel.with_transformation(model.DataTransformerConfig("merge", options={}))
    panel.with_transformation(model.DataTransformerConfig("organize", options=organize))
    before_it_was_known = model.SpecialValueMap(
        model.DashboardSpecialValueMapOptions(
            model.SpecialValueMatch.EMPTY, model.ValueMappingResult("(refused before it was known)")
        )
    )
    for label in sorted(labels.keys() & {"upstream", "rule"}):
        panel.override_by_name(labels[label], [_property("mappings", [before_it_was_known])])
    for one in columns:
        told = [_property("unit", one.unit), _property("decimals", one.decimals)]
        told.append(_property("noValue", one.empty))
        if one.steps:
            told.append(_property("thresholds", thresholds("text", *one.steps).build()))
            told.append(_property("custom.cellOptions", {"type": "color-text"}))
        panel.override_by_name(one.title, told)
    panel.sort_by([common.TableSortByFieldState().display_name(columns[0].title).desc(True)])
    return panel.filterable(True)
