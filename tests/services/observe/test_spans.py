"""Spans and who takes them: in memory, over OTLP from a real receiver, and from none that answers."""

from __future__ import annotations

import gzip
import logging
import socket
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from edge.wire.trace_id import step_span_id, step_trace_id
from services.config import Settings, TracesSettings
from services.errors import ConfigError
from services.observe import spans as spans_module
from services.observe.spans import MOST_WAITING, Spans
from services.tracing import open_spans
from tests.patience import patience_s, until

STEP = "demo", 1_646_093_100_000
TRACE, ROOT = step_trace_id(*STEP), step_span_id(*STEP)
NEVER_S = 3600.0


class Receiver:
    """A collector on loopback: takes OTLP over HTTP, or holds requests without an answer."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], ExportTraceServiceRequest]] = []
        self.asked = threading.Semaphore(0)
        self.holds, self.status = False, 200
        self.let_go = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.asked.release()
                if receiver.holds:
                    receiver.let_go.wait()
                assert self.path == "/v1/traces"
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.got.append((headers, ExportTraceServiceRequest.FromString(body)))
                self.send_response(receiver.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing on the terminal."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.let_go.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


class Held(SpanExporter):
    """Takes nothing until it is let go, and fails while it is told to."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()
        self.fails, self.sent = False, 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.begun.set()
        self.let_go.wait()
        if self.fails:
            return SpanExportResult.FAILURE
        self.sent += len(spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing to do."""


def settings_of(folder: Path, endpoint: str, headers: str = "", share: float = 1.0) -> Settings:
    """Settings with a collector."""
    file = folder / "headers"
    file.write_text(headers)
    traces = TracesSettings(endpoint=endpoint, share=share, headers_file=file if headers else None)
    return Settings(data_dir=folder, traces=traces)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of the collector."""
    return [record.getMessage() for record in caplog.records if record.name == "services.observe.spans"]


def test_spans_of_two_processes_are_one_trace() -> None:
    """Each makes the ids of the step by itself: the root of one is the parent of the other's."""
    taken = InMemorySpanExporter(), InMemorySpanExporter()
    shard, main = (Spans(exporter, {"service.name": "hothouse"}) for exporter in taken)
    main.add("tell", TRACE, (30, 40), {"hothouse.channel": "mqtt"}, parent_id=ROOT)
    shard.add("step", TRACE, (10, 20), {}, span_id=ROOT, error="late")
    shard.close()
    main.close()
    (root,), (child,) = (exporter.get_finished_spans() for exporter in taken)
    assert (root.context.trace_id, root.context.span_id) == (int(TRACE, 16), int(ROOT, 16))
    assert root.parent is None
    assert (root.start_time, root.end_time, root.status.status_code) == (10, 20, StatusCode.ERROR)
    assert child.context.trace_id == root.context.trace_id
    assert child.parent.span_id == root.context.span_id
    assert child.attributes == {"hothouse.channel": "mqtt"}


def test_a_share_is_the_same_share_in_every_process() -> None:
    """What is traced depends on the trace's id alone, and a trace is there as a whole or not at all."""
    steps = [("demo", 300_000 * n) for n in range(400)]
    taken = InMemorySpanExporter(), InMemorySpanExporter()
    for exporter in taken:
        spans = Spans(exporter, {}, share=0.25)
        for step in steps:
            spans.add("a", step_trace_id(*step), (1, 2), {}, span_id=step_span_id(*step))
            spans.add("b", step_trace_id(*step), (1, 2), {}, parent_id=step_span_id(*step))
        spans.close()
    one, other = ([(s.name, s.context.trace_id) for s in exporter.get_finished_spans()] for exporter in taken)
    assert one == other
    assert sorted(trace for name, trace in one if name == "a") == sorted(trace for name, trace in one if name == "b")
    assert 60 < len(one) / 2 < 140


def test_nobody_waits_for_an_exporter_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    """What does not fit into the queue is dropped and counted, and so is what could not be sent; the rest goes."""
    held = Held()
    spans = Spans(held, {}, every_s=0.01)
    spans.add("first", TRACE, (1, 2), {}, span_id=ROOT)
    assert held.begun.wait(patience_s(10))
    for _ in range(MOST_WAITING + 9):
        spans.add("more", TRACE, (1, 2), {}, parent_id=ROOT)
    assert spans.dropped == 10  # the first waits, too
    held.let_go.set()
    until(lambda: held.sent == MOST_WAITING)
    assert spans.dropped == 10
    caplog.set_level(logging.INFO, "services")
    held.fails = True
    for number in range(1, 4):
        spans.add("lost", TRACE, (1, 2), {}, parent_id=ROOT)
        until(lambda number=number: spans.dropped == 10 + number)
    held.fails = False
    spans.add("again", TRACE, (1, 2), {}, parent_id=ROOT)
    until(lambda: len(said(caplog)) > 1)
    spans.close()
    assert held.sent == MOST_WAITING + 1
    assert [line.partition(",")[0] for line in said(caplog)] == [
        "the collector does not take spans", "the collector takes spans again",
    ]  # fmt: skip


def test_a_collector_gets_them_over_otlp(tmp_path: Path, receiver: Receiver) -> None:
    """Protobuf to /v1/traces, with the headers of the file and with who made them."""
    spans = open_spans(settings_of(tmp_path, receiver.url, "Authorization: Bearer a:b\n\nx-team: green\n"), "shard-1")
    assert spans is not None
    spans.add("step", TRACE, (10, 20), {"hothouse.site": "demo"}, span_id=ROOT)
    spans.close()
    until(lambda: receiver.got)
    [(headers, request)] = receiver.got
    assert (headers["authorization"], headers["x-team"]) == ("Bearer a:b", "green")
    assert headers["content-type"] == "application/x-protobuf"
    [resource] = request.resource_spans
    made_by = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert (made_by["service.name"], made_by["service.instance.id"]) == ("hothouse-shard", "shard-1")
    assert len(made_by["service.namespace"]) == 12
    [span] = resource.scope_spans[0].spans
    assert (span.trace_id.hex(), span.span_id.hex(), span.name) == (TRACE, ROOT, "step")
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (10, 20)


def test_a_collector_that_never_answers_holds_up_no_end(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends waits for so long as it is told, though the request still hangs."""
    monkeypatch.setattr(spans_module, "LIMIT_S", NEVER_S)
    monkeypatch.setattr(spans_module, "CLOSE_S", 0.05)
    receiver.holds = True
    spans = open_spans(settings_of(tmp_path, receiver.url), "main")
    assert spans is not None
    spans.add("step", TRACE, (10, 20), {}, span_id=ROOT)
    spans.close()
    assert receiver.asked.acquire(timeout=patience_s(10))
    assert not receiver.got


@pytest.mark.parametrize("away", ["refused", "forbidden"])
def test_a_collector_that_takes_nothing_is_counted(
    tmp_path: Path, receiver: Receiver, away: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Nothing listens, or the token is wrong: the log says which, once, and the terminal nothing."""
    monkeypatch.setattr(spans_module, "LIMIT_S", 3.0)  # time for one more try
    caplog.set_level(logging.INFO, "services")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        receiver.status = 403
        url = f"http://127.0.0.1:{free.getsockname()[1]}" if away == "refused" else receiver.url
        spans = open_spans(settings_of(tmp_path, url), "main")
        assert spans is not None
        spans.add("step", TRACE, (10, 20), {}, span_id=ROOT)
        until(lambda: said(caplog))
        spans.close()
    [line] = said(caplog)
    assert spans.dropped == 1
    assert line.startswith("the collector does not take spans")
    assert {"refused": "Connection refused", "forbidden": "403"}[away] in line
    assert capfd.readouterr().err == ""


def test_without_an_endpoint_there_is_nothing(tmp_path: Path) -> None:
    """Neither a thread nor an import."""
    before = threading.active_count()
    assert open_spans(Settings(data_dir=tmp_path), "main") is None
    assert threading.active_count() == before


@pytest.mark.parametrize("content", ["a-token", ": a-token"])
def test_a_wrong_file_of_headers_is_one_sentence(tmp_path: Path, content: str) -> None:
    """It names the setting, and never what is in the file."""
    with pytest.raises(ConfigError, match=r"traces\.headers_file") as refused:
        open_spans(settings_of(tmp_path, "http://127.0.0.1:1", content), "main")
    assert "a-token" not in refused.value.message
