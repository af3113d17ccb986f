"""One id from samples to alert: in the log of a shard and of who tells an alert, and in their spans."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from edge.clock import ReplayedClock
from edge.gateway.record_builder import Message, RecordBuilder
from edge.gateway.refusal_lines import RefusalLines
from edge.log import NewRecord
from edge.log.memory import MemoryLog
from edge.wire.samples import encode_samples
from edge.wire.topic import sample_topic
from edge.wire.trace_id import step_end_ms, step_trace_id
from services.alert.delivery import Deliverer
from services.alert.delivery_trace import DeliveryTrace
from services.alert.retained_alerts import RetainedAlerts
from services.observe.logs import log_to_file
from services.observe.spans import Spans
from tests.services.ingest.alerts.greenhouse import records
from tests.services.ingest.alerts.nights import HOUR, in_pieces, small
from tests.services.ingest.rig import Clock, Rig, day, filled
from tests.services.ingest.samples import STEP, T0, sample

A_STEP = 11  # records of a step, its ticks among them
SILENT, STEPS = range(HOUR, 2 * HOUR), 3 * HOUR + 2


class Hangs(SpanExporter):
    """Never answers."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        threading.Event().wait()
        raise AssertionError

    def shutdown(self) -> None:
        """Nothing to do."""


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    """A log in JSON."""
    file = folder / f"{name}.log"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def followed(folder: Path) -> tuple[Rig, list[dict[str, Any]], list[ReadableSpan]]:
    """Three hours in which a zone is silent for one, an alert of which is told: what the logs say, and the spans."""
    taken = InMemorySpanExporter()
    end = log_to_file(folder / "logs", "shard-0", "json", "debug")
    rig = small(folder, MemoryLog(1))
    rig.spans = Spans(taken, {})
    root, trace = rig.settings.storage_folder, DeliveryTrace(rig.spans)
    deliverer = Deliverer(root, RetainedAlerts(root, lambda _: None, 60.0, lambda: 0.0, trace), Clock())
    shard = rig.shard()
    for piece in in_pieces(list(records(STEPS, silent=SILENT)), A_STEP):
        rig.log.append(piece)
        rig.drain(shard)
        deliverer.look()
    shard.close()
    rig.spans.close()
    end()
    return rig, lines(folder / "logs", "shard-0"), list(taken.get_finished_spans())


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], list[ReadableSpan]]:
    """See :func:`followed`."""
    _, said, spans = followed(tmp_path_factory.mktemp("story"))
    return said, spans


def of(said: list[dict[str, Any]], logger: str) -> list[dict[str, Any]]:
    """The lines of one logger."""
    return [line for line in said if line["logger"] == f"services.{logger}"]


def test_an_alert_has_the_id_of_its_forecast_and_of_its_rows(story: Any) -> None:
    """The line of the change, and that of who was told, are found with the lines of the step that they are of."""
    said, _ = story
    changes = of(said, "ingest.alerts.alert_output")
    [fired] = [line for line in changes if "is firing: no fresh readings" in line["message"]]
    assert (fired["site"], fired["zone"], fired["component"]) == ("demo", "z2", "shard-0")
    same = [line for line in said if line.get("trace_id") == fired["trace_id"]]
    assert {line["step"] for line in same} == {fired["step"]}
    words = [line["message"].partition(",")[0] for line in same if line["logger"] != fired["logger"]]
    assert words[:2] == ["rows of 2 zones closed", "forecast of 2 zones issued"]
    assert [line["alert"] for line in of(same, "alert.delivery_trace")] == [fired["alert"]]
    assert {line["alert"] for line in of(said, "alert.delivery_trace")} == {line["alert"] for line in changes}
    [over] = [line for line in changes if line["alert"] == fired["alert"] and line is not fired]
    assert over["step"] > fired["step"]
    assert over["trace_id"] in {line["trace_id"] for line in of(said, "ingest.sinks.step_trace")}


def test_a_step_is_one_trace(story: Any) -> None:
    """Each part has its span, in the order of the work, below the one of the step; so has what was told of it."""
    said, spans = story
    [fired] = [line for line in said if "is firing: no fresh readings" in line["message"]]
    mine = [span for span in spans if span.context.trace_id == int(fired["trace_id"], 16)]
    by_name = {span.name: span for span in mine}
    order = ["read", "close rows", "learn", "forecast", "publish"]
    assert set(by_name) == {*order, "step", "look for alerts", "tell"}
    root = by_name["step"]
    assert root.parent is None
    assert {span.parent.span_id for span in mine if span is not root} == {root.context.span_id}
    times = [at for name in order for at in (by_name[name].start_time, by_name[name].end_time)]
    assert times == sorted(times)
    assert root.start_time == times[0]
    assert root.end_time >= times[-1]
    assert root.attributes["hothouse.forecast"] is True
    assert by_name["tell"].attributes["hothouse.alert"] == fired["alert"]


def test_each_step_has_one_root(story: Any) -> None:
    """None is left open, and none ends twice."""
    said, spans = story
    closed = [line["trace_id"] for line in of(said, "ingest.sinks.step_trace") if line["level"] == "DEBUG"]
    roots = [f"{span.context.trace_id:032x}" for span in spans if span.name == "step"]
    assert len(closed) > 2 * HOUR
    assert sorted(roots) == sorted(closed)


@pytest.mark.thorough
def test_a_replay_makes_the_same_ids(tmp_path: Path, story: Any) -> None:
    """They are a function of the log: another shard on another machine gives each line the same one."""
    _, again, _ = followed(tmp_path)
    named = [
        [(line["message"], line.get("trace_id"), line.get("alert")) for line in said] for said in (story[0], again)
    ]
    assert named[0] == named[1]


def test_a_forecast_that_fails_is_found_with_the_one_that_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of each step that waits a line, once."""
    caplog.set_level(logging.INFO, "services")
    rig = Rig(tmp_path, filled(list(day(3))))
    shard = rig.shard()
    rig.forecaster.away = True
    for _ in range(3):
        rig.clock.now_s += 10
        shard.step()
    rig.forecaster.away = False
    rig.clock.now_s += 10
    rig.drain(shard)
    told = {name: [r.fields["trace_id"] for r in caplog.records if r.name == f"services.ingest.{name}"]
            for name in ("queue", "sinks.step_trace")}  # fmt: skip
    assert len(told["queue"]) == len(set(told["queue"])) > 0
    assert set(told["queue"]) <= set(told["sinks.step_trace"])


def test_what_is_kept_out_has_the_id_of_its_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A late sample that of the step which closed without it; a refused message the one that the gateway's log says."""
    caplog.set_level(logging.INFO)
    log = MemoryLog(1)
    late = encode_samples([sample(T0 + STEP, 900, "z1")])
    log.append([*day(5), NewRecord("demo", "samples", T0 + 4 * STEP, late)])
    topic = sample_topic("demo", "z1", "climate")
    came_ms = T0 + 5 * STEP + 7
    builder = RecordBuilder(ReplayedClock(came_ms), STEP)
    refused = builder.take([Message(topic, b"{"), Message(topic, b"["), Message(topic, b"{}")])
    RefusalLines(STEP).tell(zip(refused, log.append(refused), strict=True))
    rig = Rig(tmp_path, log)
    rig.drain(rig.shard())
    told = {r.getMessage().partition(":")[0]: r.fields for r in caplog.records if hasattr(r, "fields")}
    gateway = told[f"refused on {topic}, malformed"]
    assert gateway["trace_id"] == step_trace_id("demo", step_end_ms(came_ms, STEP))
    assert gateway == told[f"kept out on {topic}, malformed"]
    assert told[f"kept out on {topic}, late"]["trace_id"] == step_trace_id("demo", T0 + STEP)
    assert sum("malformed" in r.getMessage() and r.name.startswith("edge") for r in caplog.records) == 1


def test_a_collector_that_hangs_changes_no_row_and_no_forecast(tmp_path: Path) -> None:
    """With traces, without them, and with none who takes them, a shard leaves the same files."""
    contents = []
    for name in ("off", "on"):
        rig = Rig(tmp_path / name, filled(list(day(8))))
        if name == "on":
            rig.spans = Spans(Hangs(), {}, every_s=0.01)
        shard = rig.shard()
        rig.drain(shard)
        shard.close()
        contents.append(rig.content(("zones", "devices", "forecasts")))
    assert contents[0] == contents[1]
    assert contents[0]
