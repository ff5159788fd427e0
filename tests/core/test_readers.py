"""Small readers: a trace's name, the parts of a multipart body, where members lie in a text of JSON."""

from __future__ import annotations

import pytest

from proxy.core.canonical import Body, read_body
from proxy.core.json_text import after_space, elements, members, one_value, read, read_if_json
from proxy.core.multipart import MAX_PARTS, split_multipart
from proxy.core.trace import trace_of

TRACE = b"4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = b"00-" + TRACE + b"-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("value", "known"),
    [
        (PARENT, True),
        (PARENT.replace(b"00-", b"cc-", 1) + b"-more", True),
        (PARENT + b"-more", False),
        (PARENT.replace(b"00-", b"ff-", 1), False),
        (PARENT.replace(TRACE, b"0" * 32), False),
        (PARENT.replace(b"00f067aa0ba902b7", b"0" * 16), False),
        (PARENT.upper(), False),
        (b" " + PARENT, False),
        (PARENT[:-1], False),
        (PARENT + b"1", False),
        (PARENT.replace(b"00-", b"cc-", 1) + b"1", False),
        (b"", False),
    ],
)
def test_a_trace_is_known_where_it_is_well_formed(value: bytes, known: bool) -> None:
    """As W3C has it; only a later version may say more, behind a dash."""
    for name in (b"traceparent", b"TraceParent"):
        assert trace_of(((b"Accept", b"a"), (name, value))) == (TRACE.decode() if known else "")


def test_of_several_traces_none_is_meant() -> None:
    """Nor is that of another header of the same length."""
    assert trace_of(((b"traceparent", PARENT), (b"Traceparent", PARENT))) == ""
    assert trace_of(((b"tracestates", PARENT),)) == ""
    assert trace_of(()) == ""


KIND = b'multipart/form-data; boundary="b 1"'


def parts(body: bytes, kind: bytes = KIND) -> object:
    return split_multipart(kind, body)


def test_parts_are_told_without_their_boundary() -> None:
    """Names of headers in lower case, contents to the byte, in order; the last line break may be missing."""
    body = b"--b 1\r\nX-A:  1 \r\nx-b:2\r\n\r\none\r\n\r\n\r\n--b 1\r\nX-C:3\r\n\r\n\r\n--b 1--\r\n"
    expected = [(["x-a:1", "x-b:2"], b"one\r\n\r\n"), (["x-c:3"], b"")]
    assert parts(body) == expected
    assert parts(body.removesuffix(b"\r\n")) == expected
    plain = body.replace(b"b 1", b"b1")
    for kind in (b"multipart/mixed;boundary=b1", b"multipart/mixed; BOUNDARY=b1; charset=x"):
        assert parts(plain, kind) == expected
    assert read_body(Body("multipart/form-data", KIND, body)) == read_body(
        Body("multipart/form-data", b"multipart/form-data; boundary=b1", plain)
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"before\r\n--b 1\r\nA:1\r\n\r\none\r\n--b 1--",
        b"--b 1\r\nA:1\r\n\r\none\r\n--b 1",
        b"--b 1\r\nA:1\r\n\r\none\r\n--b 1--after",
        b"--b 1\r\nA:1\r\n\r\none\r\n--b 1 not really\r\n--b 1--",
        b"--b 1\r\nno empty line\r\n--b 1--",
        b"--b 1x\r\nA:1\r\n\r\none\r\n--b 1--",
    ],
)
def test_what_is_unusual_has_no_parts(body: bytes) -> None:
    """Its digest stands for it."""
    assert parts(body) is None
    read = read_body(Body("multipart/form-data", KIND, body))
    assert read is None if not body else read is not None and read[0] == "digest"


def test_without_a_boundary_or_with_too_many_parts_there_are_none() -> None:
    """A boundary has seventy characters at most."""
    body = b"--b\r\nA:1\r\n\r\none\r\n--b--"
    assert parts(body, b"multipart/form-data") is None
    assert parts(body, b"multipart/form-data; boundary=") is None
    for size, has in ((70, True), (71, False)):
        name = b"b" * size
        assert (parts(body.replace(b"--b", b"--" + name), b'x; boundary="' + name + b'"') is not None) is has
    for count, has in ((MAX_PARTS, True), (MAX_PARTS + 1, False)):
        many = b"--b\r\nA:1\r\n\r\none\r\n" * count + b"--b--"
        assert (parts(many, b"x; boundary=b") is not None) is has
    assert MAX_PARTS == 1000


def test_members_and_elements_lie_where_they_are_said_to() -> None:
    """Spaces, escapes and nesting do not move them."""
    text = ' { "a" : [1, 2] , "b\\u0022":{"c":"}"},"d":null } '
    found = list(members(text, after_space(text, 0)))
    assert [(m.name, text[m.begin : m.end], m.value) for m in found] == [
        ("a", "[1, 2]", [1, 2]),
        ('b"', '{"c":"}"}', {"c": "}"}),
        ("d", "null", None),
    ]
    text = ' [ {"a": "]"} ,2,"x" ] '
    assert [text[m.begin : m.end] for m in elements(text, 1)] == ['{"a": "]"}', "2", '"x"']
    assert list(members("{ }", 0)) == list(elements("[ ]", 0)) == []


@pytest.mark.parametrize("text", ["", "1 2", "{} x", "[1", "nope"])
def test_what_is_not_one_value_is_refused(text: str) -> None:
    """Or None, where the reader asks for that."""
    with pytest.raises(ValueError):
        one_value(text)
    assert read_if_json(text.encode()) is None


def test_a_value_may_have_a_mark_before_it_and_numbers_of_any_length() -> None:
    """Long ones are rounded as other readers do, from 641 digits on."""
    assert read(b'\xef\xbb\xbf {"a": 1} ') == {"a": 1}
    assert read(b"9" * 640) == int("9" * 640)
    assert isinstance(read(b"9" * 640), int)
    assert read(b"1" + b"0" * 640) == float("inf")
    with pytest.raises(ValueError):
        read(b"\xff")
    assert read_if_json(b"[" * 100_000) is None
