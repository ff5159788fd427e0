"""The agent's trace: forwarded as it came, told in the log, and with `traces: otlp` a span for each call."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from proxy.app import App
from proxy.errors import ConfigurationError
from proxy.settings_values import Traces
from proxy.tracing import make_spans
from tests.inside import call, raw_call, request_bytes, semel, until
from tests.origin import READ_ALL, Origin, Reset, Step, answer

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = {"Traceparent": f"00-{TRACE}-{PARENT}-01", "Tracestate": "congo=t61rcWkgMzE"}
UNSAMPLED = {"Traceparent": f"00-{TRACE}-{PARENT}-00"}
SECRET = "s3cr3t"
KEY = {"Authorization": f"Bearer {SECRET}"}
FIRST = f'{{"a": "{SECRET}"}}'.encode()
FINE: tuple[Step, ...] = (*READ_ALL, answer(200, b"ok"))


def policy(port: int) -> str:
    return (
        f"upstream: pay\nbase_url: http://127.0.0.1:{port}\n"
        "rules: [{name: charge, match: {method: POST, path: /charge}, cost: {usd: 0.5}}]\n"
    )


@asynccontextmanager
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Span]]:
    """What OpenTelemetry sends to, by its own variables."""
    spans: list[Span] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                told = ExportTraceServiceRequest()
                told.ParseFromString(body)
                for of_resource in told.resource_spans:
                    named = {each.key: each.value.string_value for each in of_resource.resource.attributes}
                    assert named["service.name"] == "semel"
                    spans.extend(span for scope in of_resource.scope_spans for span in scope.spans)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n"
                )
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")  # spans go past it
    try:
        yield spans
    finally:
        server.close()


@asynccontextmanager
async def traced(tmp_path: Path, *scripts: Sequence[Step]) -> AsyncIterator[App]:
    origin = Origin(*scripts)
    async with origin, semel(tmp_path, policy(origin.port), settings={"traces": "otlp"}) as app:
        yield app


@asynccontextmanager
async def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *scripts: Sequence[Step]
) -> AsyncIterator[tuple[list[Span], App]]:
    """The spans are all there when it has ended."""
    async with collector(monkeypatch) as spans, traced(tmp_path, *scripts) as app:
        yield spans, app


def headers_of(trace: str) -> dict[str, str]:
    return {"traceparent": f"00-{trace}-{PARENT}-01"}


def facts(span: Span) -> dict[str, object]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def named(spans: Sequence[Span], *names: str) -> list[Span]:
    return [span for span in spans if span.name in names]


async def test_the_trace_goes_upstream_as_it_came_and_into_the_log(tmp_path: Path) -> None:
    """Whether it went there or was given again; it names no call. One that is malformed is not logged."""
    log = io.StringIO()
    async with Origin(FINE, FINE) as origin, semel(tmp_path, policy(origin.port), log=log) as app:
        port = app.address.port
        other = {"traceparent": TRACEPARENT["Traceparent"].replace(TRACE, "1" * 32)}
        odd = {"traceparent": "00-" + "0" * 32 + f"-{PARENT}-01"}
        got = [await call(port, "POST", "/pay/charge", given, b"{}") for given in (TRACEPARENT, other, odd)]
        assert [each.semel for each in got] == ["executed", "replayed", "replayed"]
        assert (await call(port, "GET", "/pay/x", odd)).semel == "passed"
        sent = [
            [pair for pair in seen.headers if pair[0].lower().startswith(b"trace")]
            for seen in origin.requests
        ]
        assert sent[0] == [(name.encode(), value.encode()) for name, value in TRACEPARENT.items()]
        assert sent[1] == [(name.encode(), value.encode()) for name, value in odd.items()]
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [line.get("trace") for line in lines if line["event"] == "call"] == [TRACE, "1" * 32, None, None]


async def test_a_span_for_each_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the agent's own; in it what the upstream and the store took. semel's own pages have none."""
    async with world(tmp_path, monkeypatch, FINE, (*READ_ALL, Reset())) as (spans, app):
        port = app.address.port
        statuses = [
            (await call(port, "POST", f"/pay/charge?q={SECRET}", {**TRACEPARENT, **KEY}, body)).semel
            for body in (FIRST, FIRST, b'{"a": 2}')
        ]
        assert statuses == ["executed", "replayed", "refused"]
        await call(port, "POST", f"/pay/charge?q={SECRET}", {**UNSAMPLED, **KEY}, FIRST)
        assert (await call(port, "GET", "/metrics")).status == 200
        await call(port, "POST", "/nobody/x", {}, b"")
    calls = named(spans, "POST pay/charge")
    told = [facts(span) for span in calls]
    assert [each["semel.status"] for each in told] == statuses
    assert {span.trace_id.hex() for span in calls} == {TRACE}
    assert {span.parent_span_id.hex() for span in calls} == {PARENT}
    assert [each.get("semel.problem") for each in told] == [None, None, "in-doubt"]
    assert [each.get("semel.cost_usd") for each in told] == [0.5, 0.5, None]
    assert [span.status.code == Status.STATUS_CODE_ERROR for span in calls] == [False, False, True]
    assert len({each["semel.call"] for each in told}) == 2
    upstream = named(spans, "upstream")
    assert [facts(span)["semel.code"] for span in upstream] == ["200", "lost"]
    assert [span.parent_span_id for span in upstream] == [calls[0].span_id, calls[2].span_id]
    assert all(span.trace_id.hex() == TRACE for span in upstream)
    commits = named(spans, "store swap")
    assert [span.parent_span_id for span in commits].count(calls[0].span_id) == 2
    inside = {span.span_id for span in calls}
    for span in (*upstream, *commits):
        assert span.parent_span_id in inside
        assert span.start_time_unix_nano <= span.end_time_unix_nano
    alone = [span for span in spans if span.trace_id.hex() != TRACE]
    assert {(span.name, bytes(span.parent_span_id)) for span in alone} == {("POST /", b"")}
    shown = "".join(str(span) for span in spans)
    assert SECRET not in shown


async def test_calls_at_once_have_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each exchange finds the call that made it, on however many connections."""
    many = 20
    async with world(tmp_path, monkeypatch, *[FINE] * many) as (spans, app):
        traces = [f"{n + 1:032x}" for n in range(many)]
        await asyncio.gather(
            *(
                call(
                    app.address.port,
                    "POST",
                    "/pay/charge",
                    {"traceparent": f"00-{one}-{PARENT}-01"},
                    one.encode(),
                )
                for one in traces
            )
        )
    for one in traces:
        (span,) = [each for each in named(spans, "POST pay/charge") if each.trace_id.hex() == one]
        (sent,) = [each for each in named(spans, "upstream") if each.trace_id.hex() == one]
        assert sent.parent_span_id == span.span_id


async def test_a_collector_that_is_away_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls are answered; the shutdown does not wait for it longer than it says, and then nothing is tried
    any more: with the connection the thread ends that waits on it."""
    others = set(threading.enumerate())
    monkeypatch.setattr("proxy.spans.PATIENCE", 0.01)
    taken: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: taken.append(writer), "127.0.0.1", 0)
    monkeypatch.setenv(
        "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    )
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    try:
        async with asyncio.timeout(60), traced(tmp_path, FINE) as app:
            assert (await call(app.address.port, "POST", "/pay/charge", {}, b"{}")).semel == "executed"
            await until(lambda: taken)  # it waits for an answer that never comes
        assert not any(writer.is_closing() for writer in taken)
    finally:
        silent.close()
        for writer in taken:
            writer.close()
            await writer.wait_closed()
    await until(lambda: not [one for one in threading.enumerate() if one not in others and is_traces(one)])


def is_traces(thread: threading.Thread) -> bool:
    return thread.name.startswith(("OtelBatch", "semel-traces"))


async def test_trouble_with_sending_spans_is_told_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of its lines; the library writes none of its own."""
    log = io.StringIO()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    origin = Origin(FINE)
    async with origin, semel(tmp_path, policy(origin.port), settings={"traces": "otlp"}, log=log) as app:
        await call(app.address.port, "POST", "/pay/charge", {}, b"{}")
        await until(lambda: "spans-trouble" in log.getvalue())
    assert all(json.loads(line)["event"] for line in log.getvalue().splitlines())


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """And who asks for no traces needs nothing."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "proxy.spans", raising=False)
    monkeypatch.delattr("proxy.spans", raising=False)
    assert make_spans(Traces.OFF, print) is None
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[otel\]'"):
        make_spans(Traces.OTLP, print)


async def test_who_names_two_traces_belongs_to_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the log and in spans alike; both go upstream."""
    two = request_bytes("POST", "/pay/charge", {**headers_of(TRACE), **headers_of_another()}, b"{}")
    origin, log = Origin(FINE), io.StringIO()
    async with (
        collector(monkeypatch) as spans,
        origin,
        semel(tmp_path, policy(origin.port), settings={"traces": "otlp"}, log=log) as app,
    ):
        assert (await raw_call(app.address.port, two)).semel == "executed"
        assert [name for name, _ in origin.requests[0].headers].count(b"traceparent") == 1
        assert [name for name, _ in origin.requests[0].headers].count(b"Traceparent") == 1
    (line,) = [line for line in map(json.loads, log.getvalue().splitlines()) if line["event"] == "call"]
    assert "trace" not in line
    (span,) = named(spans, "POST pay/charge")
    assert (span.trace_id.hex() in (TRACE, "1" * 32), bytes(span.parent_span_id)) == (False, b"")


def headers_of_another() -> dict[str, str]:
    return {"Traceparent": f"00-{'1' * 32}-{PARENT}-01"}


async def test_spans_sent_to_semel_itself_make_no_more_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By mistake it is its own collector, and an upstream takes what it sends: each send would make
    another."""
    monkeypatch.setattr("proxy.spans.PATIENCE", 0.01)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}/pay")
    settings = {"traces": "otlp", "listen": f"127.0.0.1:{port}"}
    origin = Origin(*[FINE] * 10)
    async with origin, semel(tmp_path, policy(origin.port), settings=settings):
        await call(port, "POST", "/pay/charge", TRACEPARENT, b"{}")
        await until(lambda: len(origin.requests) > 1 and origin.requests[1].complete)
    sent = origin.requests[1:]
    for seen in sent:
        assert b"/v1/traces" in seen.head
        (parent,) = [value for name, value in seen.headers if name.lower() == b"traceparent"]
        assert parent.endswith(b"-00")  # not sampled: what semel does for it makes no spans


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5000"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "x"),
    ],
)
async def test_a_variable_that_the_library_refuses_is_a_mistake_of_its_author(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """Told as such, and not as a defect."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match="OpenTelemetry refuses a variable"):
        make_spans(Traces.OTLP, print)


async def test_a_collectors_credentials_are_in_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The library quotes what it cannot read, before anything is sent."""
    log = io.StringIO()
    for number, name in enumerate(("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")):
        monkeypatch.setenv(name, f"Authorization Bearer {SECRET}, x {SECRET}")
        async with semel(tmp_path, policy(1), settings={"traces": "otlp"}, log=log):
            pass
        told = [line for line in map(json.loads, log.getvalue().splitlines()) if "Header" in str(line)]
        assert len(told) == 2 * (number + 1), log.getvalue()
        assert SECRET not in log.getvalue()
    assert SECRET not in "".join(capfd.readouterr())
