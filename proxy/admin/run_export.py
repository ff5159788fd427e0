"""A run as JSON Lines: one line for the run, one for each step with what was asked and what was answered.

Made for programs that learn from runs, and for archives. Credentials are not in it: headers, queries and path
segments are shown as `calls show` shows them. Bodies are text where they are text, else base64, without their
Content-Encoding. What cannot be given is said in its place (`left_out`), never left out in silence.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping

from proxy.admin import run_views, views
from proxy.admin.rules import Segments
from proxy.admin.views import Json
from proxy.answers import Answers
from proxy.core.encoding import Undecodable, codings, decode
from proxy.core.headers import Headers
from proxy.core.intent import Call, Place
from proxy.errors import StoreUnavailable
from proxy.recorded import lies_apart, shown_body, size_apart
from proxy.store.base import BlobLost, Store
from proxy.store.codec import Codec, DamagedRecord

# A longer body is left out: a line is read as a whole by whoever reads it. `calls/{id}/body` has it.
LARGEST_BODY = 16 * 1024 * 1024
# What is larger is made into a line in a thread: calls do not wait for it.
LARGEST_AT_ONCE = 64 * 1024


class Exporter:
    def __init__(self, *, store: Store, codec: Codec, answers: Answers, segments: Segments) -> None:
        self._store = store
        self._codec = codec
        self._answers = answers
        self._segments = segments

    async def __call__(self, seen: run_views.Seen) -> AsyncIterator[bytes]:
        about = run_views.detail(seen)
        steps = about.pop("steps")
        yield _line({"kind": "run", **about})
        for step in steps:
            yield await self._step(step)

    async def _step(self, step: Json) -> bytes:
        shown: Json = {"kind": "step", **step, "args": None, "request": None, "doubt": None, "answer": None}
        try:
            call = await self._store.get(bytes.fromhex(step["call"]))
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, DamagedRecord | UnicodeDecodeError):
                raise
            return _line(shown | {"left_out": f"the call cannot be read: {error.__cause__}"})
        if call is None:
            return _line(shown | {"left_out": "the call is gone"})

        def named(path: str) -> Mapping[str, str]:
            return self._segments(call.upstream, call.rule, path)

        detail = views.detail(call, 0, [], self._codec, named)
        asked, given = await self._asked(call), await self._given(call)

        def line() -> bytes:
            request = detail["request"]
            answer = detail["answer"]
            shown["args"] = detail["call"]["args"]
            shown["doubt"] = detail["doubt"]
            shown["damage"] = detail["damage"]
            if request is not None:
                shown["request"] = {**_without(request, "body_size", "body"), **_body(*asked)}
            if answer is not None:
                shown["answer"] = {**_without(answer, "place", "unavailable"), **_body(*given)}
            return _line(shown)

        small = len(asked[1]) + len(given[1]) <= LARGEST_AT_ONCE
        return line() if small else await asyncio.to_thread(line)

    async def _asked(self, call: Call) -> tuple[Headers, bytes, str]:
        """Headers, body, and why there is none."""
        try:
            stored = self._codec.open_request(call.request)
            if lies_apart(call, stored) and size_apart(stored) > LARGEST_BODY:
                return (), b"", _too_long(size_apart(stored))
            return stored.headers, await shown_body(self._store, call, stored), ""
        except (DamagedRecord, UnicodeDecodeError, BlobLost) as error:
            return (), b"", f"it cannot be read: {error}"

    async def _given(self, call: Call) -> tuple[Headers, bytes, str]:
        answer = call.answer
        if answer is None:
            return (), b"", ""
        if answer.place is Place.NOWHERE:
            return (), b"", answer.why_nowhere
        if answer.size > LARGEST_BODY:
            return (), b"", _too_long(answer.size)
        produced = await self._answers.produce(call, answer)
        if produced is None:
            return (), b"", "it is lost or damaged"
        try:
            body = produced.body
            whole = body if isinstance(body, bytes) else b"".join([part async for part in body])
        except BlobLost as error:
            return (), b"", f"it is damaged: {error}"
        return produced.headers, whole, ""


def _too_long(size: int) -> str:
    return f"its {size} bytes are too many for a line; `semel calls show ID --body` prints an answer's"


def _body(headers: Headers, body: bytes, left_out: str) -> Json:
    if left_out:
        return {"left_out": left_out}
    if applied := codings(headers):
        try:
            body = decode(body, applied, LARGEST_BODY)
        except Undecodable as error:
            return {"body_base64": base64.b64encode(body).decode(), "still_encoded": str(error)}
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def _without(members: Json, *names: str) -> Json:
    return {name: value for name, value in members.items() if name not in names}


def _line(members: Json) -> bytes:
    # Not orjson: arguments may hold integers of any size.
    return json.dumps(members, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
