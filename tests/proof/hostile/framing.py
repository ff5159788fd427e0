"""Requests whose end two readers could find in two places: lengths, codings, chunks, lines."""

from __future__ import annotations

from tests.proof.hostile.corpus import (
    CHUNKED,
    LAST,
    SMUGGLED,
    because,
    chunks,
    head,
    in_chunks,
    malformed,
    taken,
)

TE = b"Transfer-Encoding: "
OLD = b"POST /pay/x HTTP/1.0"
FRAMING = {
    **because(
        "With a length and a coding, one reader goes by the one and the next by the other.",
        {
            "length and chunked": malformed(head(b"Content-Length: 5", CHUNKED, body=LAST)),
            "chunked and length": malformed(head(CHUNKED, b"Content-Length: 5", body=LAST)),
            "CL.TE": malformed(
                head(b"Content-Length: %d" % (5 + len(SMUGGLED)), CHUNKED, body=LAST + SMUGGLED)
            ),
            "TE.CL": malformed(head(b"Content-Length: 4", CHUNKED, body=chunks(SMUGGLED))),
            "CL.0": malformed(head(b"Content-Length: 0", CHUNKED, body=chunks(SMUGGLED))),
            "length and chunked in HTTP/1.0": malformed(
                head(CHUNKED, b"Content-Length: 3", body=LAST, first=OLD)
            ),
            "a length in the trailer": malformed(
                head(CHUNKED, body=b"2\r\nab\r\n0\r\nContent-Length: 60\r\n\r\n")
            ),
            "a coding in the trailer": malformed(
                head(CHUNKED, body=b"2\r\nac\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n")
            ),
            "a host in the trailer": taken(
                head(CHUNKED, body=b"2\r\nad\r\n0\r\nHost: evil\r\n\r\n"),
                b"POST /x|ad",
                closes=True,
                instead=400,
            ),
            "a header of semel's in the trailer": taken(
                head(CHUNKED, body=b"2\r\nbf\r\n0\r\nSemel-Run: evil\r\n\r\n"), b"POST /x|bf", closes=True
            ),
            "a key in the trailer": taken(
                head(CHUNKED, body=b"2\r\nbg\r\n0\r\nIdempotency-Key: evil\r\n\r\n"),
                b"POST /x|bg",
                closes=True,
            ),
        },
    ),
    **because(
        "A length is one row of digits. Whoever reads another one out of it ends elsewhere.",
        {
            "two lengths": malformed(head(b"Content-Length: 2", b"Content-Length: 3", body=b"abc")),
            "two equal lengths": malformed(head(b"Content-Length: 2", b"Content-Length: 2", body=b"ab")),
            "lengths far apart": malformed(
                head(b"Content-Length: 0", b"X: y", b"CONTENT-LENGTH: 63", body=SMUGGLED)
            ),
            "a list of lengths": malformed(head(b"Content-Length: 2, 2", body=b"ab")),
            "a list of other lengths": malformed(head(b"Content-Length: 0, 2", body=b"ab")),
            "negative length": malformed(head(b"Content-Length: -1", body=b"ab")),
            "signed length": malformed(head(b"Content-Length: +2", body=b"ab")),
            "hex length": malformed(head(b"Content-Length: 0x2", body=b"ab")),
            "length with a point": malformed(head(b"Content-Length: 2.0", body=b"ab")),
            "length with an exponent": malformed(head(b"Content-Length: 2e0", body=b"ab")),
            "length in quotes": malformed(head(b'Content-Length: "2"', body=b"ab")),
            "length with a semicolon": malformed(head(b"Content-Length: 2;a=b", body=b"ab")),
            "length with a space in it": malformed(head(b"Content-Length: 1 2", body=b"ab")),
            "length with a vertical tab": malformed(head(b"Content-Length: \x0b2", body=b"ab")),
            "length that is no number": malformed(head(b"Content-Length: many", body=b"ab")),
            "length of 40 digits": malformed(head(b"Content-Length: " + b"9" * 40)),
            "length of 2 to the 64": malformed(head(b"Content-Length: 18446744073709551616")),
            "empty length": malformed(head(b"Content-Length:", body=b"ab")),
            "underscored length": malformed(head(b"Content-Length: 1_0", body=b"0123456789")),
            "length in Arabic digits": malformed(head("Content-Length: ٢".encode(), body=b"ab")),
            "length over the limit": malformed(head(b"Content-Length: 9999999999"), 413),
            "length of two to the 63, less one": malformed(head(b"Content-Length: 9223372036854775807"), 413),
            "underscore in the name": taken(head(b"Content_Length: 5"), b"POST /x|"),
            "length with noughts before it": taken(head(b"Content-Length: 0002", body=b"ae"), b"POST /x|ae"),
            "length with blanks around": taken(head(b"Content-Length: \t 2 \t", body=b"af"), b"POST /x|af"),
        },
    ),
    **because(
        "Some readers see chunked in it, and some do not (TE.TE).",
        {
            "unknown transfer coding": malformed(head(TE + b"cow", body=LAST)),
            "gzip then nothing": malformed(head(TE + b"gzip", body=LAST)),
            "identity": malformed(head(TE + b"identity", body=LAST)),
            "chunked is not last": malformed(head(TE + b"chunked, identity", body=LAST)),
            "chunked in two headers": malformed(head(CHUNKED, CHUNKED, body=LAST)),
            "chunked and cow in two headers": malformed(head(CHUNKED, TE + b"cow", body=LAST)),
            "cow and chunked in two headers": malformed(head(TE + b"cow", CHUNKED, body=LAST)),
            "gzip and chunked": malformed(head(TE + b"gzip, chunked", body=LAST)),
            "chunked twice": malformed(head(TE + b"chunked, chunked", body=LAST)),
            "xchunked": malformed(head(TE + b"xchunked", body=LAST)),
            "chunkedx": malformed(head(TE + b"chunkedx", body=LAST)),
            "chunked with a parameter": malformed(head(TE + b"chunked;q=1", body=LAST)),
            "chunked in quotes": malformed(head(TE + b'"chunked"', body=LAST)),
            "chunked with a comma behind it": malformed(head(TE + b"chunked,", body=LAST)),
            "chunked with a comma before it": malformed(head(TE + b",chunked", body=LAST)),
            "vertical tab before chunked": malformed(head(TE + b"\x0bchunked", body=LAST)),
            "form feed behind chunked": malformed(head(TE + b"chunked\x0c", body=LAST)),
            "NUL behind chunked": malformed(head(TE + b"chunked\x00", body=LAST)),
            "high byte before chunked": malformed(head(TE + b"\xa0chunked", body=LAST)),
            "empty coding": malformed(head(TE, body=LAST)),
            "folded chunked": malformed(head(b"Transfer-Encoding:\r\n chunked", body=LAST)),
            "chunked behind another line": malformed(head(b"X: y\nTransfer-Encoding: chunked", body=LAST)),
            "space before the colon of chunked": malformed(head(b"Transfer-Encoding : chunked", body=LAST)),
            "tab before the colon of chunked": malformed(head(b"Transfer-Encoding\t: chunked", body=LAST)),
            "chunked for HTTP/1.0": malformed(head(CHUNKED, body=LAST, first=OLD)),
            "chunked for HTTP/1.0 that stays": malformed(
                head(CHUNKED, b"Connection: keep-alive", body=LAST, first=OLD)
            ),
            "space before the colon of length": malformed(head(b"Content-Length : 2", body=b"ab")),
            "underscore in its name": taken(
                head(b"Transfer_Encoding: chunked", b"Content-Length: 0"), b"POST /x|"
            ),
            "chunked in capitals": in_chunks(head(TE + b"CHUNKED", body=chunks(b"ag")), b"POST /x|ag"),
            "chunked with a tab": in_chunks(
                head(b"Transfer-Encoding:\tchunked", body=chunks(b"ah")), b"POST /x|ah"
            ),
        },
    ),
    **because(
        "Where a chunk ends is where the next request may begin.",
        {
            "chunk size is no number": malformed(head(CHUNKED, body=b"zz\r\nab\r\n0\r\n\r\n")),
            "negative chunk size": malformed(head(CHUNKED, body=b"-1\r\nab\r\n0\r\n\r\n")),
            "signed chunk size": malformed(head(CHUNKED, body=b"+2\r\nab\r\n0\r\n\r\n")),
            "0x chunk size": malformed(head(CHUNKED, body=b"0x2\r\nab\r\n0\r\n\r\n")),
            "underscored chunk size": malformed(head(CHUNKED, body=b"0_2\r\nab\r\n0\r\n\r\n")),
            "chunk size of 20 digits": malformed(head(CHUNKED, body=b"f" * 20 + b"\r\nab\r\n0\r\n\r\n")),
            "chunk size over 64 bits": malformed(head(CHUNKED, body=b"10000000000000002\r\nab\r\n0\r\n\r\n")),
            "chunk size in full-width digits": malformed(
                head(CHUNKED, body="\uff12\r\nab\r\n0\r\n\r\n".encode())
            ),
            "chunk longer than its size": malformed(head(CHUNKED, body=b"2\r\nabcdef\r\n0\r\n\r\n")),
            "chunk shorter than its size": malformed(head(CHUNKED, body=b"4\r\nab\r\n0\r\n\r\n")),
            "chunk ends in bare LF": malformed(head(CHUNKED, body=b"2\nab\n0\n\n")),
            "chunk data ends in bare LF": malformed(head(CHUNKED, body=b"2\r\nab\n0\r\n\r\n")),
            "chunk data ends in bare CR": malformed(head(CHUNKED, body=b"2\r\nab\r0\r\n\r\n")),
            "chunk data ends in two other bytes": malformed(head(CHUNKED, body=b"2\r\nabXX0\r\n\r\n")),
            "chunk size ends in bare CR": malformed(head(CHUNKED, body=b"2\rab\r\n0\r\n\r\n")),
            "empty chunk size": malformed(head(CHUNKED, body=b"\r\nab\r\n0\r\n\r\n")),
            "space after the chunk size": malformed(head(CHUNKED, body=b"2 \r\nab\r\n0\r\n\r\n")),
            "space before the chunk size": malformed(head(CHUNKED, body=b" 2\r\nab\r\n0\r\n\r\n")),
            "chunk extension with a bare LF": malformed(head(CHUNKED, body=b"2;a=b\nab\r\n0\r\n\r\n")),
            "chunk extension with a bare CR": malformed(head(CHUNKED, body=b"2;a=\rb\r\nab\r\n0\r\n\r\n")),
            "last chunk with a bare LF": malformed(head(CHUNKED, body=b"2\r\nab\r\n0\n\r\n")),
            "trailer ends in bare LF": malformed(head(CHUNKED, body=b"2\r\nab\r\n0\r\n\n")),
            "trailer without a colon": malformed(head(CHUNKED, body=b"2\r\nab\r\n0\r\nnonsense\r\n\r\n")),
            "a folded trailer": malformed(head(CHUNKED, body=b"2\r\nab\r\n0\r\nA: b\r\n c\r\n\r\n")),
            "a chunk extension": in_chunks(head(CHUNKED, body=b"2;a=b\r\nai\r\n0;c\r\n\r\n"), b"POST /x|ai"),
            "chunk size in capitals": in_chunks(
                head(CHUNKED, body=b"A\r\n0123456789\r\n00\r\n\r\n"), b"POST /x|0123456789"
            ),
            "chunk size with noughts": in_chunks(
                head(CHUNKED, body=b"0002\r\naj\r\n0000\r\n\r\n"), b"POST /x|aj"
            ),
        },
    ),
    **because(
        "A line that one reader takes for two, for none, or for a part of the one before.",
        {
            "folded line": malformed(head(b"X-A: 1\r\n 2", b"Content-Length: 0")),
            "folded line with a tab": malformed(head(b"X-A: 1\r\n\t2", b"Content-Length: 0")),
            "folded length": malformed(head(b"Content-Length: 0\r\n 2", body=b"ab")),
            "NUL in a value": malformed(head(b"X-A: a\x00b", b"Content-Length: 0")),
            "NUL in a name": malformed(head(b"X\x00A: a", b"Content-Length: 0")),
            "bare CR in a value": malformed(head(b"X-A: a\rb", b"Content-Length: 0")),
            "bare LF ends a line": malformed(b"POST /pay/x HTTP/1.1\nHost: semel\nContent-Length: 0\n\n"),
            "bare LF within the lines": malformed(head(b"X-A: 1\nX-B: 2", b"Content-Length: 0")),
            "bare CR ends a line": malformed(head(b"X-A: 1\rX-B: 2", b"Content-Length: 0")),
            "bare CR ends the head": malformed(b"POST /pay/x HTTP/1.1\r\nHost: semel\r\n\rX: y\r\n\r\n"),
            "bare LF ends the head": malformed(
                b"POST /pay/x HTTP/1.1\r\nHost: semel\r\nContent-Length: 0\r\n\n"
            ),
            "two CR before the LF": malformed(
                b"POST /pay/x HTTP/1.1\r\r\nHost: semel\r\nContent-Length: 0\r\n\r\n"
            ),
            "space before the colon": malformed(head(b"X-A : 1", b"Content-Length: 0")),
            "space before the name": malformed(
                b"POST /pay/x HTTP/1.1\r\n Host: semel\r\nContent-Length: 0\r\n\r\n"
            ),
            "space in the name": malformed(head(b"X A: 1", b"Content-Length: 0")),
            "no colon": malformed(head(b"nonsense", b"Content-Length: 0")),
            "no name": malformed(head(b": value", b"Content-Length: 0")),
            "name with a slash": malformed(head(b"X/A: 1", b"Content-Length: 0")),
            "name beyond ASCII": malformed(head(b"X-\xc3\xa9: 1", b"Content-Length: 0")),
            "control byte in a value": malformed(head(b"X-A: a\x01b", b"Content-Length: 0")),
            "DEL in a value": malformed(head(b"X-A: a\x7fb", b"Content-Length: 0")),
            "empty lines before it": taken(
                b"\r\n\r\n" + head(b"Content-Length: 2", body=b"ak"), b"POST /x|ak"
            ),
            "bare LF before it": taken(b"\n" + head(b"Content-Length: 2", body=b"al"), b"POST /x|al"),
            "bytes above ASCII in a value": taken(
                head(b"X-A: \xff\xfe", b"Content-Length: 2", body=b"am"), b"POST /x|am"
            ),
        },
    ),
    **because(
        "A request inside of a body is a body.",
        {
            "a request as a body": taken(
                head(b"Content-Length: %d" % len(SMUGGLED), body=SMUGGLED), b"POST /x|" + SMUGGLED
            ),
            "a request as a chunk": in_chunks(
                head(b"Semel-Occurrence: 2", CHUNKED, body=chunks(SMUGGLED)), b"POST /x|" + SMUGGLED
            ),
            "a request cut over chunks": in_chunks(
                head(b"Semel-Occurrence: 3", CHUNKED, body=chunks(SMUGGLED[:20], SMUGGLED[20:])),
                b"POST /x|" + SMUGGLED,
            ),
            "two requests in a row": in_chunks(
                head(b"Content-Length: 2", body=b"an") + head(CHUNKED, body=chunks(b"ao")),
                b"POST /x|an",
                b"POST /x|ao",
            ),
            "a GET with a body": taken(
                head(b"Content-Length: 2", body=b"ap", first=b"GET /pay/x HTTP/1.1"), b"GET /x|ap"
            ),
            "a request, and noise behind it": malformed(
                head(b"Content-Length: 2", body=b"aq") + b"\x01 / x\r\n\r\n"
            )._replace(answers=(200, 400), sent=(b"POST /x|aq",), instead=400),
            "a request, and a NUL behind it": malformed(
                head(b"Content-Length: 2", body=b"bh") + b"\x00"
            )._replace(answers=(200, 400), sent=(b"POST /x|bh",), instead=400),
        },
    ),
}
