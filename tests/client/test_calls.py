"""What semel says to a begin, and what the client makes of it; and what names a call."""

from __future__ import annotations

import pickle
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

import semel
from proxy.problem import PROBLEMS
from semel import Client
from semel.errors import KINDS
from tests.client.fake import Fake, Reply, execute, faking, problem, result

CERTIFICATE = Path(__file__).parents[1] / "localhost.pem"


def never(**_: object) -> object:
    raise AssertionError("the function ran")


def test_a_call_runs_once_and_its_result_is_recorded(fake: Fake, client: Client) -> None:
    """begin with the arguments, then complete with the result under the fence, on one connection."""
    fake.says["begin"].append(execute(fence=7))
    assert client.call("refund", {"order": 7}, lambda order: {"refunded": order}) == {"refunded": 7}
    begin, complete = fake.heard
    assert (begin.target, begin.document) == ("/_semel/tools/refund", {"order": 7})
    assert begin.headers["content-type"] == "application/json"
    assert complete.target == "/_semel/tools/refund/c0ffee/complete?fence=7"
    assert complete.document == {"result": {"refunded": 7}}
    assert begin.connection == complete.connection


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, {"execute": {}}, {"error": 1}])
def test_a_recorded_result_is_given_and_nothing_runs(fake: Fake, client: Client, value: object) -> None:
    """Also one that is empty, or looks like something else."""
    fake.says["begin"].append(result(value))
    assert client.call("refund", {}, never) == value
    assert fake.words() == ["begin"]


def test_a_recorded_failure_is_raised_and_nothing_runs(fake: Fake, client: Client) -> None:
    """As ToolFailed, with type and message; it can be pickled."""
    fake.says["begin"].append(Reply(document={"error": {"type": "CardDeclined", "message": "no funds"}}))
    with pytest.raises(semel.ToolFailed, match="CardDeclined: no funds") as raised:
        client.call("refund", {}, never)
    assert (raised.value.type, raised.value.message) == ("CardDeclined", "no funds")
    again = pickle.loads(pickle.dumps(raised.value))
    assert (again.type, str(again)) == ("CardDeclined", "CardDeclined: no funds")
    assert fake.words() == ["begin"]


def test_under_a_pass_rule_the_function_runs_and_nobody_is_told(fake: Fake, client: Client) -> None:
    """An execute without a call: no heartbeat, no report."""
    fake.says["begin"].append(Reply(document={"execute": {}}))
    assert client.call("refund", {"order": 7}, lambda order: order) == 7
    assert fake.words("begin", "complete", "fail", "heartbeat") == ["begin"]


REFUSALS: dict[str, tuple[int, type[semel.SemelError]]] = {
    "in-doubt": (409, semel.InDoubt),
    "awaiting-approval": (409, semel.AwaitingApproval),
    "diverged": (409, semel.Diverged),
    "denied": (403, semel.Denied),
    "budget-exceeded": (429, semel.BudgetExceeded),
    "upstream-unreachable": (502, semel.NotExecuted),
    "key-conflict": (422, semel.Refused),
    "run-expired": (410, semel.Refused),
    "unauthorized": (401, semel.Refused),
    "stale": (409, semel.Refused),
    "internal-error": (500, semel.Refused),
    "store-unavailable": (503, semel.Refused),  # without Retry-After: it lasts
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_raised_at_once_and_nothing_runs(fake: Fake, client: Client, name: str) -> None:
    """By its kind, with semel's words; also where Retry-After says when it may be different."""
    status, kind = REFUSALS[name]
    after = 1 if name in ("budget-exceeded", "upstream-unreachable") else None
    fake.says["begin"].append(problem(name, status, after=after, detail="Say please."))
    with pytest.raises(semel.SemelError) as raised:
        client.call("refund", {}, never)
    assert type(raised.value) is kind
    assert str(raised.value) == "Say please."
    assert raised.value.problem["type"] == f"urn:semel:{name}"
    if isinstance(raised.value, semel.Refused):
        assert (raised.value.name, raised.value.status) == (name, status)
    assert fake.words() == ["begin"]


def test_the_kinds_are_problems_that_semel_has() -> None:
    """A problem that is renamed in the proxy is noticed here."""
    assert set(KINDS) <= {each.name for each in PROBLEMS.values()}
    assert set(REFUSALS) <= {each.name for each in PROBLEMS.values()}


@pytest.mark.parametrize("first", [("in-progress", 409), ("store-unavailable", 503), ("overloaded", 503)])
def test_what_passes_is_asked_again(fake: Fake, client: Client, first: tuple[str, int]) -> None:
    """Until there is an answer: here that of another who ran it."""
    fake.says["begin"] += [problem(*first, after=0), problem(*first, after=0), result(5)]
    assert client.call("refund", {}, never) == 5
    assert fake.words() == ["begin"] * 3


@pytest.mark.parametrize(("name", "status"), [("in-progress", 409), ("store-unavailable", 503)])
def test_the_time_for_asking_again_is_bounded(fake: Fake, name: str, status: int) -> None:
    """Then what semel said last is raised."""
    fake.says["begin"] += [problem(name, status, after=0)] * 3 + [problem(name, status, after=20)]
    with pytest.raises(semel.Refused) as raised:
        Client(fake.url, timeout=5).call("refund", {}, never)
    assert raised.value.name == name
    assert isinstance(raised.value, semel.InProgress) == (name == "in-progress")
    assert fake.words() == ["begin"] * 4


STRANGE: dict[str, Reply] = {
    "a page": Reply(raw=b"<html>", status=404),
    "another's JSON": Reply(document={"ok": True}),
    "a list": Reply(document=[1]),
    "half an execute": Reply(document={"execute": {"call": "c"}}),
    "an execute that is refused": Reply(document=execute().document, status=404),
    "a result that is refused": Reply(document={"result": 1}, status=403),
    "a redirection": Reply(status=307, headers={"Location": "http://127.0.0.1:9/"}),
}


@pytest.mark.parametrize("name", STRANGE)
def test_what_does_not_speak_as_semel_does_is_not_believed(fake: Fake, client: Client, name: str) -> None:
    """Nothing runs, and a person is told."""
    fake.says["begin"].append(STRANGE[name])
    with pytest.raises(semel.Unanswered, match=r"does not speak as semel does.*'refund' was not run here"):
        client.call("refund", {}, never)
    assert fake.words() == ["begin"]


# ---- what names a call ----


def keys(fake: Fake) -> list[str | None]:
    return [one.headers.get("idempotency-key") for one in fake.heard if one.word == "begin"]


def test_inside_a_run_the_tries_of_a_call_share_a_key_and_calls_do_not(fake: Fake, in_run: Client) -> None:
    """It is evidence of a retry there; a key that two calls shared would make them one."""
    fake.says["begin"] += [problem("in-progress", 409, after=0), execute(), execute()]
    for _ in range(2):
        in_run.call("refund", {"order": 7}, lambda order: order)
    first, retry, second = keys(fake)
    assert first == retry
    assert first != second
    assert first is not None
    assert second is not None


def test_outside_runs_there_is_no_key_unless_one_is_given(fake: Fake, client: Client) -> None:
    """It would name the call, and no two calls would be the same."""
    client.call("refund", {"order": 7}, lambda order: order)
    client.call("refund", {"order": 7}, lambda order: order, options=semel.Options(key="order 7"))
    assert keys(fake) == [None, "order 7"]


def test_key_and_occurrence_may_be_found_in_the_arguments(fake: Fake, client: Client, in_run: Client) -> None:
    """Both are functions of the arguments as semel sees them, or constants."""

    @client.tool(key=lambda arguments: f"order-{arguments['order']}", occurrence=2)
    def refund(order: int, parts: tuple[int, ...] = (1, 2)) -> int:
        return order

    @in_run.tool(key="always", occurrence=lambda arguments: len(arguments["parts"]))  # type: ignore[arg-type]
    def pay(parts: list[int]) -> int:
        return 0

    refund(7)
    pay([1, 2, 3])
    assert keys(fake) == ["order-7", "always"]
    assert [one.headers["semel-occurrence"] for one in fake.heard if one.word == "begin"] == ["2", "3"]


@pytest.mark.parametrize(
    "options",
    [
        lambda: semel.Options(key=""),
        lambda: semel.Options(key="a\nb"),
        lambda: semel.Options(key="ключ"),
        lambda: semel.Options(key=lambda _: 7),  # type: ignore[arg-type, return-value]
        lambda: semel.Options(occurrence=0),
        lambda: semel.Options(occurrence=True),
    ],
)
def test_a_bad_key_or_occurrence_is_refused_before_anything_is_sent(
    fake: Fake, client: Client, options: Callable[[], semel.Options]
) -> None:
    """With a ValueError that names it."""
    with pytest.raises(ValueError, match=r"A key is|An occurrence is"):
        client.call("refund", {}, never, options=options())
    assert fake.heard == []


@pytest.mark.parametrize("name", ["", "a b", "a/b", "..", ".", "x" * 129, "é", "<lambda>"])
def test_a_name_that_no_tool_can_have_is_refused(fake: Fake, client: Client, name: str) -> None:
    """Before anything is sent, and at the decoration already."""
    with pytest.raises(ValueError, match="A tool's name is"):
        client.call(name, {}, never)
    if name:
        with pytest.raises(ValueError, match="A tool's name is"):
            client.tool(name=name)(test_the_kinds_are_problems_that_semel_has)
    assert fake.heard == []


# ---- where semel is ----


def speaker(fake: Fake) -> tuple[str | None, ...]:
    headers = fake.heard[0].headers
    return tuple(headers.get(name) for name in ("semel-run", "semel-attempt", "semel-token"))


def test_the_default_client_reads_what_semel_run_has_set(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first call, not at the import. The run and the token go in headers, not in the address."""

    @semel.tool
    def refund(order: int) -> int:
        return order

    monkeypatch.setenv("SEMEL_URL", f"{fake.url}/@nightly+a1:s%2Fecret")
    monkeypatch.setenv("SEMEL_RUN", "nightly")
    monkeypatch.setenv("SEMEL_ATTEMPT", "a1")
    monkeypatch.setenv("SEMEL_TOKEN", "s/ecret")
    assert refund(7) == 7
    assert speaker(fake) == ("nightly", "a1", "s/ecret")
    assert [one.target for one in fake.heard] == [
        "/_semel/tools/refund",
        "/_semel/tools/refund/c0ffee/complete?fence=1",
    ]


def test_arguments_count_before_the_address_and_that_before_the_environment(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each word by itself."""
    monkeypatch.setenv("SEMEL_RUN", "outer")
    monkeypatch.setenv("SEMEL_ATTEMPT", "a9")
    monkeypatch.setenv("SEMEL_TOKEN", "t9")
    Client(f"{fake.url}/@inner", token="t1").call("refund", {}, lambda: 0)
    assert speaker(fake) == ("inner", "a9", "t1")


def test_below_a_path_and_without_a_run(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path before semel's is kept; an attempt without a run and the token that is none are not sent."""
    monkeypatch.setenv("SEMEL_ATTEMPT", "a9")
    monkeypatch.setenv("SEMEL_TOKEN", "-")
    Client(f"{fake.url}/behind/").call("refund", {}, lambda: 0)
    assert speaker(fake) == (None, None, None)
    assert fake.heard[0].target == "/behind/_semel/tools/refund"


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://there", "http://", "http://there/?x=1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """When the client is made."""
    with pytest.raises(ValueError, match="semel's address is like"):
        Client(url)


def test_an_attempt_needs_a_run_and_a_header_takes_no_line_break() -> None:
    """Both are mistakes of whoever makes the client."""
    with pytest.raises(ValueError, match="An attempt needs a run"):
        Client("http://127.0.0.1:9", attempt="a1")
    with pytest.raises(ValueError, match="Semel-Token cannot be"):
        Client("http://127.0.0.1:9", token="a\r\nb: c")


def test_without_semel_nothing_runs_and_the_error_says_how_to_start() -> None:
    """Silence about it would undo the promise."""

    @semel.tool
    def refund() -> None:
        never()

    with pytest.raises(semel.NotConfigured, match=r"semel run --id NAME -- python agent\.py"):
        refund()
    with pytest.raises(semel.NotConfigured):
        Client()


async def test_switched_off_the_function_simply_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync and async, with arguments and results of any kind."""
    monkeypatch.setenv("SEMEL_OFF", "1")

    @semel.tool
    def one(value: object) -> object:
        return value

    @semel.tool
    async def other(value: object) -> object:
        return value

    thing = object()
    assert one(thing) is thing
    assert await other(thing) is thing
    assert Client().call("one", {"value": thing}, lambda value: value) is thing


def test_where_semel_is_counts_before_that_it_is_off(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that was forgotten in a shell must not undo `semel run`."""
    monkeypatch.setenv("SEMEL_OFF", "1")
    monkeypatch.setenv("SEMEL_URL", fake.url)
    Client().call("refund", {}, lambda: 0)
    assert fake.words() == ["begin", "complete"]


def test_https(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a certificate that is trusted; with another nothing is sent, and it is not tried for long."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    with faking(tls=context) as fake:
        with pytest.raises(semel.Unreachable, match=r"certificate verify failed.*Nothing was begun"):
            Client(fake.url).call("refund", {}, never)
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        assert Client(fake.url).call("refund", {"order": 7}, lambda order: order) == 7
        assert fake.words() == ["begin", "complete"]
