"""Section 2: what is not recorded passes, and the run says that it has it."""

from __future__ import annotations

import pytest

from proxy.core.policy import Upstream
from proxy.front.address import UpstreamAddress, parse_target
from proxy.front.naming import ToName, name_now
from proxy.spool import Spool
from tests.exchange.virtual_time import in_virtual_time
from tests.runs.stage import TENANT, Agent, RunProcess

pytestmark = pytest.mark.usefixtures("any_stage")

FORM = ((b"Content-Type", b"application/x-www-form-urlencoded"),)


def test_a_token_request_in_a_run_has_no_name() -> None:
    """Its answer is a secret that must be fresh."""
    upstream = Upstream(name="login", scheme="http", host="login", port=80)
    address = parse_target("/login/token")
    assert isinstance(address, UpstreamAddress)
    for body, passes in ((b"grant_type=password&user=a", True), (b"user=a", False)):
        asked = ToName(upstream, address, "POST", FORM, Spool.of(body), 1, TENANT, origin="r")
        assert (name_now(asked, b"s" * 32, 1000).identity is None) is passes


@in_virtual_time
async def test_the_run_says_that_it_has_calls_without_a_record() -> None:
    """Each kind once, in the run and in its history, whoever says it."""
    semel = RunProcess()
    await Agent(semel).read("look")
    other = RunProcess(semel.world, semel.origin)
    for proxy, kind in ((semel, "upgrade"), (semel, "upgrade"), (other, "upgrade"), (other, "rule token")):
        await proxy.books.passed(await proxy.books.open(TENANT, "r", "a1"), kind)
    run = await semel.store.get_run(TENANT, "r")
    assert run is not None
    assert run.passed == {"upgrade", "rule token"}
    told = [entry.why for entry in await semel.store.run_history(TENANT, "r")]
    assert told == ["passed without a record: upgrade", "passed without a record: rule token"]


@in_virtual_time
async def test_a_store_in_trouble_stops_nothing_that_is_not_recorded() -> None:
    """The call passes all the same; the log says what could not be written."""
    semel = RunProcess()
    book = await semel.books.open(TENANT, "r", "a1")
    semel.store.unavailable = True
    await semel.books.passed(book, "upgrade")
    assert semel.notebook.told_of("store-trouble")
