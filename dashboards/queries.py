"""PromQL by a few words, so that no selector forgets a variable: what has a label is filtered by it.

Totals are over the time range shown, rates over Grafana's rate interval. Gauges about the store are told by
every proxy on it, so they are never added up. A ratio or a quantile of nothing is no number, not NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.metrics.described import described

# Every metric of semel with its labels; a histogram by its base name.
LABELS = {one.name: one.labels for one in described()}
# A metric that no panel shows is named here, with the reason.
DELIBERATELY_ABSENT: dict[str, str] = {}

RULE = "upstream, rule"  # what names a rule: rules of two upstreams may have one name
RATE, RANGE = "$__rate_interval", "$__range"
_IN_PART = "Upstream and rule narrow this only in part."
_A_NUMBER = " >= 0"  # which NaN is not
_OF_HISTOGRAMS = ("_bucket", "_sum", "_count")
_CHOSEN = ("upstream", "rule")  # variables of the same name; `instance` is on every series that is scraped

ONCE = 'mode="once"'
_UNLISTED = 'upstream="unlisted"'
# What came without a send: from the record, or from the same call under way.
AGAIN = 'status=~"replayed|joined"'


def of(metric: str, *more: str) -> str:
    """The series that the variables choose; `more` are further matchers."""
    base = next((metric.removesuffix(end) for end in _OF_HISTOGRAMS if metric.endswith(end)), metric)
    chosen = [f'{label}=~"${label}"' for label in _CHOSEN if label in LABELS[base]]
    matchers = ",".join([*more, *chosen, 'instance=~"$instance"'])
    return f"{metric}{{{matchers}}}"


def _by(labels: str) -> str:
    return f" by ({labels}) " if labels else ""


def total(metric: str, *more: str, by: str = "") -> str:
    """How many in the time range shown."""
    return f"sum{_by(by)}(increase({of(metric, *more)}[{RANGE}]))"


def total_or_zero(metric: str, *more: str) -> str:
    """A number on its own: that nothing happened yet is 0, not an empty panel."""
    return f"{total(metric, *more)} or vector(0)"


def busy_total(metric: str, *more: str, by: str) -> str:
    """How many in the time range shown, of those only that had any: for tables."""
    return f"{total(metric, *more, by=by)} > 0"


def rate(metric: str, *more: str, by: str = "") -> str:
    """How many per second."""
    return f"sum{_by(by)}(rate({of(metric, *more)}[{RATE}]))"


def busy_rate(metric: str, *more: str, by: str, times: int = 1) -> str:
    """How many per second, or in so many seconds, of those only that had any in the range shown: hundreds of
    rules are loaded, and most are idle."""
    factor = f"{times} * " if times != 1 else ""
    any_at_all = f"sum by ({by}) (increase({of(metric, *more)}[{RANGE}] @ end())) > 0"
    return f"{factor}{rate(metric, *more, by=by)} and on ({by}) ({any_at_all})"


def share(part: str, whole: str) -> str:
    """Of nothing there is none: the comparison drops the 0 that would be divided by."""
    return f"({part}) / ({whole} > 0)"


def quantile(of_all: float, metric: str, *more: str, by: str = "", window: str = RATE) -> str:
    """The comparison drops the NaN of a window without observations."""
    labels = f"le, {by}" if by else "le"
    buckets = f"sum by ({labels}) (rate({of(f'{metric}_bucket', *more)}[{window}]))"
    return f"histogram_quantile({of_all:g}, {buckets}){_A_NUMBER}"


def whole_quantile(of_all: float, metric: str) -> str:
    """Of what is counted: between two bounds of a bucket there are only whole numbers."""
    return f"ceil({quantile(of_all, metric).removesuffix(_A_NUMBER)}){_A_NUMBER}"


def with_effects(by_rule: str, window: str) -> str:
    """Only of rules whose calls have effects. No label says which those are, but duplicates that could be
    prevented are told of from the start, as 0, for each such rule; hosts that no policy names have no rules,
    and are taken along."""
    named = of("semel_duplicates_prevented_total")
    unnamed = of("semel_calls_total", ONCE, _UNLISTED)
    rules = " or ".join(f"sum by ({RULE}) (last_over_time({one}[{window}]))" for one in (named, unnamed))
    return f"({by_rule}) and on ({RULE}) ({rules})"


def not_narrowed(exprs: Sequence[str]) -> str:
    """What a reader has to know who has chosen an upstream or a rule: not every metric has these labels."""
    asked = [{label for label in _CHOSEN if f"${label}" in expr} for expr in exprs]
    by_all, by_any = set.intersection(*asked), set.union(*asked)
    if by_all == set(_CHOSEN):
        return ""
    if not by_any:
        return "Upstream and rule do not narrow this."
    return "The rule does not narrow this." if by_all == {"upstream"} == by_any else _IN_PART


def told(metric: str, *more: str, by: str = "") -> str:
    """A gauge about the store, the same from every proxy."""
    return f"max{_by(by)}({of(metric, *more)})"
