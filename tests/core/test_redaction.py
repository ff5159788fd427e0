"""What is hidden, what is left, and that equal things stay equal: core/redaction.py and core/scrubbing.py."""

from __future__ import annotations

import base64
import html
import json
import re
import time
from typing import Any
from urllib.parse import quote, quote_plus, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.canonical import Body
from proxy.core.patterns import PathPattern
from proxy.core.redaction import (
    MARK,
    hide_body,
    hide_headers,
    hide_names,
    hide_path,
    hide_query,
    is_hidden_whole,
    sounds_secret,
    veil_of,
)
from proxy.core.scrubbing import Secrets, scrubbed, secrets_of

KEY = b"k" * 32
HASH = re.compile(re.escape(MARK) + "[0-9a-f]{32}")
JSON, FORM = "application/json", "application/x-www-form-urlencoded"


def veil(*args: str, **more: Any) -> Any:
    return veil_of(KEY, "acme", args, **more)


def hidden_json(data: bytes, *args: str) -> Any:
    return json.loads(hide_body(Body(media_type=JSON, data=data), veil(*args)).data)


def test_of_a_query_the_values_of_secret_names_are_hidden_and_nothing_else() -> None:
    """Spelling, order and repetition of the rest stay."""
    found = hide_query("q=a%20b&api_key=AIza&flag&x=1;token=t;y=2&q=c&%74oken=u", veil())
    assert HASH.sub("*", found) == "q=a%20b&api_key=*&flag&x=1;token=*&q=c&%74oken=*"


def test_the_rule_hides_what_it_names() -> None:
    """In a query with and without the source, in a path by the segment's name, in headers."""
    assert HASH.sub("*", hide_query("ssn=1&page=2", veil("query.ssn"))) == "ssn=*&page=2"
    assert HASH.sub("*", hide_query("ssn=1&page=2", veil("ssn"))) == "ssn=*&page=2"
    pattern = PathPattern.parse("/users/{ssn}/{page}/**")
    assert HASH.sub("*", hide_path("/users/12%33/7/a/b", pattern, veil("path.ssn"))) == "/users/*/7/a/b"
    assert hide_names({"ssn": "123", "page": "7"}, veil("path.ssn"))["page"] == "7"
    assert HASH.fullmatch(hide_names({"ssn": "123", "page": "7"}, veil("path.ssn"))["ssn"])
    headers = hide_headers(((b"X-Card", b"4242"), (b"Accept", b"a")), veil_of(KEY, "acme", (), ("x-card",)))
    assert HASH.fullmatch(headers[0][1].decode())
    assert headers[1] == (b"Accept", b"a")


def test_segments_that_sound_secret_are_hidden_without_a_rule() -> None:
    """`{token}` is one, wherever it stands."""
    pattern = PathPattern.parse("/bot/{token}/send")
    assert HASH.sub("*", hide_path("/bot/123:abc/send", pattern, veil())) == "/bot/*/send"


def test_in_json_exactly_the_named_values_are_hidden() -> None:
    """Nested, in arrays, whole objects; numbers keep their spelling, and an absent field is no field."""
    body = b'{"card": {"number": "4242", "cvc": 1.50}, "items": [{"pin": 1}, {"pin": [2]}], "amount": 10.50}'
    found = hide_body(
        Body(media_type=JSON, data=body), veil("body.card.number", "items[].pin", "body.absent")
    ).data.decode()
    assert HASH.sub("*", found) == (
        '{"card":{"number":"*","cvc":1.50},"items":[{"pin":"*"},{"pin":"*"}],"amount":10.50}'
    )
    assert HASH.fullmatch(hidden_json(body, "card")["card"])


def test_what_cannot_be_read_is_hidden_whole() -> None:
    """Duplicate keys, broken JSON, text, a picture: nobody knows where in it the secret is."""
    for body in (
        Body(media_type=JSON, data=b'{"card": 1, "card": 2}'),
        Body(media_type=JSON, data=b'{"card": '),
        Body(media_type="text/plain", data=b"card=1"),
        Body(media_type="image/png", data=b"\x89PNG card"),
        Body(media_type=FORM, data="card=é".encode()),
    ):
        found = hide_body(body, veil("body.card"))
        assert is_hidden_whole(found)
        assert HASH.fullmatch(found.data.decode())
    untouched = Body(media_type="text/plain", data=b"card=1")
    assert hide_body(untouched, veil("query.card")) is untouched


def test_forms_are_hidden_by_name() -> None:
    """However the name is spelled."""
    found = hide_body(Body(media_type=FORM, data=b"a=1&card%5Fno=4&card_no=5"), veil("card_no")).data.decode()
    assert HASH.sub("*", found) == "a=1&card%5Fno=*&card_no=*"


@pytest.mark.parametrize("pair", ["pin=5432", "a=1;pin=5432", "pin[]=5432", "pin%5B%5D=5432&pin[]=5432"])
@pytest.mark.parametrize("name", ["pin", "pin[]"])
def test_pairs_are_hidden_however_they_are_written(pair: str, name: str) -> None:
    """In forms and in queries."""
    form = hide_body(Body(media_type=FORM, data=pair.encode()), veil(name, f"body.{name}")).data
    assert b"5432" not in form
    assert b"redacted" in form
    assert "5432" not in hide_query(pair, veil(f"query.{name}"))
    assert "5432" not in hide_query(pair, veil(name))


def test_equal_values_are_hidden_alike_and_others_are_not() -> None:
    """By value, not by spelling; each tenant's are its own; without the secret nobody can try."""
    one = hidden_json(b'{"n": 1.0, "s": "\\u0061b"}', "n", "s")
    assert one == hidden_json(b'{"s": "ab", "n": 1}', "n", "s")
    assert one["n"] != hidden_json(b'{"n": "1"}', "n")["n"]
    assert one["n"] != hidden_json(b'{"n": 2}', "n")["n"]
    spelled = hide_query("token=a%20b", veil())
    assert spelled == hide_query("token=a+b", veil())
    assert spelled != hide_query("token=a+b", veil_of(KEY, "zenith"))
    assert spelled != hide_query("token=a+b", veil_of(b"j" * 32, "acme"))


def test_what_a_client_sends_is_never_taken_for_a_hash() -> None:
    """Else the hash, which people can see, would be as good as the secret. From a record it is one."""
    seen = hide_query("token=secret", veil())
    assert hide_query(seen, veil()) != seen
    assert hide_query(seen, veil(recorded=True)) == seen
    body = hide_body(Body(media_type=JSON, data=b'{"a": "x"}'), veil("a"))
    assert hide_body(body, veil("a")) != body
    assert hide_body(body, veil("a", recorded=True)) == body


leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8))
documents = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner)
    ),
)


@given(documents, st.sampled_from(["a", "b.a", "a[].b", "c[]", "body.a.a"]))
def test_only_what_is_named_changes(document: dict[str, Any], name: str) -> None:
    """Against a plain model of what a name selects."""
    data = json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
    found = hide_body(Body(media_type=JSON, data=data), veil(name))
    if is_hidden_whole(found):  # lone surrogates have no meaning
        return
    steps = [step for part in name.removeprefix("body.").split(".") for step in _steps(part)]
    assert _same_but_for(document, json.loads(found.data), steps)


def _steps(part: str) -> list[str]:
    return [part.removesuffix("[]"), *(["[]"] if part.endswith("[]") else [])]


def _same_but_for(before: Any, after: Any, steps: list[str]) -> bool:
    if not steps:
        return isinstance(after, str) and HASH.fullmatch(after) is not None
    step, rest = steps[0], steps[1:]
    if step == "[]" and isinstance(before, list):
        return len(before) == len(after) and all(
            _same_but_for(one, other, rest) for one, other in zip(before, after, strict=True)
        )
    if isinstance(before, dict) and step in before:
        others = all(before[name] == after[name] for name in before if name != step)
        return others and before.keys() == after.keys() and _same_but_for(before[step], after[step], rest)
    return bool(before == after)


def test_words_of_an_upstream_are_scrubbed() -> None:
    """Whatever the spelling, and also where the excerpt was cut in the middle of it."""
    body = Body(media_type=JSON, data=b'{"card": "4242 \\"42", "amount": 12}')
    secrets = secrets_of("/t/abcd?key=A%2FB%2FC", PathPattern.parse("/t/{token}"), (), body, veil("card"))
    assert secrets == Secrets(("abcd", "A%2FB%2FC", '4242 "42'))
    text = 'no card 4242 "42, "4242 \\"42", 4242+%2242 at A/B/C (A%2FB%2FC) for abcd; amount 12, key A/B/'
    assert scrubbed(text, secrets) == (
        'no card [redacted], "[redacted]", [redacted] at [redacted] ([redacted]) for [redacted]; amount 12, '
        "key [redacted]"
    )


SECRET = "p/1 &<é'😀!+\"z"
SPELLINGS = {
    "as it is": SECRET,
    "JSON": json.dumps(SECRET),
    "JSON with other letters": json.dumps(SECRET).replace("\\u00e9", "\\u00E9"),
    "JSON with escaped slashes": json.dumps(SECRET).replace("/", "\\/"),
    "JSON in JSON": json.dumps(json.dumps(SECRET)),
    "an address": quote(SECRET, safe=""),
    "an address in small letters": quote(SECRET, safe="").replace("%2F", "%2f"),
    "as a browser writes an address": quote(SECRET, safe="!'"),
    "a form": quote_plus(SECRET),
    "an address in JSON": json.dumps("/a?b=" + quote(SECRET, safe="/")),
    "HTML": html.escape(SECRET),
    "HTML in numbers": "".join(f"&#{ord(c)};" for c in SECRET),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_secret_is_found_however_an_upstream_spells_it(spelling: str) -> None:
    """Also where it was cut off, inside an escape or not."""
    told = SPELLINGS[spelling]
    hidden = scrubbed(f"no card {told}, amount 12", Secrets((SECRET,)))
    assert re.fullmatch(r'no card "?(\\")?(/a\?b=)?\[redacted\](\\")?"?, amount 12', hidden)
    for cut in range(len(told)):
        kept = scrubbed(f"no card {told[:cut]}", Secrets((SECRET,)))
        assert "&<" not in html.unescape(unquote(kept)), "more than its beginning is left"


def test_a_password_is_found_when_the_upstream_has_decoded_it() -> None:
    """`Basic` hides nothing."""
    headers = ((b"Authorization", b"Basic " + base64.b64encode(b"ann:hunter22")),)
    known = secrets_of("/", None, headers, Body(), veil())
    assert scrubbed("hunter22 is not the password of ann", known) == "[redacted] is not the password of ann"


def test_a_long_secret_is_looked_for_in_no_time() -> None:
    """In the event loop: everybody waits for it."""
    secrets = Secrets(("x" * 900_000, "y%2F" * 200_000))
    began = time.process_time()
    assert scrubbed("z" * 500 + "x" * 12, secrets) == "z" * 500 + "[redacted]"
    assert time.process_time() - began < 3


def test_of_a_body_that_could_not_be_read_any_word_may_be_secret() -> None:
    """So none is kept; without a word about the body only what is known is taken out."""
    body = Body(media_type="text/plain", data=b"the card is 4242")
    assert scrubbed("no card 4242", secrets_of("/", None, (), body, veil("card"))) == "[redacted]"
    headers = ((b"Cookie", b"sid=abcdef; theme=dark"), (b"Authorization", b"Bearer tok-1234"))
    known = secrets_of("/", None, headers, body, veil())
    assert scrubbed("abcdef and tok-1234, 4242", known) == "[redacted] and [redacted], 4242"


@pytest.mark.parametrize("name", ["api_key", "X-Amz-Signature", "access_token", "sig", "key", "password"])
def test_names_that_sound_secret(name: str) -> None:
    """The names that public APIs use in addresses."""
    assert sounds_secret(name)


@pytest.mark.parametrize("name", ["max_tokens", "idempotency_key", "keyword", "author", "page", "monkey"])
def test_names_that_do_not(name: str) -> None:
    """Nothing is hidden for a likeness."""
    assert not sounds_secret(name)
