"""Request lines, targets and hosts that lead elsewhere than they say."""

from __future__ import annotations

from tests.proof.hostile.corpus import (
    ORIGIN,
    SEMEL,
    because,
    declined,
    head,
    line,
    malformed,
    taken,
    turned_away,
)

TLS_HELLO = b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + bytes(range(64)) + b"\r\n\r\n"


def to(target: bytes, method: bytes = b"POST") -> bytes:
    return line(b"%b %b HTTP/1.1" % (method, target))


TARGETS = {
    **because(
        "A request line is a method, a target and a version of HTTP that semel speaks.",
        {
            "unknown method": malformed(line(b"BREW /pay/x HTTP/1.1")),
            "lower-case method": malformed(line(b"post /pay/x HTTP/1.1")),
            "mixed-case method": malformed(line(b"Post /pay/x HTTP/1.1")),
            "method with a bad byte": malformed(line(b"PO(ST /pay/x HTTP/1.1")),
            "very long method": malformed(line(b"A" * 10_000 + b" /pay/x HTTP/1.1")),
            "no method": malformed(line(b" /pay/x HTTP/1.1")),
            "no target": malformed(line(b"POST  HTTP/1.1")),
            "HTTP/0.9": malformed(b"GET /pay/x\r\n\r\n"),
            "HTTP/0.9 by its number": malformed(line(b"POST /pay/x HTTP/0.9")),
            "HTTP/1.2.3": malformed(line(b"POST /pay/x HTTP/1.2.3")),
            "HTTP/1.": malformed(line(b"POST /pay/x HTTP/1.")),
            "HTTP/01.1": malformed(line(b"POST /pay/x HTTP/01.1")),
            "HTTP/2.0": malformed(line(b"POST /pay/x HTTP/2.0")),
            "HTTP/9.9": malformed(line(b"POST /pay/x HTTP/9.9")),
            "http in lower case": malformed(line(b"POST /pay/x http/1.1")),
            "another protocol": malformed(line(b"POST /pay/x HTCPCP/1.0")),
            "words after the version": malformed(line(b"POST /pay/x HTTP/1.1 now")),
            "space after the version": malformed(line(b"POST /pay/x HTTP/1.1 ")),
            "two spaces between the words": taken(line(b"POST  /pay/x HTTP/1.1"), b"POST /x|"),
            "two spaces before the version": taken(line(b"POST /pay/x  HTTP/1.1"), b"POST /x|"),
            "tab between the words": malformed(line(b"POST\t/pay/x\tHTTP/1.1")),
            "a second line in the target": malformed(line(b"POST /pay/x\nHost: evil HTTP/1.1")),
            "HTTP/2 preface": malformed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
            "TLS on the plain port": malformed(TLS_HELLO)._replace(anywhere=False),
            "an SSH client": malformed(b"SSH-2.0-OpenSSH_9.0\r\n\r\n"),
            "an SMTP client": malformed(b"EHLO evil.example\r\nMAIL FROM:<a@b>\r\n\r\n"),
            "a Redis client": malformed(b"*1\r\n$4\r\nPING\r\n\r\n"),
            "binary noise": malformed(bytes(range(256)) * 4 + b"\r\n\r\n"),
        },
    ),
    **because(
        "A rule is matched against the path as it came: nothing may make another path of it.",
        {
            "target without a slash": malformed(to(b"pay/x")),
            "target with a fragment": declined(to(b"/pay/x#part"), 400, anywhere=True),
            "target beyond ASCII": malformed(to(b"/pay/\xc3\xa9")),
            "target with a control byte": malformed(to(b"/pay/\x01")),
            "target with a NUL": malformed(to(b"/pay/\x00")),
            "dot segment": declined(to(b"/pay/a/../b"), 400, anywhere=True),
            "single dot": declined(to(b"/pay/./b"), 400, anywhere=True),
            "dots at the end": declined(to(b"/pay/.."), 400, anywhere=True),
            "dots before the upstream": declined(to(b"/x/../pay/b"), 400, anywhere=True),
            "escaped dots": declined(to(b"/pay/%2e%2E/b"), 400, anywhere=True),
            "half escaped dots": declined(to(b"/pay/.%2e/b"), 400, anywhere=True),
            "dots between escaped slashes": declined(to(b"/pay/a%2f..%2Fb"), 400, anywhere=True),
            "escaped dots between escaped slashes": declined(to(b"/pay/a%2F%2e%2e%2fb"), 400, anywhere=True),
            "dots behind an escaped slash at the end": declined(to(b"/pay/a%2f.."), 400, anywhere=True),
            "dots between backslashes": declined(to(b"/pay/a\\..\\b"), 400, anywhere=True),
            "dots between escaped backslashes": declined(to(b"/pay/a%5c..%5Cb"), 400, anywhere=True),
            "dots before a parameter": declined(to(b"/pay/..;/x"), 400, anywhere=True),
            "dots before a named parameter": declined(to(b"/pay/a/.;v=1/x"), 400, anywhere=True),
            "dots before an escaped semicolon": declined(to(b"/pay/a/..%3b/x"), 400, anywhere=True),
            "line ends in percent signs": taken(
                to(b"/pay/x%0d%0aHost:%20evil%0d%0a"), b"POST /x%0d%0aHost:%20evil%0d%0a|"
            ),
            "a request in percent signs": taken(
                to(b"/pay/x%20HTTP/1.1%0d%0a%0d%0aPOST%20/smuggling"),
                b"POST /x%20HTTP/1.1%0d%0a%0d%0aPOST%20/smuggling|",
            ),
            "a line end in the query": taken(to(b"/pay/x?a=%0d%0ab"), b"POST /x?a=%0d%0ab|"),
            "a NUL in percent signs": taken(to(b"/pay/x%00"), b"POST /x%00|"),
            "an escaped slash": taken(to(b"/pay/a%2fb"), b"POST /a%2fb|"),
            "two slashes": taken(to(b"/pay//evil.example/x"), b"POST //evil.example/x|"),
            "three dots": taken(to(b"/pay/.../b"), b"POST /.../b|"),
            "half an escape": taken(to(b"/pay/x%4"), b"POST /x%4|"),
            "dots in the query": taken(to(b"/pay/x?y=/../z"), b"POST /x?y=/../z|"),
            "a long target": taken(to(b"/pay/" + b"p" * 30_000), b"POST /" + b"p" * 30_000 + b"|"),
            "a target over the limit": malformed(to(b"/pay/" + b"p" * 70_000), 431),
        },
    ),
    **because(
        "The first segment names the upstream, exactly, or a run before it.",
        {
            "unknown upstream": declined(to(b"/nobody/x"), 404),
            "upstream with capitals": declined(to(b"/Pay/x"), 404),
            "escaped upstream": declined(to(b"/%70ay/x"), 404),
            "no upstream": declined(to(b"/"), 404),
            "double slash first": declined(to(b"//pay/x"), 404),
            "a run without a name": declined(to(b"/@/pay/x"), 400),
            "a run with a space": declined(to(b"/@a%20b/pay/x"), 400),
            "a run with a line end": declined(to(b"/@a%0d%0ab/pay/x"), 400),
            "a run of dots": declined(to(b"/@../pay/x"), 400),
            "a run with a slash": declined(to(b"/@a%2fb/pay/x"), 400),
            "a run of a thousand letters": declined(to(b"/@" + b"r" * 1000 + b"/pay/x"), 400),
            "an attempt without a name": declined(to(b"/@run+/pay/x"), 400),
            "two attempts": declined(to(b"/@run+a+b/pay/x"), 400),
            "a run in a run": declined(to(b"/@run+a/@run+b/pay/x"), 404),
            "own page in a run": declined(to(b"/@run+a/metrics"), 404),
            "own page with POST": declined(to(b"/metrics"), 400),
            "no such own page": declined(b"GET /_semel/nothing HTTP/1.1\r\nHost: semel\r\n\r\n", 404),
            "denied by a rule": declined(to(b"/pay/never"), 403),
        },
    ),
    **because(
        "The absolute form goes to the host that it names, if a policy knows it, and to no other.",
        {
            "an unknown host": declined(to(b"http://api.example/v1"), 403),
            "the cloud's own data": declined(to(b"http://169.254.169.254/latest/meta-data/"), 403),
            "the cloud's own data in IPv6": declined(to(b"http://[fd00:ec2::254]/latest/"), 403),
            "the cloud's own data, mapped": declined(to(b"http://[::ffff:169.254.169.254]/latest/"), 403),
            "another port of loopback": declined(to(b"http://127.0.0.1:1/x"), 403),
            "loopback in short": declined(to(b"http://127.1/x"), 400),
            "loopback as a number": declined(to(b"http://2130706433/x"), 400),
            "loopback in hex": declined(to(b"http://0x7f000001/x"), 400),
            "loopback in octal": declined(to(b"http://0177.0.0.1/x"), 400),
            "IPv6 without its end": malformed(to(b"http://[::1/x"))._replace(anywhere=False),
            "IPv6 with a zone": declined(to(b"http://[fe80::1%25eth0]/x"), 400),
            "another scheme": declined(to(b"ftp://" + ORIGIN + b"/x"), 400),
            "a scheme of files": malformed(to(b"file:///etc/passwd"))._replace(anywhere=False),
            "a user": declined(to(b"http://me:secret@" + ORIGIN + b"/x"), 400),
            "a user that looks like the host": declined(to(b"http://" + ORIGIN + b"@evil.example/x"), 400),
            "a backslash before the user": malformed(to(b"http://" + ORIGIN + b"\\@evil.example/x"))._replace(
                anywhere=False
            ),
            "no host": malformed(to(b"http:///x"))._replace(anywhere=False),
            "no host, a port": malformed(to(b"http://:80/x"))._replace(anywhere=False),
            "port 0": declined(to(b"http://127.0.0.1:0/x"), 400),
            "port 65536": malformed(to(b"http://127.0.0.1:65536/x"))._replace(anywhere=False),
            "a port of words": malformed(to(b"http://127.0.0.1:http/x"))._replace(anywhere=False),
            "a signed port": declined(to(b"http://127.0.0.1:+80/x"), 400),
            "a dot segment in absolute form": declined(to(b"http://" + ORIGIN + b"/a/../x"), 400),
            "an escaped one": declined(to(b"http://" + ORIGIN + b"/a/%2e%2e/x"), 400),
            "a fragment in absolute form": declined(to(b"http://" + ORIGIN + b"/x#y"), 400),
            "a line end in the host": declined(to(b"http://a%0d%0ab/x"), 400),
            "semel by its own name": taken(
                to(b"http://" + SEMEL + b"/pay/own"), b"POST /own|", anywhere=False
            ),
            "semel by its own name, twice": declined(
                to(b"http://" + SEMEL + b"/http://" + SEMEL + b"/pay/x"), 404
            ),
            "another host in the header": taken(
                head(
                    b"Content-Length: 2", body=b"ar", first=b"POST http://" + ORIGIN + b"/abs HTTP/1.1"
                ).replace(b"Host: semel", b"Host: evil.example"),
                b"POST /abs|ar",
                anywhere=False,
            ),
        },
    ),
    **because(
        "What is no request to one place: a method without a path, a tunnel, an echo.",
        {
            "asterisk": declined(line(b"OPTIONS * HTTP/1.1"), 400, anywhere=True),
            "asterisk with POST": malformed(line(b"POST * HTTP/1.1"))._replace(anywhere=False),
            "TRACE": taken(b"TRACE /pay/x HTTP/1.1\r\nHost: semel\r\nCookie: secret\r\n\r\n", b"TRACE /x|"),
            "CONNECT to a stranger": turned_away(
                b"CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n\r\n", 403
            ),
            "CONNECT without a port": turned_away(
                b"CONNECT api.example HTTP/1.1\r\nHost: api.example\r\n\r\n", 400
            ),
            "CONNECT to port 0": turned_away(
                b"CONNECT a.example:0 HTTP/1.1\r\nHost: a.example:0\r\n\r\n", 400
            ),
            "CONNECT to a path": turned_away(b"CONNECT /pay/x HTTP/1.1\r\nHost: semel\r\n\r\n", 400),
            "CONNECT with a user": turned_away(
                b"CONNECT a@" + ORIGIN + b" HTTP/1.1\r\nHost: semel\r\n\r\n", 400
            ),
            "CONNECT with a body": turned_away(
                b"CONNECT " + ORIGIN + b" HTTP/1.1\r\nHost: semel\r\nContent-Length: 4\r\n\r\nbody", 400
            ),
            "CONNECT in chunks": turned_away(
                b"CONNECT "
                + ORIGIN
                + b" HTTP/1.1\r\nHost: semel\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                400,
            ),
            "CONNECT to semel": turned_away(b"CONNECT " + SEMEL + b" HTTP/1.1\r\nHost: semel\r\n\r\n", 403),
        },
    ),
    **because(
        "Who is called is said once; what it says is not believed, and goes no further.",
        {
            "two hosts": malformed(head(b"Host: other", b"Content-Length: 0")),
            "the same host twice": malformed(head(b"Host: semel", b"Content-Length: 0")),
            "no host at all": malformed(b"POST /pay/x HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
            "a host with a user": taken(
                b"POST /pay/x HTTP/1.1\r\nHost: a@b\r\nContent-Length: 0\r\n\r\n", b"POST /x|"
            ),
            "a host with a path": taken(
                b"POST /pay/x HTTP/1.1\r\nHost: a/b\r\nContent-Length: 0\r\n\r\n", b"POST /x|"
            ),
            "a host with a space": taken(
                b"POST /pay/x HTTP/1.1\r\nHost: a b\r\nContent-Length: 0\r\n\r\n", b"POST /x|"
            ),
            "a folded host": malformed(
                b"POST /pay/x HTTP/1.1\r\nHost:\r\n evil\r\nContent-Length: 0\r\n\r\n"
            ),
        },
    ),
}
