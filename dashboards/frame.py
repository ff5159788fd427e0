"""What every dashboard has: a fixed uid, variables, links to the others and to the operator's page, and rows
of panels on a grid of 24 columns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from dashboards.panels import DATASOURCE, INBOX, Panel, link_to

TAG = "semel"
SEMEL_URL = "http://localhost:8080"
# How Grafana marks what is written into the box of a query variable.
_LABEL_VALUES, _QUERY_RESULT = 1, 3


class Section(NamedTuple):
    title: str
    panels: Sequence[Panel]
    collapsed: bool = False


class Plan(NamedTuple):
    name: str  # of the file, and in the uid
    title: str
    description: str
    sections: Sequence[Section]


def _choice(name: str, label: str, words: str, query: str, kind: int, regex: str = "") -> build.QueryVariable:
    asked: dict[str, object] = {
        "qryType": kind,
        "query": query,
        "refId": "PrometheusVariableQueryEditor-VariableQuery",
    }
    begun = build.QueryVariable(name).label(label).description(words).datasource(DATASOURCE).query(asked)
    begun.regex(regex).multi(True).include_all(True).all_value(".*")
    begun.current(model.VariableOption(text=["All"], value=["$__all"], selected=True))
    begun.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
    return begun.sort(model.VariableSort.ALPHABETICAL_ASC)


def _busy(label: str, matchers: str) -> str:
    """Hundreds of rules are loaded: those that were called are offered."""
    return f"query_result(sum by ({label}) (semel_calls_total{{{matchers}}}) > 0)"


def _variables() -> list[build.DatasourceVariable | build.QueryVariable | build.TextBoxVariable]:
    here = 'instance=~"$instance"'
    of_upstream = f'upstream=~"$upstream",{here}'
    address = model.VariableOption(text=SEMEL_URL, value=SEMEL_URL, selected=True)
    return [
        build.DatasourceVariable("datasource")
        .label("Prometheus")
        .description("The Prometheus that scrapes semel's /metrics.")
        .type("prometheus"),
        _choice(
            "instance",
            "Proxy",
            "What was scraped. Choose the proxies of one store where Prometheus knows several.",
            "label_values(semel_build_info,instance)",
            _LABEL_VALUES,
        ),
        _choice(
            "upstream",
            "Upstream",
            "Upstreams that were called since their proxy was started.",
            _busy("upstream", here),
            _QUERY_RESULT,
            '/upstream="([^"]+)"/',
        ),
        _choice(
            "rule",
            "Rule",
            "Rules of these upstreams that were called since their proxy was started.",
            _busy("rule", of_upstream),
            _QUERY_RESULT,
            '/rule="([^"]+)"/',
        ),
        build.TextBoxVariable("semel_url")
        .label("Address of semel")
        .description("Where a browser reaches the proxy: links to the operator's page begin with it.")
        .default_value(SEMEL_URL)
        .current(address)
        .options([address]),
    ]


def built(plan: Plan) -> model.Dashboard:
    begun = build.Dashboard(plan.title).uid(f"semel-{plan.name}").description(plan.description)
    begun.tags([TAG]).timezone("browser").editable().time("now-6h", "now").refresh("30s")
    begun.tooltip(model.DashboardCursorSync.CROSSHAIR)
    begun.annotations([])
    for variable in _variables():
        begun.with_variable(variable)
    others = build.DashboardLink("semel").type(model.DashboardLinkType.DASHBOARDS).tags([TAG])
    begun.link(others.include_vars(True).keep_time(True).as_dropdown(False))
    begun.link(link_to(INBOX).tooltip("Calls in doubt, calls that wait for approval, runs that are held"))
    number = 0
    for section in plan.sections:
        number += 1
        row = build.Row(section.title).id(number).collapsed(section.collapsed)
        for panel in section.panels:
            number += 1
            panel.id(number)
            if section.collapsed:
                row.with_panel(panel)
        begun.with_row(row)
        if not section.collapsed:
            for panel in section.panels:
                begun.with_panel(panel)
    return begun.build()


def text(dashboard: model.Dashboard) -> str:
    """The same bytes for the same dashboard."""
    return json.dumps(dashboard, cls=JSONEncoder, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
