"""What the function does, and what semel is told of it."""

from __future__ import annotations

import threading
from threading import Event

import pytest

import semel
from semel import Client
from tests.client.fake import Fake, Reply, execute, problem, result


class Declined(Exception):
    """As a payment library would have one."""


def raising(error: BaseException) -> object:
    raise error


def test_an_exception_is_recorded_as_it_is_and_raised_again(fake: Fake, client: Client) -> None:
    """It may have had an effect: complete with an error, never fail. The caller sees the very same one."""
    error = Declined("no funds")
    with pytest.raises(Declined) as raised:
        client.call("refund", {}, lambda: raising(error))
    assert raised.value is error
    assert fake.only("complete").document == {"error": {"type": "Declined", "message": "no funds"}}
    assert fake.words() == ["begin", "complete"]


def test_a_message_that_is_no_text_or_without_end_is_recorded_all_the_same(
    fake: Fake, client: Client
) -> None:
    """File names may hold what UTF-8 cannot."""
    with pytest.raises(OSError, match="xxx"):
        client.call("refund", {}, lambda: raising(OSError("\udcff" + "x" * 99_999)))
    message = fake.only("complete").document["error"]["message"]
    assert message.startswith("\\udcffxxx")
    assert len(message) < 11_000


class Busy(semel.NotExecuted):
    """A kind of one's own."""


@pytest.mark.parametrize(
    "error", [semel.NotExecuted("no line"), Busy("no line"), ConnectionRefusedError("no line")]
)
def test_what_proves_that_nothing_happened_gives_the_call_back(
    fake: Fake, client: Client, error: Exception
) -> None:
    """NotExecuted, a kind of it, and what the tool lists: fail, so that whoever asks next runs it."""

    @client.tool(not_executed=(ConnectionRefusedError,))
    def refund() -> object:
        return raising(error)

    with pytest.raises(type(error)) as raised:
        refund()
    assert raised.value is error
    assert fake.only("fail").document == {"reason": f"{type(error).__name__}: no line"}
    assert fake.words() == ["begin", "fail"]


def test_what_is_not_listed_proves_nothing(fake: Fake, client: Client) -> None:
    """A ConnectionRefusedError may come from the second of two requests."""
    with pytest.raises(ConnectionRefusedError):
        client.call("refund", {}, lambda: raising(ConnectionRefusedError()))
    assert fake.words() == ["begin", "complete"]


@pytest.mark.parametrize("replayed", [False, True])
def test_a_tool_inside_proves_nothing_for_the_tool_around_it(
    fake: Fake, client: Client, replayed: bool
) -> None:
    """The outer one may have had an effect before: its call is completed with an error, never given back."""
    inner_answer = problem("upstream-unreachable", 502, after=1) if replayed else execute()
    fake.says["begin"] += [execute(), inner_answer]

    @client.tool
    def inner() -> object:
        return raising(semel.NotExecuted("no line"))

    @client.tool
    def outer() -> object:
        return inner()

    with pytest.raises(semel.NotExecuted):
        outer()
    reports = [one.target.split("/")[3] for one in fake.heard if one.word in ("complete", "fail")]
    assert reports == (["outer"] if replayed else ["inner", "outer"])
    assert fake.heard[-1].word == "complete"
    assert fake.heard[-1].document["error"]["type"] == "NotExecuted"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_an_interruption_is_not_reported_at_all(fake: Fake, client: Client, error: BaseException) -> None:
    """Nobody knows what came of it: the heart stops, the connection is closed, and the call may lapse."""
    fake.says["begin"].append(execute(heartbeat=0.02))

    def interrupted() -> object:
        fake.wait_heard("heartbeat")
        raise error

    with pytest.raises(type(error)) as raised:
        client.call("refund", {}, interrupted)
    assert raised.value is error
    assert not [one for one in threading.enumerate() if one.name.startswith("semel-heart")]
    fake.wait_left()
    assert fake.words() == ["begin"]


# ---- signs of life ----


def test_a_long_function_gives_signs_of_life_until_it_ends(fake: Fake, client: Client) -> None:
    """From a thread, while the function blocks; none comes after the report, and the thread is gone."""
    fake.says["begin"].append(execute(heartbeat=0.02, fence=3))
    fake.says["heartbeat"] += [Reply(document={"state": "pending", "heartbeat": 0.02})] * 1000

    def long() -> int:
        fake.wait_heard("heartbeat", 3)
        return 7

    assert client.call("refund", {}, long) == 7
    assert not [one for one in threading.enumerate() if one.name.startswith("semel-heart")]
    beat = next(one for one in fake.heard if one.word == "heartbeat")
    assert (beat.target, beat.body) == ("/_semel/tools/refund/c0ffee/heartbeat?fence=3", b"")
    assert fake.heard[-1].word == "complete"
    assert len({one.connection for one in fake.heard}) == 1


def test_a_heart_beats_while_the_function_computes(fake: Fake, client: Client) -> None:
    """Python lets other threads in; nothing of the function waits."""
    fake.says["begin"].append(execute(heartbeat=0.02))
    fake.says["heartbeat"] += [Reply(document={"state": "pending", "heartbeat": 0.02})] * 1000

    def compute() -> int:
        rounds = 0
        while len(fake.words("heartbeat")) < 3:
            rounds += 1
        return min(rounds, 1)

    assert client.call("refund", {}, compute) == 1


@pytest.mark.parametrize(
    "trouble",
    [Reply(cut=0), Reply(cut=3), problem("store-unavailable", 503, after=1), problem("not-found", 404)],
    ids=["lost", "half", "503", "404"],
)
def test_a_heartbeat_that_fails_is_tried_again_and_is_not_the_functions_trouble(
    fake: Fake, client: Client, trouble: Reply
) -> None:
    """On another connection if need be."""
    fake.says["begin"].append(execute(heartbeat=0.02))
    fake.says["heartbeat"] += [trouble, trouble]

    def long() -> int:
        fake.wait_heard("heartbeat", 3)
        return 7

    assert client.call("refund", {}, long) == 7
    assert fake.heard[-1].document == {"result": 7}


def test_a_call_in_doubt_is_completed_all_the_same(fake: Fake, client: Client) -> None:
    """A late result settles it."""
    fake.says["begin"].append(execute(heartbeat=0.02))
    fake.says["heartbeat"].append(Reply(document={"state": "in_doubt"}))

    def long() -> int:
        fake.wait_heard("heartbeat")
        return 7

    assert client.call("refund", {}, long) == 7
    assert fake.heard[-1].word == "complete"


def test_how_often_is_semels_to_say(fake: Fake, client: Client) -> None:
    """The next heartbeat comes when the last answer wants it: one that wants none soon gets none soon."""
    fake.says["begin"].append(execute(heartbeat=0.02))
    fake.says["heartbeat"].append(Reply(document={"state": "pending", "heartbeat": 3600.0}))
    gate = Event()

    def long() -> int:
        fake.wait_heard("heartbeat")
        gate.wait(0.2)  # ten of the old ones
        return 7

    assert client.call("refund", {}, long) == 7
    assert len(fake.words("heartbeat")) == 1


def test_without_a_thread_for_its_heart_a_function_is_not_run(
    fake: Fake, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And semel is told so: certainly nothing happened."""

    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr("semel.heart.Thread", NoThread)
    with pytest.raises(semel.NotExecuted, match="no heartbeat for 'refund', so it was not run"):
        client.call("refund", {}, lambda: raising(AssertionError("it ran")))
    assert fake.words() == ["begin", "fail"]


# ---- reports that semel does not take ----


@pytest.mark.parametrize(
    ("name", "status"), [("stale-version", 409), ("not-found", 404), ("unauthorized", 401)]
)
def test_a_result_that_is_not_recorded_is_not_handed_on(
    fake: Fake, client: Client, name: str, status: int
) -> None:
    """A replay would give something else. The error says that it has run, and has the result for a person."""
    fake.says["complete"].append(problem(name, status, detail="Too late."))
    with pytest.raises(
        semel.NotRecorded, match=r"'refund' HAS run.*not recorded: Too late\..*c0ffee"
    ) as raised:
        client.call("refund", {}, lambda: {"refunded": 7})
    assert raised.value.result == {"refunded": 7}
    assert raised.value.problem["status"] == status
    assert fake.words() == ["begin", "complete"]


@pytest.mark.parametrize(("name", "status"), [("too-large", 413), ("bad-request", 400)])
def test_a_result_that_semel_cannot_take_is_recorded_as_a_failure(
    fake: Fake, client: Client, name: str, status: int
) -> None:
    """So that the call is settled, and not run again."""
    fake.says["complete"].append(problem(name, status, detail="Over the limit"))
    with pytest.raises(semel.UnrecordableResult, match=r"'refund' HAS run.*Over the limit"):
        client.call("refund", {}, lambda: 7)
    first, second = [one.document for one in fake.heard if one.word == "complete"]
    assert first == {"result": 7}
    assert second["error"]["type"] == "UnrecordableResult"


def test_an_exception_that_is_not_recorded_is_the_cause(fake: Fake, client: Client) -> None:
    """The caller learns both: what happened, and that nobody knows of it."""
    fake.says["complete"].append(problem("stale-version", 409))
    with pytest.raises(semel.NotRecorded) as raised:
        client.call("refund", {}, lambda: raising(Declined("no funds")))
    assert isinstance(raised.value.__cause__, Declined)


def test_a_call_that_cannot_be_given_back_says_so_in_a_note(fake: Fake, client: Client) -> None:
    """The exception is the function's; that semel will hold the call is added to it."""
    fake.says["fail"].append(problem("stale-version", 409))
    with pytest.raises(semel.NotExecuted) as raised:
        client.call("refund", {}, lambda: raising(semel.NotExecuted("no line")))
    assert "will hold the call c0ffee in doubt" in raised.value.__notes__[0]


def test_threads_share_a_client(fake: Fake, client: Client) -> None:
    """Two calls that each wait for the other to be running come to their ends."""
    both = threading.Barrier(2, timeout=10)
    given: list[object] = []

    def wait(order: int) -> int:
        both.wait()
        return order

    threads = [
        threading.Thread(target=lambda n=n: given.append(client.call("refund", {"order": n}, wait)))
        for n in (1, 2)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join(10)
    assert sorted(str(one) for one in given) == ["1", "2"]
    fake.says["begin"].append(result(3))
    assert client.call("refund", {"order": 3}, wait) == 3
