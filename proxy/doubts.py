"""Calls in doubt that are asked for again: what the rule allows is done, or they stay held.

A probe is a safe question to the upstream, asked with the credentials of whoever makes the call again, or
with those that semel holds itself where an operator asks. What it finds settles the call by the same table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from proxy.asking import Sendable
from proxy.clock import Clock
from proxy.core import decide as core
from proxy.core.canonical import Body
from proxy.core.clauses import OnDoubt, Probe
from proxy.core.cost import cost_of
from proxy.core.document import Json, document_of, fill
from proxy.core.doubt import (
    Absent,
    Ask,
    Finding,
    Found,
    Held,
    Resend,
    Unclear,
    Unread,
    absence_counts_from,
    finding,
    way_out,
)
from proxy.core.encoding import Undecodable, codings, decode
from proxy.core.headers import Headers, end_to_end
from proxy.core.intent import Call, Entry, Event, State
from proxy.core.matching import Seen, names_in
from proxy.core.patterns import split_path
from proxy.core.policy import Rule
from proxy.ledger import Ledger
from proxy.observe import Observer, Sent
from proxy.outgoing import check_address
from proxy.recorded import Unrepeatable, sent_request
from proxy.refusals import in_doubt
from proxy.store.base import Store
from proxy.store.codec import Codec
from proxy.upstream.base import Answered, Lost, NotSent, Outgoing, UpstreamClient

# A probe's answer is one record; whoever waits for it is waited for himself.
LARGEST_ANSWER = 4 * 1024 * 1024
LONGEST_PROBE = 30.0
# What belongs to the call's own body, or would change what the probe is answered.
_NOT_ASKED = frozenset(
    {
        *(b"accept", b"accept-encoding", b"content-type", b"content-length", b"content-encoding", b"expect"),
        *(b"idempotency-key", b"range", b"prefer", b"content-md5", b"content-digest", b"digest"),
        *(b"x-http-method", b"x-http-method-override", b"x-method-override"),
    }
)
_CONDITIONS = b"if-"


class Doubts:
    def __init__(
        self,
        *,
        store: Store,
        ledger: Ledger,
        codec: Codec,
        upstream: UpstreamClient,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._codec = codec
        self.upstream = upstream
        self._clock = clock
        self._observer = observer

    async def may_resend(self, call: Call, rule: Rule, sending: Sendable) -> bool:
        """True: it may be sent again. False: it is settled by now, look again. Raises InDoubt."""
        assert call.doubt is not None  # Call refuses to be in doubt without one
        if rule.in_doubt is OnDoubt.HOLD:
            raise in_doubt(call, call.doubt)
        now = self._clock.now()
        mark = await self._store.clock_mark(now) if rule.in_doubt is OnDoubt.RESEND else now
        match way_out(call, rule, now=now, mark=mark):
            case Resend():
                return True
            case Ask():
                found = await self.probe(call, rule, sending.outgoing(), sending.base_path)
                if isinstance(found, Unclear):
                    raise in_doubt(call, call.doubt, found.why)
                return False
            case Held(why):
                raise in_doubt(call, call.doubt, why)
            case way:
                assert_never(way)

    async def probe(
        self,
        call: Call,
        rule: Rule,
        out: Outgoing,
        base_path: str,
        actor: str | None = None,
        reason: str = "",
        nameless: bool = False,
    ) -> Finding:
        """Ask, and settle what is found. `out`: the way to the upstream, with credentials; of its request
        only headers are taken. `actor`, `reason`: a person's. `nameless`: no credential is known here."""
        probe = rule.probe
        if probe is None:
            return Unclear("the rule has no probe")
        try:
            question = await self._question(call, rule, probe, out, base_path)
        except Unrepeatable as error:
            return Unclear(str(error))
        if question is None:
            return Unclear("the probe asks for an argument that the call does not have")
        history = await self._store.history(call.key)
        known_since = self._ledger.known_doubts.since(call)
        counts_from = absence_counts_from(known_since, out.timeouts.total, probe)
        asked_at = self._clock.monotonic()  # the answer is not younger than the question
        told = await self._ask(question, call)
        if isinstance(told, str):
            return Unclear(told)
        answer = _readable(told.headers, told.body)
        is_repeat = _is_repeat(call, history)
        found = finding(
            probe, told.status, answer, is_repeat=is_repeat, counts_from=counts_from, now=asked_at
        )
        if isinstance(found, Absent) and nameless:
            found = Unclear(
                "the upstream was asked without a credential, and may hide from nobody what it has: make the "
                "call again with one, or let semel hold it (`inject`)"
            )
        if not isinstance(found, Unclear):
            await self._settle(call, rule, found, told, actor, reason)
        return found

    async def _question(
        self, call: Call, rule: Rule, probe: Probe, out: Outgoing, base_path: str
    ) -> Outgoing | None:
        stored, spool = await sent_request(self._store, self._codec, call)
        check_address(stored, out)
        body = b"" if spool is None else spool.whole()
        path, _, query = stored.target.partition(b"?")
        raw_path = path.decode().removeprefix(base_path)
        readable = _decoded(stored.headers, body)
        seen = Seen(stored.headers, query, lambda: readable)
        names = names_in(rule, stored.method, split_path(raw_path), seen)
        if names is None:
            raise Unrepeatable(f"the rule {rule.name} is for other calls by now")
        document = document_of(path=names, query=query, body=readable)
        terms, sent_at = call.terms, call.sent_at or call.created_at
        words = {"sent_at": f"{int(terms.keyed_at if terms is not None and terms.key else sent_at)}"}
        words["upstream_key"] = "" if terms is None else terms.key
        target = fill(probe.target, document, words)
        if target is None:
            return None
        kept = [pair for pair in end_to_end(out.headers) if not _is_of_the_call(pair[0].lower())]
        headers = (*kept, (b"Accept", b"application/json"))
        timeouts = replace(out.timeouts, total=min(out.timeouts.total, LONGEST_PROBE))
        return out._replace(
            method=probe.method,
            target=(base_path + target).encode(),
            headers=headers,
            body=None,
            head=b"",
            timeouts=timeouts,
        )

    async def _ask(self, question: Outgoing, call: Call) -> _Told | str:
        began, told = self._clock.monotonic(), _Told()
        result = await self.upstream.send(question, told, lambda: True)
        seconds = self._clock.monotonic() - began
        self._observer.sent(Sent(upstream=call.upstream, rule=call.rule, code=result.code, seconds=seconds))
        match result:
            case NotSent(reason) | Lost(reason):
                return f"the probe was not answered: {reason}"
            case Answered():
                return told if not told.too_long else "the answer to the probe is too long"
            case _:
                assert_never(result)

    async def _settle(
        self, call: Call, rule: Rule, found: Found | Absent, told: _Told, actor: str | None, reason: str
    ) -> None:
        """A swap that is lost leaves the call to whoever won it."""
        ttl, now = None if call.run else rule.ttl, self._clock.now()
        asked = f": {reason}" if reason else ""
        if isinstance(found, Absent):
            why = f"a probe did not find it, it was not executed{asked}"
            settlement = core.Settlement(event=Event.NOT_EXECUTED, why=why, ttl=ttl)
        else:
            status, headers, body = told.status, told.headers, told.body
            if rule.probe is not None and rule.probe.result is not None:
                status, body = 200, json.dumps(found.result).encode()
                headers = ((b"Content-Type", b"application/json"),)
            answer = await self._ledger.answers.given(status, headers, body, now)
            settlement = core.Settlement(
                event=Event.ANSWERED,
                why=f"a probe found it ({told.status}){asked}",
                answer=answer,
                ttl=ttl,
                cost_usd=cost_of(rule, status, headers, body),
            )
        await self._ledger.find_out(call, settlement, actor)


def _is_repeat(call: Call, history: Sequence[Entry]) -> bool:
    """Whether an identical call may have been executed before it: by another number, under another key of the
    client's, or under this very name and forgotten since."""
    before = any(entry.after is State.DONE for entry in history)
    return call.occurrence > 1 or bool(call.named_by) or before


class _Told:
    """A sink for a small answer."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Headers = ()
        self.body = b""
        self.too_long = False

    def head(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers

    async def data(self, chunk: bytes) -> None:
        self.too_long = self.too_long or len(self.body) + len(chunk) > LARGEST_ANSWER
        if not self.too_long:
            self.body += chunk


def _is_of_the_call(name: bytes) -> bool:
    return name in _NOT_ASKED or name.startswith(_CONDITIONS)


def _readable(headers: Headers, body: bytes) -> Json | Unread:
    try:
        return json.loads(decode(body, codings(headers), LARGEST_ANSWER))
    except (ValueError, Undecodable, RecursionError):
        return Unread()


def _decoded(headers: Headers, body: bytes) -> Body:
    content_type = next((value for name, value in headers if name.lower() == b"content-type"), b"")
    media_type = content_type.split(b";", 1)[0].strip().lower().decode("latin-1")
    try:
        data = decode(body, codings(headers), LARGEST_ANSWER)
    except Undecodable:
        return Body(data=body)
    return Body(media_type=media_type, content_type=content_type, data=data)
