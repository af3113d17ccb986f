"""Prometheus text: a counter is what counts, under a name that some component reports."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from edge.gateway import GatewayStatus
from edge.log.memory import MemoryLog
from services.learn.learning_status import LearningCounts
from services.observe.metrics import COUNTERS, PARTS, prometheus_text
from tests.services.ingest.rig import Rig


def _lines(stats: dict[str, dict[str, object]]) -> list[str]:
    return [line for line in prometheus_text(stats, {}).decode().splitlines() if not line.startswith("#")]


def test_every_counter_is_reported_by_a_component(tmp_path: Path) -> None:
    """No name in the list is one that nothing reports: it would hide that the real figure is shown as a gauge."""
    reported = {field.name for field in fields(GatewayStatus)} | {field.name for field in fields(LearningCounts)}
    reported |= {"restarts"}  # of the gateway's process, by who started it
    figures = Rig(tmp_path, MemoryLog(1)).shard().stats()
    reported |= {*figures, *(f"{part}_{name}" for part in PARTS for name in figures[part])}
    assert sorted(COUNTERS - reported) == []


def test_figures_of_the_series_store_are_figures_of_their_own() -> None:
    """What was sent is a counter, what waits is a gauge; the error's text is no figure."""
    series = {"queued": 3, "sent": 70, "refused": 0, "dropped": 2, "retries": 1, "last_error": "away"}
    assert _lines({"shard-0": {"series": series}}) == [
        'hothouse_series_dropped_total{component="shard-0"} 2.0',
        'hothouse_series_queued{component="shard-0"} 3.0',
        'hothouse_series_refused_total{component="shard-0"} 0.0',
        'hothouse_series_retries_total{component="shard-0"} 1.0',
        'hothouse_series_sent_total{component="shard-0"} 70.0',
    ]
