"""A request compared with a recorded call: the same, or in what not, and what would make it so."""

from __future__ import annotations

from proxy.core.intent import Call
from proxy.core.policy import DEFAULT_NAME, TOOLS_NAME, PolicySet
from proxy.errors import BadRequest
from proxy.explaining.evidence import with_credentials
from proxy.explaining.in_run import as_named_in
from proxy.explaining.matching import Compared, Naming, Pair, compare
from proxy.explaining.parts import Difference, Part
from proxy.explaining.record import Recorded
from proxy.explaining.request import recorded_request
from proxy.explaining.run_now import Fate
from proxy.explaining.told import Document, InRun, careful_in_run, not_compared, told_like
from proxy.explaining.written import file_of, where
from proxy.front.naming import Named, ToName
from proxy.settings import Settings
from proxy.store.base import Store


async def recorded_as_named(store: Store, liked: Recorded, policies: PolicySet) -> ToName | None:
    """The recorded request, as its run names it. None: its upstream is in no policy file now."""
    call, stored, body = liked
    upstream = policies.tools if call.upstream == TOOLS_NAME else policies.upstreams.get(call.upstream)
    if upstream is None:
        return None
    recorded = recorded_request(call, stored, body, upstream)
    run = await store.get_run(call.tenant, call.run) if call.run else None
    return recorded if run is None else as_named_in(run, recorded)


def compared_with(
    liked: Recorded,
    there: ToName | None,
    request: ToName,
    named: Named,
    in_run: InRun | None,
    settings: Settings,
    name: Naming,
) -> Document:
    call = liked.call
    if there is None:
        return not_compared(call.id, f"Its upstream {call.upstream!r} is in no policy file now.")
    if named.identity is None:
        return not_compared(call.id, "A request that is not recorded is never the same as a recorded call.")
    try:
        seen = with_credentials(call, liked.stored.arguments, there, request, name)
    except BadRequest as refusal:
        note = f"Under the present policies that call would be refused: {refusal.detail}"
        return not_compared(call.id, note)
    if name(seen.there).identity is None:
        return not_compared(call.id, "Under the present policies that call would not be recorded.")
    if in_run is not None:  # which of identical calls it is only matters where they are identical
        request = request._replace(occurrence=seen.there.occurrence)
    compared = compare(Pair(request, seen.there, name))
    if in_run is not None and compared.same:
        compared = _by_occurrence(compared, call, in_run.fate)
    rule, sources = named.match.rule.name, settings.policies
    stands = where(sources, request.upstream.name, rule)
    file = file_of(sources, request.upstream.name) if rule == DEFAULT_NAME else None
    careful = () if in_run is None else careful_in_run(in_run)
    return told_like(call.id, seen, compared, stands, file, careful)


def _by_occurrence(compared: Compared, call: Call, fate: Fate) -> Compared:
    """Identical calls of a run: the same one only if this ask would be that occurrence."""
    if fate.identity is None or fate.identity.key == call.key:
        return compared
    other = Difference(
        part=Part.OCCURRENCE,
        field=Part.OCCURRENCE.value,
        here=str(fate.occurrence),
        there=str(call.occurrence),
        fixed=f"the calls are identical, and this ask would be another of them: {fate.why}",
    )
    return Compared(same=False, differences=(other,), remaining=(other,))
