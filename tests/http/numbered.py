"""One semel before an origin whose n-th answer says n: who gets which answer shows which call it was."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.inside import Answer, call, semel
from tests.origin import READ_ALL, Origin, Script, answer

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Place:
    """One semel before an origin whose n-th answer says n."""

    def __init__(self, origin: Origin, port: int) -> None:
        self.origin = origin
        self.port = port

    async def post(
        self, path: str = "x", body: bytes = b'{"a": 1}', headers: Mapping[str, str] | None = None
    ) -> Answer:
        return await call(self.port, "POST", f"/up/{path}", {**JSON, **(headers or {})}, body)


@asynccontextmanager
async def place(
    tmp_path: Path, rules: str = "[]", *scripts: Script, credentials: str = "[]"
) -> AsyncIterator[Place]:
    numbered = [(*READ_ALL, answer(200, b"answer %d" % number)) for number in range(1, 50)]
    async with Origin(*(scripts or numbered)) as origin:
        address = f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}"
        policy = f"{address}\ncredentials: {credentials}\nrules: {rules}\n"
        async with semel(tmp_path, policy) as app:
            yield Place(origin, app.address.port)


def problem(got: Answer) -> str:
    assert got.get("Content-Type") == "application/problem+json", got
    return str(json.loads(got.body)["type"]).removeprefix("urn:semel:")
