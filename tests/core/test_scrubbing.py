"""What is taken out of an upstream's words: every value that was hidden, wherever it stood in the request."""

from __future__ import annotations

import base64
import string

import pytest

from proxy.core.canonical import Body
from proxy.core.clauses import Redact
from proxy.core.patterns import PathPattern
from proxy.core.policy import Rule
from proxy.core.redaction import hidden_arguments, record_veil, veil_of
from proxy.core.scrubbing import HIDDEN, Secrets, scrubbed, secrets_of

KEY = b"k" * 32
JSON, FORM = "application/json", "application/x-www-form-urlencoded"


def of_body(data: bytes, *names: str, media_type: str = JSON) -> set[str]:
    found = secrets_of("/a", None, (), Body(media_type=media_type, data=data), veil_of(KEY, "acme", names))
    assert not found.anything
    return set(found.values)


@pytest.mark.parametrize(
    ("data", "name", "found"),
    [
        (b'{"a": {"pin": "1234", "x": "0000"}, "pin": "5678"}', "body.a.pin", {"1234"}),
        (b'{"pin": {"one": "1234", "two": ["5678", {"x": "9012"}]}}', "body.pin", {"1234", "5678", "9012"}),
        (b'{"pins": ["1234", "5678"]}', "body.pins[]", {"1234", "5678"}),
        (b'{"pins": [{"pin": "1234", "x": "0000"}, {"pin": "5678"}, {}]}', "pins[].pin", {"1234", "5678"}),
        (b'{"pins": [[{"pin": "1234", "x": "0000"}]]}', "body.pins[].pin", {"1234"}),
        (b'{"pin": "1234", "x": "0000"}', "body.pin.number", {"1234"}),
        (b'{"pin": 1234, "x": 5}', "body.pin", {"1234"}),
        (b'{"pin": 12.5}', "body.pin", {"12.5"}),
        (b'{"pin": true}', "body.pin", set()),
        (b'{"pin": null}', "body.pin", set()),
        (b'{"x": 1}', "body.pin", set()),
    ],
)
def test_values_of_a_body_are_found_at_any_depth(data: bytes, name: str, found: set[str]) -> None:
    """Texts and numbers; what has no text of its own is no secret, nor is what the rule does not name. A text
    where the rule expects more than one is the nearest to what it means."""
    assert of_body(data, name) == found


def test_values_of_a_form_are_found_by_name() -> None:
    """Those that the rule lists, and no others; a name in the query or path means no field."""
    data = b"pin=1234&x=5678&pin%5B%5D=9012&pin=MzQ1Ng=="
    assert of_body(data, "body.pin", media_type=FORM) == {"1234", "9012", "MzQ1Ng=="}
    assert of_body(data, "query.pin", "path.pin", media_type=FORM) == set()


def test_values_of_an_address_and_of_headers_are_found() -> None:
    """By the segment's name, by the query's; of a header the whole and its parts."""
    veil = veil_of(KEY, "acme", ("path.pin", "query.code"))
    found = secrets_of(
        "/a/1234/b?code=5678&x=9012", PathPattern.parse("/a/{pin}/{x}"), ((b"Cookie", b"sid=abcd; t=efgh"),),
        Body(), veil,
    )  # fmt: skip
    assert {"1234", "5678", "abcd", "efgh", "sid=abcd; t=efgh"} <= set(found.values)
    assert not {"b", "9012"} & set(found.values)


@pytest.mark.parametrize(
    ("target", "name", "found"),
    [
        ("/a/1234/b", "path.place", ("1234",)),
        ("/a/b/c?page=1234&x=5678", "query.page", ("1234",)),
        ("/a/b/c?page=12?34", "query.page", ("12?34",)),
        ("/a/b/c?page=&x=5678", "query.page", ()),
    ],
)
def test_an_address_may_lack_its_query_and_a_query_may_hold_a_question_mark(
    target: str, name: str, found: tuple[str, ...]
) -> None:
    """The first question mark divides them; nothing is no secret."""
    pattern = PathPattern.parse("/a/{place}/{x}")
    assert secrets_of(target, pattern, (), Body(), veil_of(KEY, "acme", (name,))) == Secrets(found)


def of_header(value: bytes) -> set[str]:
    return set(secrets_of("/a", None, ((b"X-One", value),), Body(), veil_of(KEY, "acme")).values)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"https://a.example/v=1/hook?token=abcd&x=efgh", {"abcd", "efgh"}),
        (b"https://a.example/hook?token=ab?cdef", {"ab?cdef"}),
        (b"sid=YWJjZA==; theme=dark", {"YWJjZA==", "dark"}),
        (b"Basic " + base64.b64encode(b"ann:hun:ter22"), {"ann:hun:ter22", "hun:ter22"}),
        (b"basic  " + base64.b64encode(b"ann:pw"), {"ann:pw", "pw"}),
        (b"Basic " + base64.b64encode(b"ann:\xe9t\xe9-1234"), {"\ufffdt\ufffd-1234"}),
        (b"Basic abc", {"Basic abc", "abc"}),
    ],
)
def test_a_header_is_taken_apart_as_its_reader_would(value: bytes, found: set[str]) -> None:
    """The query of an address, the pairs of a cookie, name and password: an upstream that reads them may
    repeat any of them. What cannot be read raises nothing."""
    assert found <= of_header(value)


def test_only_basic_is_base64() -> None:
    """What another token would decode to is nobody's secret, and stays in the words of the upstream."""
    assert "words" not in str(of_header(b"Bearer " + base64.b64encode(b"any:words")))


def test_what_may_be_anything_hides_everything() -> None:
    """A body that cannot be read, of a rule that hides some of it. Nothing stays nothing."""
    body = Body(media_type=JSON, data=b'{"pin": 1, "pin": 2}')
    found = secrets_of("/a", None, (), body, veil_of(KEY, "acme", ("body.pin",)))
    assert found.anything
    assert scrubbed("any word", found) == HIDDEN
    assert scrubbed("", found) == ""
    assert secrets_of("/a", None, (), Body(), veil_of(KEY, "acme", ("body.pin",))) == Secrets()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("it is abcd, abcd!", f"it is {HIDDEN}, {HIDDEN}!"),
        (r"a line\nabcd\tand more", rf"a line\n{HIDDEN}\tand more"),
        ("it ends with ab", "it ends with ab"),
        ("abc is part of any text", "abc is part of any text"),
        ("it is abcdefgh", f"it is {HIDDEN}"),
        ("", ""),
        ("nothing", "nothing"),
    ],
)
def test_only_the_value_goes(text: str, left: str) -> None:
    """Twice, beside escapes, one inside another; what is shorter than four characters is part of any text."""
    assert scrubbed(text, Secrets(("abcd", "abcdefgh", "abc"))) == left


def test_control_characters_are_found_as_json_writes_them() -> None:
    r"""A secret of two lines, repeated with \n; with the five letters that JSON has for such."""
    secret = "ab\n\r\t\b\fcd"
    assert scrubbed(r'{"you said": "ab\n\r\t\b\fcd"}', Secrets((secret,))) == f'{{"you said": "{HIDDEN}"}}'


def test_the_beginning_of_a_value_that_was_cut_off_goes_too() -> None:
    """From four characters on; also where the cut went through an escape."""
    secrets = Secrets(("secret/value",))
    assert scrubbed("you said secr", secrets) == f"you said {HIDDEN}"
    assert scrubbed("you said sec", secrets) == "you said sec"
    assert scrubbed("you said secret%2", secrets) == f"you said {HIDDEN}"
    assert scrubbed("you said secret\\u00", secrets) == f"you said {HIDDEN}"


@pytest.mark.parametrize(
    ("value", "text", "left"),
    [
        ("secret/value", "a=secret/value&", f"a={HIDDEN}&"),
        ("secret/value", "100 secret/value%", f"100 {HIDDEN}%"),
        ("p&q1234567", "you said p&q123", f"you said {HIDDEN}"),
        ("a%20b", "you said a%20b", f"you said {HIDDEN}"),
        ("new word", r"C:\new+word", rf"C:\{HIDDEN}"),
        ("pin1\U00010000xyz", r"you said pin1\ud800", f"you said {HIDDEN}"),
        ("secret", r"you said secr\ud800et, secr\udfffet", f"you said {HIDDEN}, {HIDDEN}"),
        ("secret", "half \ud83d a sign, secret", f"half \ud83d a sign, {HIDDEN}"),
    ],
)
def test_what_looks_like_an_escape_hides_no_value(value: str, text: str, left: str) -> None:
    """Whole with something behind it, an ampersand of its own, a backslash before it; half of a character
    says nothing, and raises nothing."""
    assert scrubbed(text, Secrets((value,))) == left


def test_a_backslash_before_other_letters_is_one() -> None:
    """Only what JSON escapes is undone: without its backslash it would be another word."""
    for letter in set(string.ascii_letters) - set("bfnrtu"):
        secrets = Secrets((rf"pass\{letter}word",))
        assert scrubbed(rf"no pass\{letter}word", secrets) == f"no {HIDDEN}"
        assert scrubbed(f"no pass{letter}word", secrets) == f"no pass{letter}word"


def test_hidden_arguments_are_a_list_that_names_the_digest() -> None:
    """Canonical JSON of a shape that arguments do not have; equal ones alike, of two tenants not."""
    one = hidden_arguments(b'["a"]', veil_of(KEY, "acme"))
    assert one.startswith(b'["digest","')
    assert one.endswith(b'"]')
    assert one == hidden_arguments(b'["a"]', veil_of(KEY, "acme"))
    assert one != hidden_arguments(b'["b"]', veil_of(KEY, "acme"))
    assert one != hidden_arguments(b'["a"]', veil_of(KEY, "other"))


def test_the_record_hides_what_the_rule_hides_now_beside_what_it_hid_then() -> None:
    """Once each, in order."""
    rule = Rule(
        name="r",
        redact=Redact(args=("a", "b"), headers=("x",)),
        redacts_now=Redact(args=("b", "c"), headers=("x", "y")),
    )
    veil = record_veil(rule, "acme", KEY)
    assert (veil.args, veil.headers) == (("a", "b", "c"), ("x", "y"))
    assert veil.key == veil_of(KEY, "acme").key
