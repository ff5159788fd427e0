"""CONNECT: semel stands in for the host, for every client and every oddity of what comes through."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from pathlib import Path
from typing import cast

import pytest

from proxy.front.arriving import ConnectionLimits
from proxy.settings import Role, Token
from proxy.tokens import digest
from tests.forward.scene import client, scene, through
from tests.inside import call, raw_call, request_bytes, until
from tests.origin import READ_ALL, Close, Wait, answer, run_on
from tests.sending import both_loops

pytestmark = pytest.mark.usefixtures("forward_store")

AGENT = Token(sha256=digest("agent-token"), tenant="acme", role=Role.AGENT)
OPERATOR = Token(sha256=digest("operator-token"), tenant="acme", role=Role.OPERATOR)
POST = request_bytes("POST", "/v1/send?x=1", body=b'{"to": "a"}', host="localhost")


def user(ref: str, token: str = "") -> dict[str, str]:
    return {"Proxy-Authorization": "Basic " + b64encode(f"{ref}:{token}".encode()).decode()}


@both_loops
def test_a_call_through_the_proxy_has_the_name_of_the_same_call_through_the_base_url(
    tmp_path: Path, loop: str
) -> None:
    """Sent once, to the host that was named, with its path; replayed on either way."""

    async def scenario() -> None:
        async with scene(tmp_path, path="/v1") as there:
            async with through(there) as inside:
                first = await inside.ask(POST)
                assert (first.status, first.semel, first.body) == (200, "executed", b"ok")
                again = await inside.ask(POST)
                assert (again.semel, again.get("Semel-Call")) == ("replayed", first.get("Semel-Call"))
            direct = await call(there.port, "POST", "/up/send?x=1", body=b'{"to": "a"}')
            assert (direct.semel, direct.get("Semel-Call")) == ("replayed", first.get("Semel-Call"))
            (seen,) = there.origin.requests
            assert seen.head.startswith(b"POST /v1/send?x=1 HTTP/1.1\r\n")
            assert dict(seen.headers)[b"Host"] == there.authority.encode()

    run_on(loop, scenario())


async def test_only_http_1_1_is_offered(tmp_path: Path) -> None:
    """A client that would rather speak HTTP/2 is told so by ALPN."""
    async with scene(tmp_path) as there, through(there) as inside:
        assert inside.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"


@both_loops
def test_a_hello_that_comes_along_with_the_connect_is_not_lost(tmp_path: Path, loop: str) -> None:
    """Eager clients do not wait for the 200: in one packet, and with the hello cut in two."""

    async def scenario(cut: int | None) -> None:
        async with scene(tmp_path) as there, client(there.port) as outside:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = there.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
            with pytest.raises(ssl.SSLWantReadError):
                tls.do_handshake()
            hello, head = outgoing.read(), request_bytes("CONNECT", there.authority)
            outside.writer.write(head + hello[:cut])
            assert await outside.reader.readuntil(b"\r\n\r\n") == (
                b"HTTP/1.1 200 Connection established\r\n\r\n"
            )
            outside.writer.write(b"" if cut is None else hello[cut:])
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    incoming.write(await outside.reader.read(65536))
            tls.write(POST)
            outside.writer.write(outgoing.read())
            got = b""
            while b"\r\n\r\nok" not in got:
                incoming.write(await outside.reader.read(65536))
                with pytest.raises(ssl.SSLWantReadError):
                    while True:
                        got += tls.read(65536)
            assert got.startswith(b"HTTP/1.1 200 OK\r\n")

    run_on(loop, scenario(None))
    run_on(loop, scenario(7))


@both_loops
def test_large_bodies_go_both_ways_and_a_slow_reader_gets_them_whole(tmp_path: Path, loop: str) -> None:
    """Flow control reaches through TLS."""
    large = bytes(range(256)) * 4096 * 4

    async def scenario() -> None:
        async with scene(tmp_path, (*READ_ALL, answer(200, large))) as there, through(there) as inside:
            inside.writer.write(request_bytes("POST", "/large", body=large, host="localhost"))
            await inside.writer.drain()
            await until(lambda: there.origin.requests and there.origin.requests[0].complete)
            got = await inside.ask(b"")
            assert got.complete
            assert got.body == large
            assert bytes(there.origin.requests[0].body) == large

    run_on(loop, scenario())


@both_loops
def test_a_client_that_does_not_read_fills_no_memory(tmp_path: Path, loop: str) -> None:
    """What waits for it waits at the upstream; when it reads on, all of it comes."""
    large = b"0123456789abcdef" * 2_000_000

    async def scenario() -> None:
        async with scene(tmp_path, (*READ_ALL, answer(200, large))) as there, through(there) as inside:
            transport = cast("asyncio.Transport", inside.writer.transport)
            transport.pause_reading()
            inside.writer.write(request_bytes("GET", "/large", host="localhost"))
            await until(lambda: there.origin.started)
            (connection,) = there.app._listener.connections
            await until(lambda: connection.writing_paused)
            assert connection.transport is not None
            assert connection.transport.get_write_buffer_size() < 4_000_000
            transport.resume_reading()
            got = await inside.ask(b"")
            assert got.complete
            assert got.body == large

    run_on(loop, scenario())


@both_loops
def test_more_requests_than_are_read_ahead_are_all_answered(tmp_path: Path, loop: str) -> None:
    """Reading stops while many wait, and goes on with what TLS has decrypted or kept already."""

    async def scenario() -> None:
        async with scene(tmp_path) as there, through(there) as inside:
            inside.writer.write(POST * 3000)
            inside.writer.write(request_bytes("POST", "/last", body=b"x", host="localhost"))
            for number in range(3001):
                got = await inside.ask(b"")
                assert got.semel == ("replayed" if 0 < number < 3000 else "executed"), number

    run_on(loop, scenario())


async def test_plain_http_through_a_connect_is_served_as_such(tmp_path: Path) -> None:
    """What does not begin as TLS is HTTP; also when it comes along with the CONNECT."""
    async with scene(tmp_path, tls=False) as there:
        async with client(there.port) as outside:
            assert (await outside.connect(there.authority)).status == 200
            first = await outside.ask(POST)
            assert (first.semel, first.body) == ("executed", b"ok")
        async with client(there.port) as outside:
            outside.writer.write(request_bytes("CONNECT", there.authority) + POST)
            await outside.reader.readuntil(b"\r\n\r\n")
            again = await outside.ask(b"")
            assert (again.semel, again.get("Semel-Call")) == ("replayed", first.get("Semel-Call"))
        direct = await call(there.port, "POST", "/up/v1/send?x=1", body=b'{"to": "a"}')
        assert direct.get("Semel-Call") == first.get("Semel-Call")


async def test_the_certificate_is_for_the_name_inside_tls_and_the_call_for_the_host_outside(
    tmp_path: Path,
) -> None:
    """SNI chooses what the client will check, and nothing else."""
    async with scene(tmp_path) as there, client(there.port) as outside:
        context = there.context()
        assert (await outside.connect(there.authority)).status == 200
        await outside.secure(context, "Other.Example")
        assert (await outside.ask(POST)).semel == "executed"
        names = outside.writer.get_extra_info("ssl_object").getpeercert()["subjectAltName"]
        assert names == (("DNS", "other.example"),)
        assert there.origin.started == 1


async def test_a_host_in_capitals_and_with_a_dot_at_the_end_is_the_same_host(tmp_path: Path) -> None:
    """One spelling for the lookup, the certificate and the upstream."""
    async with scene(tmp_path) as there, client(there.port) as outside:
        context = there.context()
        assert (await outside.connect(f"LOCALHOST.:{there.origin.port}")).status == 200
        await outside.secure(context)
        assert (await outside.ask(POST)).semel == "executed"


async def test_paths_that_semel_has_of_its_own_are_the_hosts_inside_a_connect(tmp_path: Path) -> None:
    """/metrics and /_semel/ of the host, not of semel."""
    async with scene(tmp_path) as there, through(there) as inside:
        for path in ("/metrics", "/_semel/calls", "/healthz", "/@run/x"):
            got = await inside.ask(request_bytes("GET", path, host="localhost"))
            assert (got.semel, got.body) == ("passed", b"ok"), path
        assert [seen.head.split()[1] for seen in there.origin.requests][-1] == b"/@run/x"


async def test_absolute_form_inside_a_connect_must_name_the_same_place(tmp_path: Path) -> None:
    """Some clients send it; it may not lead elsewhere, nor may another CONNECT."""
    async with scene(tmp_path) as there, through(there) as inside:
        own = await inside.ask(request_bytes("GET", f"https://{there.authority}/x", host="localhost"))
        assert own.semel == "passed"
        other = await inside.ask(request_bytes("GET", "https://other.example/x", host="localhost"))
        assert (other.status, other.semel) == (400, "refused")
        nested = await inside.ask(request_bytes("CONNECT", there.authority))
        assert (nested.status, nested.semel) == (400, "refused")
        assert there.origin.started == 1


BAD = {
    "a user": b"CONNECT me:secret@localhost:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "no port": b"CONNECT localhost HTTP/1.1\r\nHost: x\r\n\r\n",
    "port 0": b"CONNECT localhost:0 HTTP/1.1\r\nHost: x\r\n\r\n",
    "port 70000": b"CONNECT localhost:70000 HTTP/1.1\r\nHost: x\r\n\r\n",
    "port with letters": b"CONNECT localhost:https HTTP/1.1\r\nHost: x\r\n\r\n",
    "an open bracket": b"CONNECT [::1:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "IPv6 without brackets": b"CONNECT ::1:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "brackets around a name": b"CONNECT [localhost]:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "a path": b"CONNECT localhost:443/x HTTP/1.1\r\nHost: x\r\n\r\n",
    "a whole address": b"CONNECT https://localhost:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "an asterisk": b"CONNECT *.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "an IPv4 address in short": b"CONNECT 127.1:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "an empty host": b"CONNECT :443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "a body": b"CONNECT localhost:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
    "a chunked body": b"CONNECT localhost:443 HTTP/1.1\r\nHost: x\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "another scheme of credentials": b"CONNECT localhost:443 HTTP/1.1\r\nHost: x\r\n"
    b"Proxy-Authorization: Bearer abc\r\n\r\n",
    "credentials that are no base64": b"CONNECT localhost:443 HTTP/1.1\r\nHost: x\r\n"
    b"Proxy-Authorization: Basic %%%\r\n\r\n",
    "a run that is none": b"CONNECT localhost:443 HTTP/1.1\r\nHost: x\r\n"
    b"Proxy-Authorization: Basic " + b64encode(b"no run!:") + b"\r\n\r\n",
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_connect_is_refused_and_nothing_is_sent(tmp_path: Path, name: str) -> None:
    """400 with a problem, then the end; the secret of an address is not repeated."""
    async with scene(tmp_path) as there, client(there.port) as outside:
        raw = BAD[name].replace(b"localhost:443", there.authority.encode())
        got = await outside.ask(raw)
        assert (got.status, got.semel) == (400, "refused"), got
        assert b"urn:semel:bad-request" in got.body
        assert b"secret" not in got.body
        assert await outside.ended() == b""
        assert there.origin.connections == 0
        assert (await call(there.port, "POST", "/up/x")).status == 200, "the next caller is served"


async def test_http_1_0_may_connect_too(tmp_path: Path) -> None:
    """Old clients do."""
    async with scene(tmp_path) as there, client(there.port) as outside:
        context = there.context()
        outside.writer.write(f"CONNECT {there.authority} HTTP/1.0\r\n\r\n".encode())
        assert (await outside.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await outside.secure(context)
        assert (await outside.ask(POST)).semel == "executed"


# ---- who speaks ----


async def test_without_the_right_token_the_answer_is_407(tmp_path: Path) -> None:
    """To the CONNECT itself and to absolute form; in reverse mode it stays 401."""
    async with scene(tmp_path, tokens=[AGENT, OPERATOR]) as there:
        connect = request_bytes("CONNECT", there.authority)
        absolute = request_bytes("GET", f"https://{there.authority}/x")
        for raw in (connect, absolute, request_bytes("CONNECT", there.authority, user("", "wrong"))):
            got = await raw_call(there.port, raw)
            assert (got.status, got.get("Proxy-Authenticate")) == (407, 'Basic realm="semel"')
            assert got.get("WWW-Authenticate") is None
            assert b"urn:semel:unauthorized" in got.body
        direct = await call(there.port, "GET", "/up/x")
        assert (direct.status, direct.get("Proxy-Authenticate")) == (401, None)
        role = await raw_call(
            there.port, request_bytes("CONNECT", there.authority, user("", "operator-token"))
        )
        assert (role.status, b"urn:semel:forbidden" in role.body) == (403, True)
        assert there.origin.connections == 0


async def test_who_spoke_the_connect_speaks_all_requests_inside(tmp_path: Path) -> None:
    """The token and the run of the proxy's user; a header that says otherwise is refused; none goes on."""
    async with scene(tmp_path, tokens=[AGENT]) as there:
        async with through(there, user("task-1+a", "agent-token")) as inside:
            got = await inside.ask(POST)
            assert got.semel == "executed"
            same = request_bytes("POST", "/y", {"Semel-Run": "task-1"}, b"y", host="localhost")
            assert (await inside.ask(same)).semel == "executed"
            other = request_bytes("POST", "/y", {"Semel-Run": "task-2"}, b"y", host="localhost")
            assert (await inside.ask(other)).status == 400
        in_run = await call(
            there.port,
            "POST",
            "/@task-1+b:agent-token/up/v1/send?x=1",
            body=b'{"to": "a"}',
        )
        assert (in_run.semel, in_run.get("Semel-Call")) == ("replayed", got.get("Semel-Call"))
        for seen in there.origin.requests:
            assert b"agent-token" not in seen.head
            assert b"proxy-" not in seen.head.lower()
            assert b"task-" not in seen.head


# ---- what goes wrong with TLS ----


async def test_a_client_that_does_not_trust_semel_is_told_of_once(tmp_path: Path) -> None:
    """A clean failure for it, one line for the operator with the host and what to set."""
    async with scene(tmp_path) as there:
        for _ in range(3):
            async with client(there.port) as outside:
                assert (await outside.connect(there.authority)).status == 200
                with pytest.raises(ssl.SSLCertVerificationError):
                    await outside.secure(ssl.create_default_context())
        await until(lambda: there.told("tls-not-agreed"))
        (told,) = there.told("tls-not-agreed")
        assert told["host"] == "localhost"
        assert told["ca"] == str(there.ca)
        for word in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", str(there.ca)):
            assert word in str(told["advice"])
        assert not there.told("call"), "a handshake is no call"
        async with through(there) as inside:
            assert (await inside.ask(POST)).semel == "executed", "others are served"


async def test_for_stripe_the_line_names_what_to_add_to_the_code(tmp_path: Path) -> None:
    """Its SDK brings its own list of authorities and looks at no variable."""
    async with scene(tmp_path, more="hosts: [api.stripe.com]\n") as there, client(there.port) as outside:
        assert (await outside.connect("api.stripe.com:443")).status == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            await outside.secure(ssl.create_default_context(), "api.stripe.com")
        await until(lambda: there.told("tls-not-agreed"))
        (told,) = there.told("tls-not-agreed")
        assert told["host"] == "api.stripe.com"
        assert 'stripe.ca_bundle_path = os.environ["SSL_CERT_FILE"]' in str(told["advice"])


async def test_a_client_that_never_says_hello_is_let_go(tmp_path: Path) -> None:
    """Silence, and half a hello: the header timer is for them too."""
    settings = {"limits.header_timeout": "200ms"}
    async with scene(tmp_path, settings=settings) as there:
        async with client(there.port) as silent:
            assert (await silent.connect(there.authority)).status == 200
            assert await silent.ended() == b""
        assert not there.told("tls-not-agreed"), "it has said nothing that one could tell of"
        async with client(there.port) as halting:
            assert (await halting.connect(there.authority)).status == 200
            halting.writer.write(b"\x16\x03\x01")
            assert await halting.ended() == b""
        await until(lambda: there.told("tls-not-agreed"))


async def test_garbage_after_a_connect_ends_it(tmp_path: Path) -> None:
    """Neither TLS nor HTTP."""
    async with scene(tmp_path) as there:
        for garbage in (b"\x16\x03\x01\x00\x05hello", b"\x00\x01\x02\x03\r\n\r\n", b"\x80\x2e\x01\x03\x01"):
            async with client(there.port) as outside:
                assert (await outside.connect(there.authority)).status == 200
                outside.writer.write(garbage)
                await outside.ended()
        assert there.origin.connections == 0
        async with through(there) as inside:
            assert (await inside.ask(POST)).semel == "executed"


async def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    """After the CONNECT, inside the hello, inside a request: all connections are forgotten."""
    async with scene(tmp_path) as there:
        for rest in (b"", b"\x16\x03\x01\x02"):
            async with client(there.port) as outside:
                assert (await outside.connect(there.authority)).status == 200
                outside.writer.write(rest)
        async with through(there) as inside:
            inside.writer.write(POST[:-4])
        await until(lambda: not there.app._listener.connections)
        assert there.origin.started == 0


# ---- limits and the end ----


async def test_an_intercepted_connection_counts_once(tmp_path: Path) -> None:
    """Two of two are let in, the third is not; when one goes, there is room again."""
    async with scene(tmp_path, settings={"limits.connections": 2}) as there, through(there) as one:
        async with through(there) as two:
            assert (await one.ask(POST)).status == (await two.ask(POST)).status == 200
            assert (await raw_call(there.port, POST)).status == 503
        await until(lambda: len(there.app._listener.connections) == 1)
        assert (await call(there.port, "POST", "/up/x")).status == 200


async def test_heads_are_bounded_inside_tls_too(tmp_path: Path) -> None:
    """The same limits, the same problems."""
    settings = {"limits.headers": "2KiB", "limits.header_timeout": "300ms"}
    async with scene(tmp_path, settings=settings) as there:
        async with through(there) as inside:
            got = await inside.ask(request_bytes("GET", "/x", {"X": "x" * 4000}, host="localhost"))
            assert got.status == 431
        async with through(there) as inside:
            got = await inside.ask(b"GET /x HTTP/1.1\r\nHost: loc")
            assert got.status == 400
        assert there.origin.connections == 0


@both_loops
def test_the_end_of_semel_is_the_end_of_intercepted_connections(tmp_path: Path, loop: str) -> None:
    """A call under way gets its answer first."""

    async def scenario() -> None:
        release = asyncio.Event()
        async with (
            scene(tmp_path, (*READ_ALL, Wait(release), answer(200, b"late"))) as there,
            through(there) as idle,
            through(there) as busy,
        ):
            busy.writer.write(POST)
            await until(lambda: there.origin.started)
            stopping = asyncio.ensure_future(there.app.stop(20.0))
            await asyncio.sleep(0)
            release.set()
            got = await busy.ask(b"")
            assert (got.status, got.body, got.complete) == (200, b"late", True)
            assert await idle.ended() == b""
            assert await busy.ended() == b""
            assert await stopping == 0

    run_on(loop, scenario())


async def test_a_refused_crowd_does_not_cost_an_intercepted_connection_its_place(tmp_path: Path) -> None:
    """It was let in when it came: what takes its place after the handshake is not counted again."""
    async with scene(tmp_path) as there, client(there.port) as outside:
        context = there.context()
        assert (await outside.connect(there.authority)).status == 200
        # As if others had come meanwhile: over the limit now.
        there.app._listener.limits = ConnectionLimits(connections=0)
        await outside.secure(context)
        assert (await outside.ask(POST)).semel == "executed"


@both_loops
def test_an_answer_that_breaks_off_is_a_break_inside_tls_too(tmp_path: Path, loop: str) -> None:
    """Without a length only TLS could say that it is whole: it does not."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def scenario() -> None:
        release = asyncio.Event()
        script = (*READ_ALL, head + b"5\r\nabc\r\n\r\n", Wait(release), Close())
        async with scene(tmp_path, script) as there, through(there) as inside:
            inside.writer.write(request_bytes("GET", "/x", host="localhost").replace(b"1.1", b"1.0", 1))
            await inside.reader.readuntil(b"abc")
            release.set()
            # A proper end would be read as one; only close_notify makes one in TLS.
            with pytest.raises(ConnectionError):
                await inside.reader.read()

    run_on(loop, scenario())


async def test_many_at_once_make_one_authority_and_one_call(tmp_path: Path) -> None:
    """The first CONNECTs of all: one authority, one certificate, one request upstream."""
    release = asyncio.Event()
    async with scene(tmp_path, (*READ_ALL, Wait(release), answer(200, b"once"))) as there:

        async def one() -> tuple[str | None, bytes]:
            async with client(there.port) as outside:
                assert (await outside.connect(there.authority)).status == 200
                await outside.secure(there.context())
                got = await outside.ask(POST)
                return got.semel, got.body

        asking = [asyncio.ensure_future(one()) for _ in range(10)]
        await until(lambda: there.origin.started)
        release.set()
        got = await asyncio.gather(*asking)
        assert {body for _, body in got} == {b"once"}
        assert [status for status, _ in got].count("executed") == 1
        assert there.origin.started == 1


async def test_a_policy_that_goes_takes_its_host_along(tmp_path: Path) -> None:
    """Requests inside a CONNECT are ruled by the policies of their time, not of the CONNECT's."""
    async with scene(tmp_path) as there, through(there) as inside:
        assert (await inside.ask(POST)).semel == "executed"
        (tmp_path / "policies" / "test.yaml").write_text("upstream: other\nbase_url: https://other.example\n")
        assert await there.app.watch.check_now()
        got = await inside.ask(POST)
        assert (got.status, b"unknown-upstream" in got.body) == (403, True)
        assert there.origin.started == 1


async def test_an_authority_that_cannot_be_used_is_said_and_nothing_is_sent(tmp_path: Path) -> None:
    """502 is the answer to the CONNECT, with what to do; base URLs go on."""
    async with scene(tmp_path) as there:
        there.ca.with_name("ca.key").chmod(0o644)
        got = await raw_call(there.port, request_bytes("CONNECT", there.authority))
        assert got.status == 502
        assert b"chmod go=" in got.body
        assert (await call(there.port, "POST", "/up/x")).semel == "executed"


@both_loops
def test_the_end_of_semel_does_not_wait_for_a_hello(tmp_path: Path, loop: str) -> None:
    """A client in the middle of the handshake is let go with the others."""

    async def scenario() -> None:
        async with scene(tmp_path) as there, client(there.port) as outside:
            assert (await outside.connect(there.authority)).status == 200
            outside.writer.write(b"\x16\x03\x01")
            async with asyncio.timeout(10):
                assert await there.app.stop(60.0) == 0
            assert await outside.ended() == b""

    run_on(loop, scenario())
