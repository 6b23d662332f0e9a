"""OpenTelemetry spans, where its packages are installed and its own settings say where spans go; otherwise nothing of it is loaded.

A request's span is the child of the caller's (`traceparent`, W3C Trace Context). Below it are `queue`, the wait for a worker, `solve`, and
below that the steps that the search told of. The settings are OpenTelemetry's: OTEL_EXPORTER_OTLP_ENDPOINT, or OTEL_TRACES_EXPORTER=console.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from app.service.pool import Answer, Tell

__all__ = ["Traces", "trace_id", "traces_from"]

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
EXPORTER = "OTEL_TRACES_EXPORTER"
SERVICE = "watersmeet"
SECOND = 1_000_000_000  # nanoseconds, which spans count in
TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
NOTHING = "0" * 32

log = logging.getLogger("watersmeet.traces")


def trace_id(headers: Mapping[bytes, bytes]) -> str:
    """The trace that the caller says this request is part of; empty where it does not say."""
    found = TRACEPARENT.fullmatch(headers.get(b"traceparent", b"").decode("latin-1").strip())
    return found[1] if found and found[1] != NOTHING else ""


def traces_from(environment: Mapping[str, str] = os.environ) -> Traces | None:
    """Where spans are asked for, what makes them."""
    exporter = environment.get(EXPORTER, "").strip().lower()
    if exporter == "none" or (exporter != "console" and not any(environment.get(name, "").strip() for name in ENDPOINTS)):
        return None
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

        chosen: SpanExporter
        if exporter == "console":
            chosen = ConsoleSpanExporter(formatter=lambda span: f"{span.to_json(indent=None)}\n")
        else:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            chosen = OTLPSpanExporter()
    except ImportError as missing:
        log.warning("no traces: install watersmeet[traces]", extra={"missing": missing.name})
        return None
    provider = TracerProvider(resource=Resource.create({"service.name": environment.get("OTEL_SERVICE_NAME", SERVICE)}))
    provider.add_span_processor(BatchSpanProcessor(chosen))
    return Traces(provider)


class Traces:
    """Makes the spans of requests."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._tracer: Tracer = provider.get_tracer(SERVICE)

    def begin(self, method: str, path: str, headers: Mapping[bytes, bytes], request_id: str) -> Span:
        """The span of a request."""
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carried = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items() if name in (b"traceparent", b"tracestate")}
        return self._tracer.start_span(
            f"{method} {path}",
            context=TraceContextTextMapPropagator().extract(carried),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method, "url.path": path, "watersmeet.request_id": request_id},
        )

    def end(self, span: Span, status: int) -> None:
        from opentelemetry.trace import StatusCode

        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_status(StatusCode.ERROR)
        span.end()

    async def solve(self, span: Span, ask: Callable[[Tell], Awaitable[Answer]], tell: Tell | None) -> Answer:
        """The answer; its wait, its solve and the solve's steps become spans."""
        began, told = time.time_ns(), list[tuple[int, bytes]]()

        def hear(incumbent: bytes) -> None:
            told.append((time.time_ns(), incumbent))
            if tell is not None:
                tell(incumbent)

        answer = await ask(hear)
        start = began + round(answer.waited * SECOND)
        self._span("queue", span, began, start)
        solve = self._span("solve", span, start, time.time_ns(), {"watersmeet.solve_seconds": answer.seconds, "watersmeet.complete": answer.complete})
        self._steps(solve, start, told)
        return answer

    def _steps(self, solve: Span, start: int, told: Sequence[tuple[int, bytes]]) -> None:
        """A step lasts until another is told of; each ends with the best that was known then. What follows a colon is how far a step is."""
        found = [(at, json.loads(content)) for at, content in told]
        names = [incumbent["step"].partition(":")[0] for _, incumbent in found]
        begun = start
        for (at, incumbent), name, following in zip(found, names, [*names[1:], None], strict=True):
            if name != following:
                self._span(
                    name or "search", solve, begun, at, {f"watersmeet.{figure}": incumbent[figure] for figure in ("cpu", "memory_bytes", "gap")}
                )
                begun = at

    def _span(self, name: str, parent: Span, begin: int, end: int, attributes: Mapping[str, Any] | None = None) -> Span:
        from opentelemetry.trace import set_span_in_context

        known = {key: value for key, value in (attributes or {}).items() if value is not None}
        span = self._tracer.start_span(name, context=set_span_in_context(parent), start_time=begin, attributes=known)
        span.end(end_time=max(begin, end))
        return span

    def close(self) -> None:
        """Send what has not been sent."""
        self._provider.shutdown()
