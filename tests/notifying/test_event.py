"""What is told: its name, its shape, its signature. All of it without a network."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from proxy.core.intent import Call, Doubt, State, evolve
from proxy.core.terms import Terms
from proxy.errors import ConfigurationError
from proxy.notifying import hook as hooks
from proxy.notifying.event import of_call, of_divergence, of_test
from proxy.notifying.signing import read_secret, signature, signed_headers
from tests.notifying.scene import KEY, SECRET

NOW = 1_700_000_000
DOUBT = Doubt(since=NOW, reason="no answer", upstream_status=502, excerpt="bad gateway")
CALL = Call(
    key=bytes(range(16)),
    fingerprint=b"f" * 32,
    tenant="acme",
    upstream="mail",
    rule="send",
    tool="send_email",
    safe=False,
    state=State.IN_DOUBT,
    version=2,
    fence=1,
    born=NOW - 5.5,
    owner="one",
    created_at=NOW - 5.5,
    sends=1,
    doubt=DOUBT,
    request=b"sealed: arguments and headers",
)
WAITS = evolve(CALL, state=State.AWAITING_APPROVAL, doubt=None, owner="", terms=Terms(bound_to=b"this"))


def test_what_is_told_of_a_call() -> None:
    """Enough to find it and to decide where to look; no arguments, no headers, no body."""
    told = json.loads(of_call(CALL).body("https://semel.example"))
    name = told.pop("id")
    assert name.startswith("semel_")
    assert "." not in name
    assert told == {
        "type": "in_doubt",
        "at": "2023-11-14T22:13:20.000+00:00",
        "call": {
            "id": "000102030405060708090a0b0c0d0e0f",
            "tenant": "acme",
            "run": None,
            "attempt": None,
            "upstream": "mail",
            "rule": "send",
            "tool": "send_email",
            "state": "in_doubt",
            "version": 2,
            "since": "2023-11-14T22:13:20.000+00:00",
            "reason": "no answer",
            "upstream_status": 502,
            "excerpt": "bad gateway",
        },
        "resolve": "https://semel.example/_semel/calls/000102030405060708090a0b0c0d0e0f/resolve",
        "page": "https://semel.example/_semel/",
    }


def test_one_that_waits_for_approval() -> None:
    """The same shape; what is not known is null, and the link is the one to approve."""
    told = json.loads(of_call(WAITS).body("http://127.0.0.1:8080"))
    assert (told["type"], told["call"]["state"], told["call"]["reason"]) == (
        "awaiting_approval",
        "awaiting_approval",
        None,
    )
    assert told["resolve"] == f"http://127.0.0.1:8080/_semel/calls/{CALL.id}/approve"


def test_without_an_address_for_people_there_are_no_links() -> None:
    """semel listens everywhere, or nobody said how it is reached."""
    told = json.loads(of_call(CALL).body(""))
    assert (told["resolve"], told["page"]) == (None, None)


def test_the_name_follows_from_what_happened() -> None:
    """The same doubt, whoever finds it; another send, another approval, another row is another."""
    name = of_call(CALL).id
    assert of_call(evolve(CALL, owner="two", version=7, settled_at=NOW + 9.0)).id == name
    others = [
        evolve(CALL, fence=2),
        evolve(CALL, born=NOW + 1.0),
        evolve(CALL, key=bytes(16)),
        WAITS,
        evolve(WAITS, version=3),
    ]
    assert len({of_call(other).id for other in others} | {name}) == len(others) + 1


def test_a_divergence_is_told_once_while_nothing_changes() -> None:
    """An agent that asks again and again is held again and again: one notification."""
    fields = {"tenant": "acme", "run": "r", "attempt": "2", "rule": "send", "why": "left", "unasked": 1}
    first, second = of_divergence(fields, 1.0), of_divergence(fields, 2.0)
    assert first.id == second.id
    assert first.id != of_divergence({**fields, "attempt": "3"}, 1.0).id
    told = json.loads(first.body("http://p"))
    assert (told["type"], told["call"]["run"], told["resolve"]) == (
        "diverged",
        "r",
        "http://p/_semel/runs/r/allow",
    )


def test_the_signature_is_that_of_the_specification() -> None:
    """By hand, and the example that the specification's libraries are tested with."""
    body = b'{"test": 2432232314}'
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    assert (
        signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )
    expected = hmac.new(KEY, b"a.5." + body, hashlib.sha256).digest()
    assert signature(KEY, "a", 5, body) == "v1," + base64.b64encode(expected).decode()


def test_another_body_another_id_another_secret_do_not_verify() -> None:
    """With the library of receivers; an old timestamp neither."""
    event, now = of_test(NOW, b"nonce"), int(time.time())
    body = event.body("")
    headers = {name.decode(): value.decode() for name, value in signed_headers(KEY, event.id, now, body)}
    assert Webhook(SECRET).verify(body, headers)["type"] == "test"
    old = {name.decode(): value.decode() for name, value in signed_headers(KEY, event.id, now - 900, body)}
    for data, given in (
        (body.replace(b"test", b"tost"), headers),
        (body, {**headers, "webhook-id": "semel_other"}),
        (body, {**headers, "webhook-timestamp": str(now - 1)}),
        (body, old),
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(data, given)
    with pytest.raises(WebhookVerificationError):
        Webhook(b"x" * 32).verify(body, headers)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "is not set: make one with"),
        ("  ", "is empty: make one with"),
        ("geheim", "too short to sign with"),
        ("whsec_Z2VoZWlt", "too short to sign with"),
        ("whsec_geheim!" * 9, "goes on without base64"),
    ],
)
def test_a_secret_that_cannot_sign_is_an_error_that_does_not_show_it(value: str | None, words: str) -> None:
    """It says how to make one."""
    with pytest.raises(ConfigurationError) as caught:
        read_secret("KEY", {} if value is None else {"KEY": value})
    assert words in str(caught.value)
    assert "geheim" not in str(caught.value)
    assert "Z2VoZWlt" not in str(caught.value)


def test_a_secret_is_base64_behind_its_prefix_and_itself_without() -> None:
    """A raw one is what receivers give to their library as bytes."""
    assert read_secret("KEY", {"KEY": SECRET + "\n"}) == KEY
    assert read_secret("KEY", {"KEY": "a-raw-secret-of-some-length"}) == b"a-raw-secret-of-some-length"


def test_pauses_grow_to_a_bound_and_differ_by_chance() -> None:
    """Each from a half to the whole of what doubling gives, and never more than the longest."""
    whole = [hooks.pause(tries, 0.0) for tries in range(1, 40)]
    assert whole[0] == hooks.FIRST_PAUSE
    assert whole[1] == 2 * hooks.FIRST_PAUSE
    assert whole == sorted(whole)
    assert whole[-1] == hooks.LONGEST_PAUSE
    assert [hooks.pause(tries, 1.0) for tries in range(1, 40)] == [one / 2 for one in whole]
