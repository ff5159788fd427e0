"""Tricks to have semel connect to what nobody named: spellings, names, answers that change, detours.

Counted at listeners on 127.0.0.1, 127.0.0.2 and ::1, and in the book of what was dialled.
"""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest

from proxy.ca import load_or_make
from proxy.core.intent import State
from tests.forward.scene import client
from tests.http.guarded import PUBLIC, PUBLIC_6, Guarded, guarded, problem
from tests.inside import Answer, call, raw_call, request_bytes, until
from tests.origin import OK, READ_ALL, Close, Origin, ReadByte, answer

DENIED, BAD = (403, "denied"), (400, "bad-request")
RECORD, TUNNEL = {"forward.unknown": "record"}, {"forward.unknown": "tunnel"}

# What a client may write for an address on this machine or beside it, and what it is told.
SPELLINGS = [
    ("127.0.0.1", DENIED), ("127.0.0.2", DENIED), ("127.0.0.1.", DENIED), ("localhost", DENIED),
    ("LocalHost", DENIED), ("localhost.", DENIED), ("app.localhost", DENIED),
    # other ways to write four numbers
    ("127.1", BAD), ("127.0.1", BAD), ("2130706433", BAD), ("0x7f000001", BAD), ("0x7f.0.0.1", BAD),
    ("0X7F.1", BAD), ("0177.0.0.1", BAD), ("017700000001", BAD), ("127.000.000.001", BAD), ("0", BAD),
    ("127.0.0.1..", BAD), ("127.0.0.0x1", DENIED), ("4294967297", BAD), ("127.0.0.257", BAD),
    ("0.0.0.0", DENIED), ("10.0.0.1", DENIED), ("172.16.0.1", DENIED), ("192.168.1.1", DENIED),
    ("100.64.0.1", DENIED), ("198.18.0.1", DENIED), ("224.0.0.1", DENIED), ("255.255.255.255", DENIED),
    ("192.0.2.1", DENIED),
    # where clouds keep credentials
    ("169.254.169.254", DENIED), ("169.254.170.2", DENIED), ("100.100.100.200", DENIED),
    ("168.63.129.16", DENIED), ("192.0.0.192", DENIED), ("[fd00:ec2::254]", DENIED),
    # IPv6, and IPv4 inside of it
    ("[::1]", DENIED), ("[0:0:0:0:0:0:0:1]", DENIED), ("[0000:0000:0000:0000:0000:0000:0000:0001]", DENIED),
    ("[::]", DENIED), ("[::ffff:127.0.0.1]", DENIED), ("[::FFFF:7F00:1]", DENIED),
    ("[0:0:0:0:0:ffff:7f00:0001]", DENIED), ("[::127.0.0.1]", DENIED), ("[::ffff:0:127.0.0.1]", DENIED),
    ("[64:ff9b::127.0.0.1]", DENIED), ("[64:ff9b::a9fe:a9fe]", DENIED), ("[2002:7f00:1::]", DENIED),
    ("[2001:0:7f00:1::80ff:fffe]", DENIED), ("[2606:4700::5efe:127.0.0.1]", DENIED), ("[fe80::1]", DENIED),
    ("[fe80::1%25lo]", BAD), ("[fe80::1%lo]", BAD), ("[::1%25lo]", BAD), ("[fec0::1]", DENIED),
    ("[ff02::1]", DENIED), ("[2001:db8::1]", DENIED), ("[::ffff:127.1]", BAD), ("[127.0.0.1]", BAD),
    # in front of the host, and inside of it
    ("public.example@127.0.0.1", BAD), ("127.0.0.1@public.example", BAD), ("a:b@127.0.0.1", BAD),
    ("%31%32%37.0.0.1", BAD), ("127%2e0.0.1", BAD), ("%6cocalhost", BAD), ("localhost%00.example", BAD),
    ("127.0.0.1%23.example", BAD), ("127.0.0.1\\public.example", BAD), ("127.0.0.1,public.example", BAD),
    ("127.0.0.1;public.example", BAD), ("[::1]public.example", BAD), ("xn--127-.0.0.1", BAD),
    # digits, letters and dots that only look so
    ("\uff11\uff12\uff17.0.0.1", BAD), ("①②⑦.0.0.1", BAD), ("127。0。0。1", BAD),
    ("ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", BAD), ("٣.0.0.1", BAD),
    # names that somebody has in the DNS
    ("local.example", DENIED), ("meta.example", DENIED), ("LOCAL.EXAMPLE.", DENIED),
    ("127.0.0.1.nip.example", DENIED), ("both.example", DENIED),
]  # fmt: skip
NAMES = {
    "local.example": [["127.0.0.1"]],
    "meta.example": [["169.254.169.254"]],
    "127.0.0.1.nip.example": [["127.0.0.1"]],
    "app.localhost": [["127.0.0.1"]],
    "both.example": [["::1", "127.0.0.1"]],
    "public.example": [[PUBLIC]],
}


def test_there_are_fifty_tricks_and_more() -> None:
    """A renamed list must not make the tests below pass."""
    assert len(dict(SPELLINGS)) == len(SPELLINGS) > 70


async def _nobody_was_reached(there: Guarded) -> None:
    assert there.net.dialled == []
    await there.nobody_came()


def _told(got: Answer) -> tuple[int, str]:
    return got.status, problem(got)


@pytest.mark.parametrize(("host", "told"), SPELLINGS, ids=[each for each, _ in SPELLINGS])
async def test_a_client_cannot_spell_its_way_inside(
    host: str, told: tuple[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In absolute form, as an upgrade, with another Host, and through a CONNECT that semel answers."""
    async with guarded(tmp_path, monkeypatch, settings=RECORD, names=NAMES) as there:
        target = f"http://{host}:{there.port}/latest/meta-data"
        wish = {"Connection": "Upgrade", "Upgrade": "websocket"}
        for raw in (
            request_bytes("GET", target),
            request_bytes("GET", target, wish),
            request_bytes("POST", target, body=b"x", host="public.example"),
            request_bytes("GET", target.replace("http://", "hTTp://"), {"Semel-Run": "r"}),
        ):
            assert _told(await raw_call(there.at, raw)) == told, raw
        async with client(there.at) as outside:
            answered = await outside.connect(f"{host}:{there.port}")
            if answered.status == 200:
                answered = await outside.ask(request_bytes("GET", "/", host="public.example"))
                assert problem(answered) == told[1]
            assert answered.status == told[0]
        await _nobody_was_reached(there)
        if told == DENIED:  # the operator is told which address it was
            await until(lambda: there.told("address-refused"))


@pytest.mark.parametrize(("host", "told"), SPELLINGS, ids=[each for each, _ in SPELLINGS])
async def test_no_tunnel_leads_inside(
    host: str, told: tuple[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With forward.unknown: tunnel the answer to the CONNECT itself says no."""
    async with guarded(tmp_path, monkeypatch, settings=TUNNEL, names=NAMES) as there:
        for raw in (
            request_bytes("CONNECT", f"{host}:{there.port}"),
            request_bytes("CONNECT", f"{host}:{there.port}", host="public.example:443"),
            request_bytes("GET", f"http://{host}:{there.port}/"),
        ):
            assert _told(await raw_call(there.at, raw)) == told, raw
        await _nobody_was_reached(there)


@pytest.mark.parametrize(
    "port", ["0", "65536", "99999", "-1", "+80", "0x50", "\uff18\uff10", "", "80:80", "80@x"]
)
async def test_no_trick_with_the_port(port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with guarded(tmp_path, monkeypatch, settings=TUNNEL, names=NAMES) as there:
        got = await raw_call(there.at, request_bytes("CONNECT", f"public.example:{port}"))
        assert got.status == 400
        await _nobody_was_reached(there)


# ---- names that a policy has ----

# What the DNS may say of a name that a policy has, without `private: true`.
ANSWERS = [
    ["127.0.0.1"], ["127.0.0.2"], ["::1"], ["0.0.0.0"], ["::"], ["10.1.2.3"], ["172.20.0.1"], ["192.168.0.9"],
    ["169.254.169.254"], ["fe80::1%1"], ["fd00::1"], ["fec0::1"], ["100.64.0.9"], ["198.18.0.9"],
    ["::ffff:127.0.0.1"], ["::ffff:169.254.169.254"], ["64:ff9b::7f00:1"], ["2002:a9fe:a9fe::1"],
    ["224.0.0.1"], ["255.255.255.255"], ["203.0.113.9"], ["127.0.0.1", "::1", "10.0.0.1"],
]  # fmt: skip


@pytest.mark.parametrize("answers", ANSWERS, ids=str)
async def test_a_named_host_that_turns_out_to_be_inside_is_refused(
    answers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By base URL, in absolute form and by CONNECT. The agent is told what to do and not the address; the
    operator is told both; the call is released, and nothing is in doubt."""
    policy = "upstream: up\nbase_url: http://api.example:{port}\n"
    async with guarded(tmp_path, monkeypatch, policy, names={"api.example": [answers]}) as there:
        got = await call(there.at, "POST", "/up/pay", body=b"x")
        assert _told(got) == DENIED
        assert got.get("x-should-retry") == "false", "a retry cannot mend it"
        detail = json.loads(got.body)["detail"]
        assert "Nothing was sent" in detail
        assert "private: true" in detail
        assert not any(address in got.body.decode() for address in answers)
        await until(lambda: there.told("address-refused"))
        (told,) = there.told("address-refused")
        assert told["addresses"] == sorted({address.partition("%")[0] for address in answers})
        assert told["host"] == "api.example"
        assert there.net.asked == ["api.example"], "and it is not tried a second time"
        identity = str(got.get("Semel-Call"))
        row = await there.app.store.get(bytes.fromhex(identity))
        assert row is not None
        assert (row.state, row.sends) == (State.RELEASED, 1)
        absolute = request_bytes("GET", f"http://api.example:{there.port}/x")
        assert _told(await raw_call(there.at, absolute)) == DENIED
        async with client(there.at) as outside:
            assert (await outside.connect(f"api.example:{there.port}")).status == 200
            assert _told(await outside.ask(request_bytes("GET", "/x"))) == DENIED
        await _nobody_was_reached(there)


async def test_private_true_lets_a_name_lead_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To private addresses; never to where clouds keep credentials."""
    policy = "upstream: up\nbase_url: http://api.example\nprivate: true\n"
    names = {"api.example": [["10.1.2.3"], ["169.254.169.254"], ["0.0.0.0"]]}
    async with guarded(tmp_path, monkeypatch, policy, names=names, origin=Origin(OK)) as there:
        there.net.roads["10.1.2.3"] = there.origin.port
        got = await call(there.at, "POST", "/up/pay", body=b"x")
        assert (got.status, got.body) == (200, b"ok")
        for body in (b"y", b"z"):
            there.app._upstream._idle.clear()  # a fresh connection
            got = await call(there.at, "POST", "/up/pay", body=body)
            assert _told(got) == DENIED
            assert b"write the address itself" in got.body
        assert there.net.dialled == ["10.1.2.3"]


@pytest.mark.parametrize("base", ["127.0.0.1", "[::ffff:127.0.0.1]", "localhost", "app.localhost"])
async def test_who_writes_the_address_means_it(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In base_url and in hosts; the names of this machine as well."""
    async with Origin(OK, OK) as local:
        policy = f"upstream: up\nbase_url: http://{base}:{local.port}\nhosts: ['{base}:{local.port}']\n"
        names = {"app.localhost": [["127.0.0.1"]]}
        async with guarded(tmp_path, monkeypatch, policy, names=names) as there:
            got = await call(there.at, "POST", "/up/pay", body=b"x")
            assert (got.status, got.body) == (200, b"ok")
            listed = base.replace("[::ffff:127.0.0.1]", "127.0.0.1")
            if listed == base:  # the front has one spelling for both, the policy file keeps what is written
                raw = request_bytes("POST", f"http://{base}:{local.port}/other", body=b"x")
                assert (await raw_call(there.at, raw)).status == 200


@pytest.mark.parametrize("base", ["127.1", "2130706433", "0x7f000001", "0177.0.0.1"])
async def test_an_odd_spelling_in_a_policy_is_a_name(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resolvers read it in different ways, so it does not name an address."""
    policy = f"upstream: up\nbase_url: http://{base}:{{port}}\n"
    async with guarded(tmp_path, monkeypatch, policy) as there:
        assert _told(await call(there.at, "GET", "/up/x")) == DENIED
        await _nobody_was_reached(there)


@pytest.mark.parametrize("private", ["true", "false"])
@pytest.mark.parametrize("answer_of", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"])
async def test_a_wildcard_names_no_address(
    private: str, answer_of: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may add a name below it could lead semel anywhere."""
    policy = (
        "upstream: up\nbase_url: http://api.example\n"
        f"hosts: ['*.example:{{port}}', 'exact.example:{{port}}']\nprivate: {private}\n"
    )
    names = {"mine.example": [[answer_of]], "exact.example": [[answer_of]]}
    async with guarded(tmp_path, monkeypatch, policy, names=names) as there:
        raw = request_bytes("GET", f"http://mine.example:{there.port}/x")
        assert _told(await raw_call(there.at, raw)) == DENIED
        async with client(there.at) as outside:
            assert (await outside.connect(f"mine.example:{there.port}")).status == 200
            assert _told(await outside.ask(request_bytes("GET", "/x"))) == DENIED
        await _nobody_was_reached(there)
        await raw_call(there.at, request_bytes("GET", f"http://exact.example:{there.port}/x"))
        dialled = private == "true" and answer_of != "169.254.169.254"
        assert bool(there.net.dialled) == dialled, "a whole name is another matter"


async def test_a_wildcard_that_is_the_end_of_an_address_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`*.0.0.1` has 127.0.0.1 below it, as far as letters go; `*.localhost` is open to every client."""
    policy = (
        "upstream: up\nbase_url: http://api.example\n"
        "hosts: ['*.0.0.1:{port}', '*.localhost:{port}']\nprivate: true\n"
    )
    async with guarded(tmp_path, monkeypatch, policy, names=NAMES) as there:
        for host in ("127.0.0.1", "app.localhost", "10.0.0.1"):
            raw = request_bytes("GET", f"http://{host}:{there.port}/x")
            assert _told(await raw_call(there.at, raw)) == DENIED
        await _nobody_was_reached(there)


# ---- answers that change ----


async def test_the_name_is_resolved_once_and_what_was_looked_at_is_dialled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rebinding: any second answer would be private."""
    names = {"api.example": [[PUBLIC], ["127.0.0.1"]]}
    async with guarded(tmp_path, monkeypatch, names=names, origin=Origin(OK, OK)) as there:
        got = await call(there.at, "POST", "/up/pay", body=b"x")
        assert (got.status, got.body) == (200, b"ok")
        assert (there.net.asked, there.net.dialled) == (["api.example"], [PUBLIC])
        there.app._upstream._idle.clear()
        assert _told(await call(there.at, "POST", "/up/pay", body=b"y")) == DENIED
        assert there.net.dialled == [PUBLIC]
        await there.nobody_came()


async def test_rebinding_between_a_failed_connection_and_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second look at the name is a second look at its address."""
    policy = "upstream: up\nbase_url: http://api.example:{port}\n"
    names = {"api.example": [["93.184.216.35"], ["127.0.0.1"]]}  # nobody is at the first
    async with guarded(tmp_path, monkeypatch, policy, names=names) as there:
        assert _told(await call(there.at, "POST", "/up/pay", body=b"x")) == DENIED
        assert there.net.asked == ["api.example"] * 2
        assert there.net.dialled == ["93.184.216.35"]
        await there.nobody_came()


@pytest.mark.parametrize(
    "answers",
    [
        [PUBLIC, "127.0.0.1"], ["127.0.0.1", PUBLIC], ["::1", PUBLIC], [PUBLIC_6, "127.0.0.1", "::1"],
        ["169.254.169.254", PUBLIC, "10.0.0.1"], ["::ffff:127.0.0.1", PUBLIC],
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("up", [True, False])
async def test_of_several_addresses_only_public_ones_are_tried(
    answers: list[str], up: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the public one does not answer: no way of falling back leads inside."""
    policy = "upstream: up\nbase_url: http://api.example:{port}\n"
    async with guarded(tmp_path, monkeypatch, policy, names={"api.example": [answers]}) as there:
        if not up:
            there.net.roads.clear()
        got = await call(there.at, "POST", "/up/pay", body=b"x")
        assert _told(got) == ((200, "") if up else (502, "upstream-unreachable"))
        assert set(there.net.dialled) == {PUBLIC, PUBLIC_6} & set(answers)
        await there.nobody_came()


# ---- detours ----


async def test_the_host_header_does_not_choose_where_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do headers that other proxies believe."""
    async with guarded(
        tmp_path, monkeypatch, settings=RECORD, names=NAMES, origin=Origin(OK, OK, OK)
    ) as there:
        inside = f"127.0.0.1:{there.port}"
        claims = {"X-Forwarded-Host": inside, "Forwarded": f"host={inside}", "X-Original-URL": f"//{inside}/"}
        for raw in (
            request_bytes("POST", "http://public.example/a", claims, b"x", host=inside),
            request_bytes("POST", f"http://public.example/b?url=http://{inside}/", claims, b"x", host=inside),
        ):
            assert (await raw_call(there.at, raw)).body == b"ok"
        assert set(there.net.dialled) == {PUBLIC}
        async with client(there.at) as outside:
            assert (await outside.connect("public.example:80")).status == 200
            got = await outside.ask(request_bytes("GET", f"http://{inside}/x", host=inside))
            assert _told(got) == BAD, "another place than that of the CONNECT"
        await there.nobody_came()


async def test_sni_does_not_choose_where_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS for `localhost` inside a CONNECT to another host goes to that one; TLS for that one inside a
    CONNECT to localhost is refused."""
    no_tls = (ReadByte(), Close())
    async with guarded(
        tmp_path, monkeypatch, settings=RECORD, names=NAMES, origin=Origin(no_tls, no_tls)
    ) as there:
        context = ssl.create_default_context(cafile=str(load_or_make(tmp_path / "state").path))
        for place, name in (("public.example:443", "localhost"), ("localhost:{port}", "public.example")):
            async with client(there.at) as outside:
                assert (await outside.connect(place.format(port=there.port))).status == 200
                await outside.secure(context, name)
                got = await outside.ask(request_bytes("GET", "/x", host=name))
                assert got.status >= 400, "the origin speaks no TLS; the other is off limits"
        assert set(there.net.dialled) == {PUBLIC}
        await there.nobody_came()


async def test_a_redirect_inside_is_handed_on_and_never_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live and from the record, of every kind."""
    names = {"api.example": [[PUBLIC]]}
    for status in (301, 302, 303, 307, 308):
        inside = b"http://127.0.0.1:1/latest/meta-data"
        script = (*READ_ALL, answer(status, b"", (b"Location", inside), (b"Refresh", b"0; url=" + inside)))
        folder = tmp_path / str(status)
        folder.mkdir()
        async with guarded(folder, monkeypatch, names=names, origin=Origin(script)) as there:
            for semel_status in ("executed", "replayed"):
                got = await call(there.at, "POST", "/up/pay", body=b"x")
                assert (got.status, got.semel) == (status, semel_status)
                assert got.get("Location") == inside.decode()
            assert (there.net.dialled, there.net.asked) == ([PUBLIC], ["api.example"])
            await there.nobody_came()


async def test_a_name_that_leads_back_to_semel_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at on the same address that the guard looked at, also where the guard allows it."""
    policy = "upstream: up\nbase_url: http://api.example\nprivate: true\n"
    async with guarded(tmp_path, monkeypatch, policy, names={"api.example": [["10.0.0.1"]]}) as there:
        there.net.roads["10.0.0.1"] = there.at
        got = await call(there.at, "POST", "/up/up/up/pay", body=b"x")
        assert _told(got) == (502, "upstream-unreachable")
        assert b"semel itself" in got.body
        await until(lambda: there.told("call"))
        assert len(there.told("call")) == 1, "it did not go round"


# ---- connections that are there already ----


async def test_a_reload_takes_the_allowance_of_a_pooled_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is idle and warm, and not used any more."""
    policy = "upstream: up\nbase_url: http://api.example\nprivate: true\n"
    names = {"api.example": [["10.1.2.3"]]}
    async with guarded(tmp_path, monkeypatch, policy, names=names, origin=Origin(OK, OK, OK)) as there:
        there.net.roads["10.1.2.3"] = there.origin.port
        for number in range(2):
            assert (await call(there.at, "POST", "/up/pay", body=b"%d" % number)).body == b"ok"
        assert there.net.dialled == ["10.1.2.3"], "it is pooled"
        (tmp_path / "policies" / "test.yaml").write_text(policy.replace("true", "false"))
        assert await there.app.watch.check_now()
        assert _told(await call(there.at, "POST", "/up/pay", body=b"3")) == DENIED
        assert there.origin.started == 2
        assert (await call(there.at, "POST", "/up/pay", body=b"0")).semel == "replayed", "the record stands"


async def test_a_connection_of_one_upstream_is_not_for_another_at_the_same_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = "upstream: up\nbase_url: http://api.example\nprivate: true\n"
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "other.yaml").write_text("upstream: other\nbase_url: http://api.example/o\n")
    names = {"api.example": [["10.1.2.3"]]}
    async with guarded(tmp_path, monkeypatch, policy, names=names, origin=Origin(OK, OK)) as there:
        there.net.roads["10.1.2.3"] = there.origin.port
        assert (await call(there.at, "POST", "/up/pay", body=b"x")).body == b"ok"
        assert _told(await call(there.at, "POST", "/other/pay", body=b"x")) == DENIED
        assert there.origin.started == 1


# ---- what is known of a call ----


async def test_a_call_in_doubt_stays_in_doubt_when_its_resend_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was sent now, and nothing is known of the first send."""
    policy = (
        "upstream: up\nbase_url: http://api.example\n"
        "rules:\n  - {name: pay, match: {method: POST}, upstream_key: {header: Idempotency-Key}}\n"
    )
    names = {"api.example": [[PUBLIC], ["127.0.0.1"]]}
    lost = (*READ_ALL, Close())
    monkeypatch.setattr("proxy.carrying.RESEND_PAUSES", ())
    async with guarded(tmp_path, monkeypatch, policy, names=names, origin=Origin(lost)) as there:
        for _ in range(2):
            got = await call(there.at, "POST", "/up/pay", body=b"x")
            assert _told(got) == (409, "in-doubt")
        row = await there.app.store.get(bytes.fromhex(str(got.get("Semel-Call"))))
        assert row is not None
        assert row.state is State.IN_DOUBT
        assert there.net.dialled == [PUBLIC]
        assert there.origin.started == 1
        await there.nobody_came()


async def test_a_run_that_was_refused_and_went_on_is_refused_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent took another way, with effects: a later attempt must not take both, though the name leads
    outside by now."""
    policy = "upstream: up\nbase_url: http://api.example\nhosts: [api.example, other.example]\n"
    names = {"api.example": [["10.0.0.1"], [PUBLIC]], "other.example": [[PUBLIC]]}
    async with guarded(tmp_path, monkeypatch, policy, names=names, origin=Origin(OK, OK)) as there:
        other = "http://other.example/pay"
        for attempt, status in (("one", "executed"), ("two", "replayed")):
            first = await call(there.at, "POST", f"/@task+{attempt}/up/pay", body=b"x")
            assert _told(first) == DENIED
            said = {"Semel-Run": "task", "Semel-Attempt": attempt}
            second = await raw_call(there.at, request_bytes("POST", other, said, b"x"))
            assert (second.status, second.semel) == (200, status)
        assert there.net.dialled == [PUBLIC]
        assert there.origin.started == 1


# ---- as `semel run` has it ----


async def test_where_private_addresses_are_allowed_a_client_reaches_what_it_could_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written out, or by a name that leads there; no name leads to where clouds keep credentials."""
    settings = {"forward.unknown": "record", "forward.private": "allow"}
    names = {
        "mine.example": [["10.0.0.1"]],
        "meta.example": [["169.254.169.254"]],
        "api.example": [["10.0.0.1"]],
    }
    async with (
        Origin(*[OK] * 6) as local,
        guarded(tmp_path, monkeypatch, settings=settings, names=names) as there,
    ):
        there.net.roads["10.0.0.1"] = local.port
        for host in (f"127.0.0.1:{local.port}", f"localhost:{local.port}", "mine.example"):
            raw = request_bytes("POST", f"http://{host}/x", body=b"x")
            assert (await raw_call(there.at, raw)).body == b"ok"
        assert (await call(there.at, "POST", "/up/x", body=b"x")).body == b"ok"
        got = await raw_call(there.at, request_bytes("POST", "http://meta.example/x", body=b"x"))
        assert _told(got) == DENIED
        assert "169.254.169.254" not in there.net.dialled
