"""Spans by OpenTelemetry, for those who collect them: one for each call, and inside it one for each exchange
with an upstream or with the store.

A span of a call is begun before anything is read and ended by what is told of it: what is told of nobody
(semel's own pages) never ends, and is never sent. Whatever a call sets going runs in its context, so that an
exchange finds its call. No path, no query, no header and no body is in any of them.

The package is an extra: without `traces: otlp` nothing here is imported, and no call pays for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import Any

import requests
from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proxy import __version__
from proxy.core.headers import Headers
from proxy.core.trace import trace_of
from proxy.front.turns import HttpRequest
from proxy.observe import Deaf, Sent, Served

# How long a shutdown waits for the last spans to be taken.
PATIENCE = 5.0
# The library's own variables that say how to sign in at the collector.
_SECRETS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_LIBRARY = logging.getLogger("opentelemetry")
_LIBRARY.addHandler(logging.NullHandler())  # what it says when nobody listens any more is not for stderr
_W3C = TraceContextTextMapPropagator()


def otlp() -> SpanExporter:
    """By OpenTelemetry's own variables; never through a proxy, which may be this very process. Nor is it a
    part of any trace: where it is sent to this process by mistake, what is sent makes no further spans."""
    session = requests.Session()
    session.trust_env = False
    session.headers["traceparent"] = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00"
    return OTLPSpanExporter(session=session)


class Spans(Deaf):
    """`tell` hears what goes wrong with sending them."""

    def __init__(self, exporter: Callable[[], SpanExporter], tell: Callable[..., None]) -> None:
        """Raises ValueError where the library refuses a variable of its own."""
        self._trouble = _Trouble(asyncio.get_running_loop(), tell)
        _LIBRARY.addHandler(self._trouble)
        _LIBRARY.propagate = False  # else it would write its own lines between those of the log
        try:
            resource = Resource.create({"service.name": "semel", "service.version": __version__})
            self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
            self._exporter = exporter()
            self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        except ValueError:
            _LIBRARY.removeHandler(self._trouble)
            raise
        self._tracer = self._provider.get_tracer("semel", __version__)

    def around(self, handler: Callable[[HttpRequest], Awaitable[Any]]) -> Callable[[HttpRequest], Any]:
        """The handler, each request in a span of its own, as a part of the trace that the caller names."""

        async def traced(request: HttpRequest) -> Any:  # noqa: ANN401 (whatever the handler gives)
            span = self._tracer.start_span("call", _agents(request.raw_headers), SpanKind.SERVER)
            within = copy_context()
            within.run(context.attach, trace.set_span_in_context(span))
            # A task, since a request is begun in whatever context it arrives, and goes on in another.
            serving = asyncio.get_running_loop().create_task(_awaited(handler(request)), context=within)
            try:
                return await serving
            except asyncio.CancelledError:
                serving.cancel()  # where the cancellation came by another way than through this await
                await asyncio.wait({serving})
                raise

        return traced

    def served(self, told: Served) -> None:
        span = trace.get_current_span()
        if not span.is_recording():
            return  # not sampled, or one of several that came as one request
        span.update_name(f"{told.method} {told.upstream}/{told.rule}")
        facts: dict[str, str | float] = {
            "http.request.method": told.method,
            "http.response.status_code": told.code,
            "semel.status": told.status,
            "semel.upstream": told.upstream,
            "semel.rule": told.rule,
            "semel.mode": told.mode,
            "semel.tool": told.tool,
            "semel.call": told.call,
            "semel.problem": told.problem,
            "semel.cost_usd": told.cost_usd,
        }
        span.set_attributes({name: value for name, value in facts.items() if value})
        if told.problem or told.code >= 500:
            span.set_status(StatusCode.ERROR, told.problem or None)
        span.end()

    def sent(self, told: Sent) -> None:
        failed = not told.code.isdigit() or told.code >= "500"  # lost, not sent, or worse than our fault
        facts = {"semel.upstream": told.upstream, "semel.rule": told.rule, "semel.code": told.code}
        self._past("upstream", told.seconds, SpanKind.CLIENT, facts, told.code if failed else "")

    def store_took(self, operation: str, seconds: float) -> None:
        self._past(f"store {operation}", seconds, SpanKind.INTERNAL, {})

    def _past(
        self, name: str, seconds: float, kind: SpanKind, facts: dict[str, str], failed: str = ""
    ) -> None:
        """What has just ended, in the call that made it happen; else it is nobody's, and not told."""
        if not trace.get_current_span().get_span_context().is_valid:
            return
        ended = time.time_ns()
        began = ended - int(seconds * 1e9)
        span = self._tracer.start_span(name, kind=kind, attributes=facts, start_time=began)
        if failed:
            span.set_status(StatusCode.ERROR, failed)
        span.end(ended)

    async def stop(self) -> None:
        """Hand over what is left, within PATIENCE: who collects spans must not hold up a shutdown. In a
        thread that nobody waits for in the end, as the executor's would be."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop is gone
                loop.call_soon_threadsafe(ended.set)

        Thread(target=end, name="semel-traces", daemon=True).start()
        try:
            await asyncio.wait_for(ended.wait(), PATIENCE)
        except TimeoutError:
            self._exporter.shutdown()  # else it goes on trying for as long as this process lives
        _LIBRARY.removeHandler(self._trouble)


class _Trouble(logging.Handler):
    """The library's own warnings, from whatever thread, in the log of semel."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Callable[..., None]) -> None:
        super().__init__(logging.WARNING)
        self._loop = loop
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone
            told = partial(self._tell, "spans-trouble", error=_without_secrets(record.getMessage()))
            self._loop.call_soon_threadsafe(told)


def _without_secrets(text: str) -> str:
    """The library quotes a header that it cannot read, and most of them are credentials."""
    for variable in _SECRETS:
        for secret in filter(None, map(str.strip, os.environ.get(variable, "").split(","))):
            text = text.replace(secret, "…")
    return text


async def _awaited(serving: Awaitable[Any]) -> Any:  # noqa: ANN401 (whatever the handler gives)
    return await serving


def _agents(headers: Headers) -> context.Context:
    """The context that the caller names, by the same measure as the log."""
    if not trace_of(headers):
        return context.Context()
    return _W3C.extract({name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers})
