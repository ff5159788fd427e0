"""Section 1 and 2: a run keeps, for its life, the recipe by which its calls were first named."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from proxy.core import recipe
from proxy.core.canonical import CANONICALISERS, Body, canonical_arguments
from proxy.core.clauses import OnDoubt, UpstreamKey
from proxy.core.identity import Identity
from proxy.core.patterns import PathPattern
from proxy.core.policy import (
    Implied,
    KeyRecipe,
    Looks,
    Mode,
    Normalize,
    Repeat,
    Rule,
    Scope,
    Timeouts,
    Upstream,
)
from proxy.errors import BadRequest, StoreUnavailable
from proxy.front.address import UpstreamAddress, parse_target
from proxy.front.in_run import enter
from proxy.front.naming import Named, ToName, name_now
from proxy.front.run_ref import Speaker
from proxy.spool import Spool
from tests.exchange.virtual_time import in_virtual_time
from tests.runs import scenes
from tests.runs.stage import TENANT, RunProcess

pytestmark = pytest.mark.usefixtures("any_stage")

SECRET = b"s" * 32
JSON = ((b"Content-Type", b"application/json"),)
SEND = Rule(name="send", path=PathPattern.parse("/send"), key=KeyRecipe(exclude=("id",)))
MAIL = Upstream(name="mail", scheme="http", host="mail", port=80, rules=(SEND,))


def edited(*rules: Rule, **more: object) -> Upstream:
    return replace(MAIL, rules=rules, **more)  # type: ignore[arg-type]


async def named(
    semel: RunProcess,
    upstream: Upstream,
    *,
    run: str = "r",
    attempt: str = "a1",
    body: bytes = b'{"id":1,"to":"x"}',
) -> Named:
    """As the front names a request in a run."""
    speaker = Speaker(run=run, attempt=attempt)
    entered = await enter(semel.books, TENANT, speaker, upstream)
    address = parse_target("/mail/send")
    assert isinstance(address, UpstreamAddress)
    to_name = ToName(
        entered.pinned.upstream, address, "POST", JSON, Spool.of(body), 1, TENANT,
        origin=entered.origin, canonical=entered.pinned.canonical, pin=entered.pinned.pin,
    )  # fmt: skip
    return name_now(to_name, SECRET, 1_000_000)


async def name(semel: RunProcess, upstream: Upstream, **how: str) -> Identity:
    identity = (await named(semel, upstream, **how)).identity  # type: ignore[arg-type]
    assert identity is not None
    return identity


EDITS = {
    "key": edited(replace(SEND, key=KeyRecipe())),
    "normalize": edited(replace(SEND, key=KeyRecipe(exclude=("id",), normalize=(Normalize.UUIDS,)))),
    "headers": edited(replace(SEND, key=KeyRecipe(exclude=("id",), headers=("content-type",)))),
    "match": edited(replace(SEND, path=PathPattern.parse("/other"))),
    "another rule first": edited(Rule(name="all"), SEND),
    "no rules": edited(),
    "mode": edited(replace(SEND, mode=Mode.PASS)),
    "denied": edited(replace(SEND, mode=Mode.DENY)),
    "safe": edited(replace(SEND, safe=True)),
    "scope": edited(replace(SEND, scope=Scope.TENANT)),
    "repeat": edited(replace(SEND, repeat=Repeat.SAME)),
    "credentials": edited(SEND, credentials=("x-mine",)),
    "accounts": edited(SEND, accounts=("content-type",)),
    "looks": edited(replace(SEND, looks=Looks(when="to == 'y'"))),
    "looks at a header": edited(replace(SEND, looks=Looks(headers=(("x-kind", ("send",)),)))),
    "another rule that looks": edited(Rule(name="reads", safe=True, looks=Looks(when="to == 'x'")), SEND),
    "where a client's key is": edited(
        replace(SEND, key=KeyRecipe(exclude=("id",), implied=Implied(client_field="to")))
    ),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=list(EDITS))
@in_virtual_time
async def test_a_policy_edit_renames_nothing_in_a_run(edit: Upstream) -> None:
    """Same name, same rule with its mode, safety, scope and repeat: for old and new attempts, here and in
    another proxy."""
    semel = RunProcess()
    before = await named(semel, MAIL)
    other = RunProcess(semel.world, semel.origin)
    for proxy, attempt in ((semel, "a1"), (semel, "a2"), (other, "a1"), (other, "a3")):
        after = await named(proxy, edit, attempt=attempt)
        assert (after.identity, after.shared, after.safe) == (before.identity, before.shared, before.safe)
        rule, was = after.match.rule, before.match.rule
        assert (rule.name, rule.mode, rule.scope, rule.repeat, rule.key) == (
            was.name, was.mode, was.scope, was.repeat, was.key,
        )  # fmt: skip


@in_virtual_time
async def test_what_a_run_began_with_it_goes_on_looking_at() -> None:
    """Also when the policies of now look at nothing: what is read back is what was written."""
    looks = Looks(headers=(("content-type", ("application/*", "text/plain")),), when="to == 'x'")
    implied = Implied(headers=("x-account",), client_field="ref", client_header="x-ref")
    key = KeyRecipe(exclude=("id",), implied=implied)
    before = edited(replace(SEND, looks=looks, key=key), accounts=("x-account",))
    semel = RunProcess()
    was = (await named(semel, before)).match.rule
    entered = await enter(semel.books, TENANT, Speaker(run="r", attempt="a2"), edited())
    (rule,) = entered.pinned.upstream.rules
    assert (rule.looks, rule.key) == (was.looks, was.key) == (looks, key)
    assert entered.pinned.upstream.accounts == ("x-account",)
    assert (await named(semel, edited(), body=b'{"id":1,"to":"y"}')).match.rule.name == "default"


@in_virtual_time
async def test_another_rule_of_the_name_settles_no_doubt() -> None:
    """One that looks at something else by now is for other calls: its key says nothing of these."""
    semel = RunProcess()
    keyed = replace(SEND, upstream_key=UpstreamKey(header="x-key"), in_doubt=OnDoubt.RESEND)
    await named(semel, edited(keyed))
    now = edited(replace(keyed, looks=Looks(when="to == 'x'")))
    entered = await enter(semel.books, TENANT, Speaker(run="r", attempt="a2"), now)
    (rule,) = entered.pinned.upstream.rules
    assert (rule.in_doubt, rule.upstream_key) == (OnDoubt.HOLD, None)


@in_virtual_time
async def test_a_run_that_begins_after_the_edit_uses_it() -> None:
    """The recipe is that of its first call."""
    semel = RunProcess()
    await named(semel, MAIL)
    plain = EDITS["key"]
    one = await name(semel, plain, run="new", body=b'{"id":1,"to":"x"}')  # type: ignore[arg-type]
    two = await name(semel, plain, run="new", body=b'{"id":2,"to":"x"}')  # type: ignore[arg-type]
    assert one.key != two.key
    three = await name(semel, plain, body=b'{"id":3,"to":"x"}')  # type: ignore[arg-type]
    assert three == await name(semel, MAIL, body=b'{"id":4,"to":"x"}')  # type: ignore[arg-type]


@in_virtual_time
async def test_what_does_not_name_a_call_follows_the_policy_of_now() -> None:
    """Timeouts and waits are no part of the recipe."""
    semel = RunProcess()
    await named(semel, MAIL)
    now = edited(replace(SEND, wait=7.0, ttl=5.0), timeouts=Timeouts(total=3.0), host="elsewhere")
    entered = await enter(semel.books, TENANT, Speaker(run="r", attempt="a2"), now)
    (rule,) = entered.pinned.upstream.rules
    assert (rule.wait, rule.ttl) == (7.0, 5.0)
    assert (entered.pinned.upstream.timeouts.total, entered.pinned.upstream.host) == (3.0, "elsewhere")


@in_virtual_time
async def test_each_upstream_is_pinned_when_it_is_first_called() -> None:
    """An edit before that counts."""
    semel = RunProcess()
    await named(semel, replace(MAIL, name="other"))
    edit = EDITS["key"]
    first = await name(semel, edit, body=b'{"id":1}')  # type: ignore[arg-type]
    assert first != await name(semel, MAIL, body=b'{"id":2}')  # type: ignore[arg-type]
    run = await semel.store.get_run(TENANT, "r")
    assert run is not None
    assert set(run.recipes) == {"mail", "other"}


def shouting(
    *,
    path: dict[str, str],
    query: bytes,
    body: Body,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    normalize: Sequence[Normalize] = (),
) -> bytes:
    """A canonical form of the future."""
    return canonical_arguments(
        path=path, query=query, body=body, include=include, exclude=exclude, normalize=normalize
    ).upper()


@in_virtual_time
async def story_of_an_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    semel = RunProcess()
    before = await name(semel, MAIL)
    monkeypatch.setitem(CANONICALISERS, 2, shouting)
    monkeypatch.setattr(recipe, "CANONICAL_VERSION", 2)
    upgraded = RunProcess(semel.world, semel.origin)
    assert await name(upgraded, MAIL, attempt="a2") == before
    fresh = await name(upgraded, MAIL, run="new")
    assert fresh.arguments == before.arguments.upper()
    assert fresh.key != before.key
    monkeypatch.undo()
    with pytest.raises(BadRequest, match="newer semel"):
        await named(RunProcess(semel.world, semel.origin), MAIL, run="new")
    assert await name(RunProcess(semel.world, semel.origin), MAIL, attempt="a3") == before


def test_an_upgrade_renames_nothing_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new canonical form is for new runs; an old semel says that it cannot go on with those."""
    story_of_an_upgrade(monkeypatch)


@in_virtual_time
async def test_two_proxies_that_pin_at_once_agree() -> None:
    """One with the old policy, one with the new: the first one's recipe is the run's."""
    semel = RunProcess()
    other = RunProcess(semel.world, semel.origin)
    names = await asyncio.gather(name(semel, MAIL), name(other, EDITS["key"]))
    assert names[0] == names[1]


@in_virtual_time
async def test_what_cannot_be_pinned_is_not_called() -> None:
    """Without a store the run's recipe is not durable, so nothing gets a name."""
    semel = RunProcess()
    await semel.books.open(TENANT, "r", "a1")
    semel.store.unavailable = True
    with pytest.raises(StoreUnavailable):
        await named(semel, MAIL)


@in_virtual_time
async def test_a_forks_calls_are_named_as_its_parents() -> None:
    """By the parent's recipe and under the parent's name, whatever the policy says by now."""
    semel = RunProcess()
    before = await name(semel, MAIL)
    await scenes.fork(semel, "f", at=0)
    assert await name(semel, EDITS["key"], run="f", attempt="f1") == before


@in_virtual_time
async def test_in_a_run_a_key_and_credentials_of_the_clients_are_no_part_of_the_name() -> None:
    """SDKs mint new keys after a crash, and tokens are refreshed."""
    semel = RunProcess()
    entered = await enter(semel.books, TENANT, Speaker(run="r", attempt="a1"), MAIL)
    address = parse_target("/mail/send")
    assert isinstance(address, UpstreamAddress)
    found = set()
    for key, token in ((b"k1", b"t1"), (b"k2", b"t2")):
        headers = (*JSON, (b"Idempotency-Key", key), (b"Authorization", token))
        asked = ToName(MAIL, address, "POST", headers, Spool.of(b"{}"), 1, TENANT, origin=entered.origin)
        identity = name_now(asked, SECRET, 1000).identity
        assert identity is not None
        found.add(identity)
    assert len(found) == 1


@in_virtual_time
async def test_a_key_of_the_clients_does_not_name_the_shared_call_of_a_run() -> None:
    """It is only evidence there: a new key after a crash must find the call that is in doubt."""
    shared = edited(replace(SEND, scope=Scope.TENANT))
    address = parse_target("/mail/send")
    assert isinstance(address, UpstreamAddress)
    found = set()
    for key in (b"k1", b"k2"):
        headers = (*JSON, (b"Idempotency-Key", key))
        asked = ToName(shared, address, "POST", headers, Spool.of(b"{}"), 1, TENANT, origin="r")
        named = name_now(asked, SECRET, 1000)
        assert named.shared is not None
        found.add(named.shared)
    assert len(found) == 1
