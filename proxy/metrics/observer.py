"""What is counted: this hears what happened, and renders it when somebody asks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import NamedTuple, cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import InfoMetricFamily, Metric

from proxy import __version__
from proxy.core.intent import Call
from proxy.core.policy import PolicySet
from proxy.metrics import standing, zeros
from proxy.metrics.counting import Counter, Figures, Histogram, Level, Reading
from proxy.observe import COLLECTED, DIVERGED, DRIFT, POLLING, RECOVERED, Deaf, Sent, Served, TellsCall
from proxy.store.base import Census

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
# From a replay (tenths of a millisecond) to a model's long answer.
_CALL_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_STORE_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
_ADDED_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
_BATCH_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
# Answers without a second send: what the product is for.
_PREVENTED = frozenset({"replayed", "joined"})
# What upstreams answer. A status that has no meaning is shown by its class (7xx): an upstream may answer
# anything from 200 to 999, and each would be another series of each rule.
_MEANT = frozenset({*map(int, HTTPStatus), 499, *range(520, 531)})  # and what gateways and models have added
_CODES = {str(code): str(code) if code in _MEANT else f"{code // 100}xx" for code in range(100, 1000)}
# Answers that came from the upstream just now.
_FETCHED = frozenset({"executed", "passed"})


# So many of what comes again are counted together.
GATHERED = 256


class _Alike(NamedTuple):
    """All that replays without a price are counted by: as many as there are labels."""

    upstream: str
    rule: str
    mode: str
    status: str
    safe: bool


class MetricsObserver(Deaf):
    def __init__(self) -> None:
        by_rule = ("upstream", "rule")
        self._calls = Counter(
            "semel_calls", "Calls answered, by what semel did", "upstream", "rule", "mode", "status"
        )
        self._prevented = Counter(
            "semel_duplicates_prevented", "Calls with effects answered without a second send", *by_rule
        )
        self._responses = Counter(
            "semel_upstream_responses",
            "What upstreams answered; lost and not_sent where they did not",
            *by_rule,
            "code",
        )
        self._problems = Counter("semel_problems", "semel's own answers", "type")
        self._saved = Counter("semel_saved_usd", "What answers given again would have cost", *by_rule)
        self._spent = Counter("semel_spent_usd", "What executed calls cost", *by_rule)
        self._divergences = Counter("semel_divergences", "Calls held because an attempt left its record")
        self._polls = Counter("semel_suspected_polls", "Replays of one call that look like polling", *by_rule)
        self._drifts = Counter(
            "semel_drifts", "Answers fetched anew that differ from the recorded ones", *by_rule
        )
        self._recovered = Counter(
            "semel_recovered", "Calls of dead processes that were settled, by what they became", "state"
        )
        self._collected = Counter(
            "semel_collected", "What collecting has removed: calls, runs, blobs", "what"
        )
        self._collected_bytes = Counter("semel_collected_bytes", "Content that collecting has removed")
        self._notifications = Counter(
            "semel_notifications",
            "What became of notifications; failed ones are tried again",
            "type",
            "result",
        )
        self._reloads = Counter("semel_policy_reloads", "Policy reloads", "result")
        self._outdated = Level(
            "semel_policies_outdated", "Workers that go on with older policies, because the files are bad"
        )
        self._evictions = Reading("semel_cache_evictions", "Shared answers evicted before their time")
        self._would = Counter(
            "semel_shadow_calls",
            "Calls that were only looked on at, by what semel would have done",
            *by_rule,
            "would",
        )
        self._would_problems = Counter(
            "semel_shadow_problems", "What semel would have answered itself", "type"
        )
        self._would_prevent = Counter(
            "semel_shadow_duplicates_prevented",
            "Calls with effects that would have been answered without a second send",
            *by_rule,
        )
        self._would_save = Counter(
            "semel_shadow_saved_usd", "What answers that would have been given again cost", *by_rule
        )
        self._call_seconds = Histogram(
            "semel_call_seconds",
            "From the request's head to the reply's end",
            _CALL_BOUNDS,
            "upstream",
            "status",
        )
        self._upstream_seconds = Histogram(
            "semel_upstream_seconds", "One exchange with an upstream", _CALL_BOUNDS, *by_rule
        )
        self._added_seconds = Histogram(
            "semel_added_seconds",
            "Of calls that went upstream: their time less the upstream's",
            _ADDED_BOUNDS,
            "upstream",
        )
        self._store_seconds = Histogram(
            "semel_store_seconds", "One operation of the store", _STORE_BOUNDS, "op"
        )
        self._batch_rows = Histogram(
            "semel_store_batch_rows", "How many writes one commit carried", _BATCH_BOUNDS
        )
        self.counted = tuple(one for one in vars(self).values() if isinstance(one, Counter | Histogram))
        self._problems.begin(zeros.PROBLEM_TYPES)
        self._reloads.begin([("good",), ("bad",)])
        self._recovered.begin([("in_doubt",), ("released",)])
        self._collected.begin([("calls",), ("runs",), ("blobs",)])
        self._store_seconds.begin([("get",), ("swap",)])
        self._gathered: dict[_Alike, list[float]] = {}  # the seconds of each
        self._asked = _Asked()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    # ---- what happens ----

    def governed(self, policies: PolicySet) -> None:
        self._calls.begin(zeros.statuses(policies))
        self._prevented.begin(zeros.with_effects(policies))
        self._responses.begin(zeros.that_may_be_lost(policies))
        self._saved.begin(zeros.that_cost(policies))
        self._spent.begin(zeros.that_cost(policies))
        self._polls.begin(zeros.that_may_be_polled(policies))
        self._drifts.begin(zeros.that_may_drift(policies))
        self._would.begin(zeros.would_become(policies))
        self._would_problems.begin(zeros.would_be_problems(policies))
        self._would_prevent.begin(zeros.would_prevent(policies))
        self._would_save.begin(zeros.would_save(policies))

    def served(self, told: Served) -> None:
        upstream, status, seconds = told.upstream, told.status, told.seconds
        self._calls.values[upstream, told.rule, told.mode, status] += 1
        row = self._call_seconds.values[upstream, status]  # by hand: this is done for every call
        row[bisect_left(_CALL_BOUNDS, seconds)] += 1
        row[-1] += seconds
        if status in _PREVENTED:
            _count_prevented(told, self._prevented, self._saved)
        elif told.problem:
            self._problems.values[(told.problem,)] += 1
        elif told.upstream_seconds > 0 and status in _FETCHED:
            self._added_seconds.observe((upstream,), max(0.0, seconds - told.upstream_seconds))

    def again(self, told: Served) -> Callable[[float], None]:
        """A replay from memory takes some microseconds, of which this must not be a tenth: what comes again
        is only gathered, and counted many at a time."""
        if told.status not in _PREVENTED or told.cost_usd > 0:
            return super().again(told)
        alike = _Alike(told.upstream, told.rule, told.mode, told.status, told.safe)
        times = self._gathered.setdefault(alike, [])

        def gather(seconds: float) -> None:
            times.append(seconds)
            if len(times) >= GATHERED:
                self._count(alike, times)

        return gather

    def alike(self, told: Served) -> TellsCall:
        if told.problem or told.status not in _FETCHED:
            return super().alike(told)
        calls, which = self._calls.values, (told.upstream, told.rule, told.mode, told.status)
        row = self._call_seconds.values[told.upstream, told.status]
        added = self._added_seconds.observing((told.upstream,))

        def count(call: str, seconds: float, upstream_seconds: float, size: int) -> None:
            calls[which] += 1
            row[bisect_left(_CALL_BOUNDS, seconds)] += 1  # by hand: this is done for every call
            row[-1] += seconds
            if upstream_seconds > 0:
                added(max(0.0, seconds - upstream_seconds))

        return count

    def _count(self, alike: _Alike, times: list[float]) -> None:
        """As `served` would have counted each."""
        upstream, rule, mode, status, safe = alike
        self._calls.values[upstream, rule, mode, status] += len(times)
        row = self._call_seconds.values[upstream, status]
        for seconds in times:
            row[bisect_left(_CALL_BOUNDS, seconds)] += 1
        row[-1] += sum(times)
        if not safe:
            self._prevented.values[upstream, rule] += len(times)
        times.clear()

    def _count_gathered(self) -> None:
        """Before anybody reads a figure."""
        for alike, times in self._gathered.items():
            if times:
                self._count(alike, times)

    def spent(self, call: Call) -> None:
        self._spent.values[call.upstream, call.rule] += call.cost_usd or 0.0

    def shadowed(self, told: Served, would: str) -> None:
        """What was only looked on at, by the same measure."""
        self._would.values[told.upstream, told.rule, would] += 1
        if told.status in _PREVENTED:
            _count_prevented(told, self._would_prevent, self._would_save)
        if told.problem:
            self._would_problems.values[(told.problem,)] += 1

    def sent(self, told: Sent) -> None:
        code = _CODES.get(told.code, told.code)  # or that there was none
        self._responses.values[told.upstream, told.rule, code] += 1
        self._upstream_seconds.observe((told.upstream, told.rule), told.seconds)

    def sent_again(self, told: Sent) -> Callable[[float], None]:
        responses = self._responses.values
        which = told.upstream, told.rule, _CODES.get(told.code, told.code)
        observe = self._upstream_seconds.observing((told.upstream, told.rule))

        def count(seconds: float) -> None:
            responses[which] += 1
            observe(seconds)

        return count

    def store_took(self, operation: str, seconds: float) -> None:
        self._store_seconds.observe((operation,), seconds)

    def store_again(self, operation: str) -> Callable[[float], None]:
        return self._store_seconds.observing((operation,))

    def batched(self, rows: int) -> None:
        """The store's own word: one commit, and what it carried."""
        self._batch_rows.observe((), rows)

    def reloaded(self, *, good: bool, detail: str) -> None:
        self._reloads.values[("good" if good else "bad",)] += 1
        self._outdated.values[()] = not good

    def noted(self, event: str, **fields: object) -> None:
        if event == DIVERGED:
            self._divergences.values[()] += 1
        elif event == DRIFT:
            self._drifts.values[str(fields["upstream"]), str(fields["rule"])] += 1
        elif event == COLLECTED:
            for what in ("calls", "runs", "blobs"):
                self._collected.values[(what,)] += cast("int", fields[what])
            self._collected_bytes.values[()] += cast("int", fields["bytes"])
        elif event == POLLING:
            self._polls.values[str(fields["upstream"]), str(fields["rule"])] += 1
        elif event == RECOVERED:
            self._recovered.values[(str(fields["state"]),)] += 1

    def notifies(self, kinds: Iterable[str]) -> None:
        """Somebody is told of these."""
        self._notifications.begin(zeros.notifications(kinds))

    def notified(self, kind: str, result: str) -> None:
        """Counted apart from what is told: what is dropped comes in thousands, and the log says it once."""
        self._notifications.values[kind, result] += 1

    def read_evictions(self, read: Callable[[], int]) -> None:
        self._evictions.read = read

    # ---- what is told of it ----

    def figures(self) -> Figures:
        """What this process has counted, for whoever sums."""
        self._count_gathered()
        return {one.name: one.figures() for one in self.counted}

    def take_over(self, figures: Figures) -> None:
        """Go on where another process has ended: a counter that falls would be taken for a restart."""
        for one in self.counted:
            one.take_over(figures.get(one.name, ()))

    def render(self, store: str, census: Census | None, now: float, others: Sequence[Figures] = ()) -> bytes:
        """`census` is None when the store does not answer: the rest is shown all the same. `others`: what
        further workers have counted."""
        self._count_gathered()
        self._asked = _Asked(store, census, now, others)
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Asked by prometheus_client while rendering."""
        asked = self._asked
        yield from (one.family(asked.others) for one in self.counted)
        if asked.census is not None:
            yield from standing.families(asked.census, asked.now)
        build = {"version": __version__, "store": asked.store}
        yield InfoMetricFamily("semel_build", "What is running", value=build)


class _Asked(NamedTuple):
    """What is shown beside the own figures, this time."""

    store: str = ""
    census: Census | None = None
    now: float = 0.0
    others: Sequence[Figures] = ()


def _count_prevented(told: Served, prevented: Counter, saved: Counter) -> None:
    if not told.safe:
        prevented.values[told.upstream, told.rule] += 1
    if told.cost_usd > 0:
        saved.values[told.upstream, told.rule] += told.cost_usd
