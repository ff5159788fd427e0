"""Connections that break, at each point: what is proven not to have been begun, what is asked again, what is
told to have run."""

from __future__ import annotations

from threading import Event, Thread

import pytest

import semel
from semel import Client
from tests.client.fake import CUT, LIMIT, Fake, Reply, execute, faking, free_port, problem, result


def never(**_: object) -> object:
    raise AssertionError("the function ran")


def test_where_nobody_listens_nothing_was_begun() -> None:
    """And the error says so, in bounded time."""
    with pytest.raises(semel.Unreachable, match=r"Connection refused\. Nothing was begun\."):
        Client(f"http://127.0.0.1:{free_port()}", timeout=0.5).call("refund", {}, never)


def test_a_semel_that_restarts_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection proves that nothing was sent: the first begin that is heard is the first."""
    port, refused = free_port(), Event()
    from semel import line

    connect = line._connect

    def noticed(place: object, timeout: float) -> object:
        try:
            return connect(place, timeout)  # type: ignore[arg-type]
        except ConnectionRefusedError:
            refused.set()
            raise

    monkeypatch.setattr(line, "_connect", noticed)
    given: list[object] = []
    client = Client(f"http://127.0.0.1:{port}", timeout=10)
    thread = Thread(target=lambda: given.append(client.call("refund", {"order": 7}, lambda order: order)))
    thread.start()
    assert refused.wait(LIMIT)
    with faking(port) as fake:
        thread.join(LIMIT)
        assert given == [7]
        assert fake.words() == ["begin", "complete"]


@pytest.mark.parametrize("where", ["client", "in_run"])
@pytest.mark.parametrize("lost", [CUT, Reply(document={"result": 1}, cut=4)], ids=["before", "within"])
def test_a_begin_without_an_answer_is_asked_again_as_the_same_call(
    fake: Fake, request: pytest.FixtureRequest, where: str, lost: Reply
) -> None:
    """The very same request: to semel it is no second call. Handed out to us, the function runs once."""
    client: Client = request.getfixturevalue(where)
    fake.says["begin"] += [lost, execute()]
    ran: list[int] = []
    client.call("refund", {"order": 7}, lambda order: ran.append(order))
    first, second, complete = fake.heard
    assert (first.target, first.headers, first.body) == (second.target, second.headers, second.body)
    assert ("idempotency-key" in first.headers) == (where == "in_run")
    assert ran == [7]
    assert complete.word == "complete"


def test_a_call_whose_hand_out_was_lost_is_in_doubt_and_says_that_we_did_not_run_it(
    fake: Fake, in_run: Client
) -> None:
    """semel handed it out and waits for a sign of life that cannot come. That we know better is a note."""
    fake.says["begin"] += [CUT, problem("in-progress", 409, after=0), problem("in-doubt", 409)]
    with pytest.raises(semel.InDoubt, match="about in-doubt") as raised:
        in_run.call("refund", {}, never)
    assert "This process has not run the function" in raised.value.__notes__[0]
    assert fake.words() == ["begin"] * 3


def test_doubt_without_a_lost_answer_has_no_such_note(fake: Fake, in_run: Client) -> None:
    """There somebody else ran it, perhaps."""
    fake.says["begin"] += [problem("in-progress", 409, after=0), problem("in-doubt", 409)]
    with pytest.raises(semel.InDoubt) as raised:
        in_run.call("refund", {}, never)
    assert not hasattr(raised.value, "__notes__")


def test_a_begin_that_is_never_answered_is_not_said_to_have_come_to_nothing(fake: Fake) -> None:
    """semel may have handed it out. The function was not run here."""
    fake.says["begin"] += [CUT] * 100
    with pytest.raises(semel.Unanswered, match=r"did not answer.*'refund' was not run here.*doubt"):
        Client(fake.url, timeout=0.5).call("refund", {}, never)
    assert len(fake.words()) > 1


def test_once_heard_a_begin_is_not_said_to_have_come_to_nothing_when_nobody_listens_any_more() -> None:
    """The last try was refused; the first may have been handed out."""
    with faking() as fake:
        fake.says["begin"].append(CUT)
        client = Client(fake.url, timeout=2)
        raised: list[BaseException] = []

        def call() -> None:
            try:
                client.call("refund", {}, never)
            except semel.SemelError as error:
                raised.append(error)

        gate = Event()
        fake.says["begin"][0] = Reply(cut=0, gate=gate)
        thread = Thread(target=call)
        thread.start()
        fake.wait_heard("begin")
        fake._server.socket.close()  # nobody is let in any more
        gate.set()
        thread.join(LIMIT)
    (error,) = raised
    assert type(error) is semel.Unanswered
    assert "cannot be reached" in str(error)
    assert "Nothing was begun" not in str(error)


def test_a_semel_that_says_nothing_is_waited_for_only_so_long(fake: Fake) -> None:
    """The connection is closed then: semel sees that nobody is there to take the call."""
    gate = Event()
    fake.says["begin"].append(Reply(document={"result": 1}, gate=gate))
    with pytest.raises(semel.Unanswered, match="timed out"):
        Client(fake.url, timeout=0.2).call("refund", {}, never)
    gate.set()
    fake.wait_left()


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_gateways_error_is_no_answer(fake: Fake, client: Client, status: int) -> None:
    """What stands between speaks for itself: asked again as the same call."""
    fake.says["begin"] += [Reply(raw=b"<html>bad gateway", status=status), result(7)]
    assert client.call("refund", {}, never) == 7


TROUBLE = {
    "lost": CUT,
    "half an answer": Reply(document={"state": "done"}, cut=3),
    "the store": problem("store-unavailable", 503, after=0),
    "a gateway": Reply(raw=b"<html>", status=502, headers={"Retry-After": "0"}),
    "a defect": Reply(
        document={"type": "urn:semel:internal-error"}, status=500, headers={"Retry-After": "0"}
    ),
}


@pytest.mark.parametrize("name", TROUBLE)
@pytest.mark.parametrize("word", ["complete", "fail"])
def test_a_report_is_sent_until_semel_has_it(fake: Fake, client: Client, word: str, name: str) -> None:
    """The same bytes; the function does not run again."""
    fake.says[word] += [TROUBLE[name], TROUBLE[name]]
    ran: list[int] = []

    def refund(order: int) -> int:
        ran.append(order)
        if word == "fail":
            raise semel.NotExecuted("no line")
        return order

    if word == "fail":
        with pytest.raises(semel.NotExecuted) as raised:
            client.call("refund", {"order": 7}, refund)
        assert not hasattr(raised.value, "__notes__")
    else:
        assert client.call("refund", {"order": 7}, refund) == 7
    reports = [one for one in fake.heard if one.word == word]
    assert len(reports) == 3
    assert len({(one.target, one.body) for one in reports}) == 1
    assert ran == [7]


def test_a_report_goes_out_on_another_connection_when_the_first_was_closed(
    fake: Fake, client: Client
) -> None:
    """While the function ran semel, or what stands before it, may have restarted."""

    def refund() -> int:
        with fake._changed:
            for one in fake._open:
                one.shutdown(2)
        fake.wait_left()
        return 7

    assert client.call("refund", {}, refund) == 7
    assert fake.words() == ["begin", "complete"]
    assert len({one.connection for one in fake.heard}) == 2


@pytest.mark.parametrize("trouble", [CUT, problem("store-unavailable", 503, after=1)], ids=["lost", "503"])
def test_a_report_that_cannot_be_delivered_is_told_as_such(fake: Fake, trouble: Reply) -> None:
    """In bounded time: the function HAS run, its result is not recorded, here it is."""
    fake.says["complete"] += [trouble] * 100
    with pytest.raises(semel.NotRecorded, match=r"'refund' HAS run.*not recorded") as raised:
        Client(fake.url, timeout=0.6).call("refund", {}, lambda: {"refunded": 7})
    assert raised.value.result == {"refunded": 7}
    assert fake.words("begin") == ["begin"]


def test_a_failure_that_cannot_be_delivered_leaves_its_cause(fake: Fake) -> None:
    """And a result that is no JSON is said to have run, whether semel knows it or not."""
    fake.says["complete"] += [CUT] * 100
    client = Client(fake.url, timeout=0.4)
    with pytest.raises(semel.NotRecorded) as raised:
        client.call("refund", {}, lambda: 1 / 0)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert raised.value.result is None
    with pytest.raises(semel.UnrecordableResult, match="HAS run") as unrecordable:
        client.call("refund", {}, lambda: object())
    assert "could not be told that it has run" in unrecordable.value.__notes__[0]
