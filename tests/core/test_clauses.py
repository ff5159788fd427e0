"""What a rule may demand: what cannot be meant is refused, and a credential shows itself to nobody."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

from proxy.core.clauses import (
    Allowance,
    Approval,
    Budget,
    Cost,
    Inject,
    KeyEncoding,
    Probe,
    Rate,
    UpstreamKey,
)


@pytest.mark.parametrize(
    "made",
    [
        UpstreamKey,
        lambda: UpstreamKey(header="idempotency-key", body="key"),
        lambda: UpstreamKey(header="idempotency-key", beside=(("mode", "once"),)),
        lambda: UpstreamKey(header="k", encoding=KeyEncoding.UUID, max_length=35),
        Budget,
        Cost,
        lambda: Cost(usd=Decimal(1), usd_from="usage.usd"),
    ],
)
def test_what_cannot_be_meant_is_refused(made: Callable[[], object]) -> None:
    """Neither and both, and a key that does not fit."""
    with pytest.raises(ValueError):
        made()


def test_what_can_be_is_not() -> None:
    """The bounds themselves, and each of two ways alone."""
    assert UpstreamKey(header="k", encoding=KeyEncoding.UUID, max_length=36).body is None
    assert UpstreamKey(header="k", encoding=KeyEncoding.HEX, max_length=16).max_length == 16
    assert UpstreamKey(body="key", beside=(("mode", "once"),)).header is None
    assert Budget(calls=Rate(1, 60.0)).usd is None
    assert Budget(usd=Allowance(Decimal(1))).calls is None
    assert Cost(usd=Decimal(1)).usd_from is None
    assert Cost(usd_from="usage.usd").usd is None


def test_what_is_meant_where_nothing_is_said() -> None:
    """As docs/policies.md has it: a day, 64 characters, twenty seconds, five."""
    key = UpstreamKey(header="k")
    assert (key.retention, key.max_length, key.encoding) == (86400.0, 64, KeyEncoding.TEXT)
    assert (Approval().wait, Approval().expires) == (20.0, 86400.0)
    assert Probe(method="GET", target="/", found="x").settle == 5.0


@pytest.mark.parametrize(
    ("target", "apart"),
    [("/a?key={upstream_key}", True), ("/a?since={sent_at}", True), ("/a/{id}", False)],
)
def test_a_probe_that_asks_for_one_of_several(target: str, apart: bool) -> None:
    """By its key, or by when it was sent."""
    assert Probe(method="GET", target=target, found="x").tells_repeats_apart is apart


def test_a_credential_is_sent_as_written_and_shown_to_nobody() -> None:
    """Without its value nothing is sent at all."""
    held = Inject(header="X-Api-Key", value_env="BANK_KEY", value=b"s3cret")
    assert (held.name, held.pair) == ("x-api-key", (b"X-Api-Key", b"s3cret"))
    assert "s3cret" not in repr(held)
    with pytest.raises(RuntimeError, match="BANK_KEY"):
        _ = Inject(header="X-Api-Key", value_env="BANK_KEY").pair
