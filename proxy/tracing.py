"""Whether spans are made. What makes them is an extra: who does not ask for it needs none of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from proxy.errors import ConfigurationError
from proxy.settings_values import Traces

if TYPE_CHECKING:
    from proxy.spans import Spans


def make_spans(traces: Traces, tell: Callable[..., None]) -> Spans | None:
    if traces is Traces.OFF:
        return None
    try:
        from proxy import spans
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("opentelemetry", "requests"):
            raise
        raise ConfigurationError(
            "traces: otlp needs the package opentelemetry, which is not installed. In semel's checkout: "
            "pip install '.[otel]'"
        ) from None
    try:
        return spans.Spans(spans.otlp, tell)
    except ValueError as error:
        raise ConfigurationError(f"traces: otlp: OpenTelemetry refuses a variable OTEL_…: {error}") from None
