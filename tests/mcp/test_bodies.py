"""The same message in other clothes: it arrives whole, and is the same call."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.inside import raw_call, request_bytes
from tests.mcp.bank import Bank
from tests.mcp.scene import inside
from tests.mcp.test_batches import PING, pays
from tests.mcp.wire import BOTH, heard

HEADERS = {"Content-Type": "application/json", "Accept": BOTH}


def dressed(shape: str, body: bytes) -> tuple[Mapping[str, str], bytes]:
    """Headers and what stands behind them."""
    if shape == "gzip":
        return {"Content-Encoding": "gzip"}, gzip.compress(body)
    if shape == "chunks":
        chunks = [body[n : n + 10] for n in range(0, len(body), 10)]
        text = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
        return {"Transfer-Encoding": "chunked"}, text
    return {}, b"\r\n  " + body + b" \n\n" if shape == "space" else body


def request(shape: str, said: object) -> bytes:
    headers, body = dressed(shape, json.dumps(said).encode())
    text = request_bytes("POST", "/shop/mcp", {**HEADERS, **headers}, body)
    if shape != "chunks":
        return text
    return text.replace(b"Content-Length: %d\r\n" % len(body), b"")


@pytest.mark.parametrize("events", [False, True], ids=["json", "sse"])
@pytest.mark.parametrize("shape", ["plain", "space", "chunks", "gzip"])
async def test_one_message(tmp_path: Path, shape: str, events: bool) -> None:
    """White space around it, sent in chunks, compressed."""
    async with Bank(events=events) as bank, inside(tmp_path, bank.port) as semel:
        said = [heard(await raw_call(semel.port, request(each, pays(1, "a")))) for each in (shape, "plain")]
        assert [each.semel for each in said] == ["executed", "replayed"]
        assert [each.last for each in said] == [{"jsonrpc": "2.0", "id": 1, "result": {"paid": 1}}] * 2
        other = heard(await raw_call(semel.port, request(shape, PING)))
        assert (other.semel, other.last["result"]) == ("passed", {"method": "ping"})
    assert bank.paid == ["a"]
    assert bank.asked == [pays(1, "a"), PING]


@pytest.mark.parametrize("shape", ["plain", "space", "chunks", "gzip"])
async def test_a_batch(tmp_path: Path, shape: str) -> None:
    """Its parts are taken out of it, and go on in plain."""
    async with Bank() as bank, inside(tmp_path, bank.port) as semel:
        batch = [pays(1, "a"), PING, pays(2, "b")]
        for _ in range(2):
            (told,) = heard(await raw_call(semel.port, request(shape, batch))).messages
            assert sorted(str(each["id"]) for each in told) == ["1", "2", "ping"]
    assert sorted(bank.paid) == ["a", "b"]


async def test_a_long_one(tmp_path: Path) -> None:
    """Beyond what is read in passing: as whole, and as much the same call, as a short one."""
    order = "ä" * 100_000
    async with Bank(events=True) as bank, inside(tmp_path, bank.port) as semel:
        texts = [request("plain", pays(1, order)), request("gzip", [pays(2, order), PING])]
        alone, batch = [heard(await raw_call(semel.port, text)) for text in texts]
        assert alone.last["result"] == {"paid": 1}
        (array,) = batch.messages
        found = {each["id"]: each["result"] for each in array}
        assert found == {2: {"paid": 1}, "ping": {"method": "ping"}}
        other = heard(await raw_call(semel.port, request("plain", pays(3, order + "x"))))
        assert other.last["result"] == {"paid": 2}
    assert bank.paid == [order, order + "x"]


async def test_the_same_bytes_again_and_again(tmp_path: Path) -> None:
    """A client that numbers its requests anew: each is answered under its own number, whose call it was."""
    async with Bank() as bank, inside(tmp_path, bank.port) as semel:
        assert heard(await raw_call(semel.port, request("plain", pays(1, "a")))).semel == "executed"
        said = [heard(await raw_call(semel.port, request("plain", pays(7, "a")))) for _ in range(4)]
        assert [each.semel for each in said] == ["replayed"] * 4
        assert [each.last["id"] for each in said] == [7] * 4
    assert bank.paid == ["a"]
