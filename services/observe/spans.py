"""Spans of OpenTelemetry: made here and nowhere else, and sent by a thread of the SDK. A leaf: it knows no part.

Spans are made when they are over, from times that were taken on the way, so what is traced needs no SDK. The exporter
is an extra (``traces``) and is imported only where an endpoint is named.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

__all__ = ["MOST_WAITING", "Spans", "otlp_exporter"]

_log = logging.getLogger(__name__)

MOST_WAITING = 4096
"""Spans that wait for the collector; about 1 KB each."""
EVERY_S = 2.0
LIMIT_S = 10.0
CLOSE_S = 2.0


class Spans:
    """Makes spans and hands them to ``exporter``; any thread may call it, and nobody ever waits for the exporter.

    ``made_by`` is what the spans tell of their process (OpenTelemetry's resource). ``dropped`` counts spans that came
    while ``MOST_WAITING`` waited, and those that the exporter failed to send.
    """

    def __init__(
        self, exporter: SpanExporter, made_by: Mapping[str, str], share: float = 1.0, every_s: float = EVERY_S
    ) -> None:
        self._sampler = TraceIdRatioBased(share)
        self._ids = _GivenIds()
        self._queue = _BoundedQueue(exporter, every_s)
        provider = TracerProvider(
            ParentBased(self._sampler), Resource(dict(made_by)), shutdown_on_exit=False, id_generator=self._ids
        )
        provider.add_span_processor(self._queue)
        self._tracer = provider.get_tracer("hothouse")

    @property
    def dropped(self) -> int:
        """How many spans did not get to the collector, since this was made."""
        return self._queue.dropped

    def is_sampled(self, trace_id: str) -> bool:
        """Whether the share has this trace: the same in each process."""
        decision = self._sampler.should_sample(None, int(trace_id, 16), "").decision
        return decision is not Decision.DROP

    def add(
        self, name: str, trace_id: str, times_ns: tuple[int, int], attributes: Mapping[str, str | int], *,
        span_id: str = "", parent_id: str = "", sampled: bool | None = None, is_request: bool = False, error: str = "",
    ) -> None:  # fmt: skip
        """A span that is over. Without ``span_id`` it gets one by chance, without ``parent_id`` it is a trace's root.
        ``sampled`` is what the parent's process has decided; ``None``: the share decides. Times are Unix times.
        """
        context = Context()
        if parent_id:
            is_sampled = self.is_sampled(trace_id) if sampled is None else sampled
            flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
            parent = SpanContext(int(trace_id, 16), int(parent_id, 16), is_remote=True, trace_flags=flags)
            context = trace.set_span_in_context(NonRecordingSpan(parent), context)
        self._ids.give(trace_id, span_id)
        kind = SpanKind.SERVER if is_request else SpanKind.INTERNAL
        span = self._tracer.start_span(name, context, kind, attributes, start_time=times_ns[0])
        if error:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end(times_ns[1])

    def close(self) -> None:
        """Send what waits, within ``CLOSE_S``; a collector that hangs holds nobody up."""
        closing = threading.Thread(target=self._queue.shutdown, name="close spans", daemon=True)
        closing.start()
        closing.join(CLOSE_S)


def otlp_exporter(endpoint: str, headers: Mapping[str, str]) -> SpanExporter:
    """Posts spans in protobuf to ``/v1/traces`` of the endpoint. Raises ``ImportError`` without the extra."""
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(
        f"{endpoint.rstrip('/')}/v1/traces", headers=headers, timeout=LIMIT_S, compression=Compression.Gzip
    )


class _GivenIds(RandomIdGenerator):
    """Ids that the thread has been given for its next span; random ones where it was given none."""

    def __init__(self) -> None:
        self._next = threading.local()

    def give(self, trace_id: str, span_id: str) -> None:
        self._next.ids = int(trace_id, 16), int(span_id, 16) if span_id else super().generate_span_id()

    def generate_trace_id(self) -> int:
        found: int = self._next.ids[0]
        return found

    def generate_span_id(self) -> int:
        found: int = self._next.ids[1]
        return found


class _BoundedQueue(BatchSpanProcessor):
    """The SDK's queue and thread. When it is full the newest spans are dropped, and counted; the SDK itself drops the
    oldest, and says so with each.
    """

    def __init__(self, exporter: SpanExporter, every_s: float) -> None:
        self._counting = threading.Lock()
        self._waiting = self.dropped = 0
        told = _Counted(exporter, self._left)
        super().__init__(told, MOST_WAITING, every_s * 1000, MOST_WAITING // 8, LIMIT_S * 1000)

    def on_end(self, span: ReadableSpan) -> None:
        if not (span.context and span.context.trace_flags.sampled):
            return
        with self._counting:
            if self._waiting >= MOST_WAITING:
                self.dropped += 1
                return
            self._waiting += 1
        super().on_end(span)

    def _left(self, count: int, sent: bool) -> None:
        with self._counting:
            self._waiting -= count
            self.dropped += 0 if sent else count


class _Counted(SpanExporter):
    """Tells ``left`` of each batch and whether it was sent, and the log of the first failure and of its end."""

    def __init__(self, exporter: SpanExporter, left: Callable[[int, bool], None]) -> None:
        self._exporter, self._left, self._fails = exporter, left, False
        # The exporter tells each try to a logger of its own, and the last resort of that is the terminal.
        logging.getLogger(type(exporter).__module__).addFilter(_WHY)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result, _WHY.words = SpanExportResult.FAILURE, ""
        try:
            result = self._exporter.export(spans)
        finally:
            sent = result is SpanExportResult.SUCCESS
            self._left(len(spans), sent)
            if sent == self._fails:
                self._fails = not sent
                if sent:
                    _log.info("the collector takes spans again")
                else:
                    _log.warning("the collector does not take spans, which are dropped and counted: %s", _WHY.words)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class _Reason(logging.Filter):
    """Keeps why a try failed; that no more are made, which comes after it, says less."""

    words = ""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.ERROR or not self.words:
            self.words = record.getMessage()[:300]
        return False


_WHY = _Reason()
