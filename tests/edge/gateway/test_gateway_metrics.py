"""Prometheus reads the gateway's figures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import get_type_hints
from unittest.mock import Mock

import httpx
import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from edge.clock import WallClock
from edge.figure_fields import figures_of, readings
from edge.gateway import Gateway, GatewayOptions, GatewayStatus
from edge.gateway.metrics import MetricsServer
from edge.log.memory import MemoryLog
from tests.edge.gateway.statuses import STATUS
from tests.patience import patience_s


class Told:
    """A gateway's status that a test changes."""

    def __init__(self) -> None:
        self.status = STATUS

    def __call__(self) -> GatewayStatus:
        return self.status


@pytest.fixture
def told() -> Told:
    """What the gateway tells."""
    return Told()


@pytest.fixture
def url(told: Told) -> Iterator[str]:
    """Where it is answered."""
    server = MetricsServer("127.0.0.1", 0, told)
    yield f"http://127.0.0.1:{server.port}/metrics"
    server.close()


def scraped(url: str) -> dict[str, float]:
    """What Prometheus reads there."""
    answer = httpx.get(url, timeout=patience_s(30), trust_env=False)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain")
    return {sample.name: sample.value for one in text_string_to_metric_families(answer.text) for sample in one.samples}


def test_every_figure_is_shown(url: str) -> None:
    """Each number of the status but its process is one metric; what fails is in words for people."""
    found = scraped(url)
    assert {field for (field,) in figures_of(GatewayStatus)} == set(get_type_hints(GatewayStatus)) - {
        "pid",
        "last_error",
    }
    assert set(found) == {figure.name for figure in figures_of(GatewayStatus).values()}
    assert (found["hothouse_gateway_samples_total"], found["hothouse_gateway_connected"]) == (25, 1)


def test_a_log_that_is_no_file_has_no_free_room() -> None:
    """With Kafka nobody knows it, and nothing is told: 0 bytes would be a full disk (HothouseGatewayDiskLow)."""
    gateway = Gateway(GatewayOptions(), MemoryLog(4), WallClock())
    status = gateway.status()
    assert status["bytes_free"] is None
    assert "hothouse_gateway_free_bytes" not in {figure.name for figure, _, _ in readings(GatewayStatus, status)}


@pytest.mark.parametrize(("uplink_error", "log_error"), [("the central broker is away", ""), ("", "the log is full")])
def test_an_uplink_that_is_away_is_no_failure_to_acknowledge(uplink_error: str, log_error: str) -> None:
    """HothouseGatewayFailing wakes people: what the buffer keeps until the uplink is back is none."""
    gateway = Gateway(GatewayOptions(), MemoryLog(4), WallClock())
    gateway._uplink, gateway._log_error = Mock(last_error=uplink_error), log_error
    gateway._link.last_error = ""
    status = gateway.status()
    assert (status["last_error"], status["failing"]) == (uplink_error or log_error, bool(log_error))


def test_a_gateway_says_when_it_was_started() -> None:
    """The time of each start is its own, by which Prometheus sees that it is started again and again."""
    before_ms = time.time_ns() // 1_000_000
    gateway = Gateway(GatewayOptions(), MemoryLog(4), WallClock())
    started_ms = gateway.status()["started_ms"]
    assert before_ms <= started_ms <= time.time_ns() // 1_000_000
    assert gateway.status()["started_ms"] == started_ms


def test_names_and_units_follow_the_conventions(url: str) -> None:
    """Times are seconds, sizes bytes, names end in the unit; a counter's ends in ``_total``, no other's."""
    found = scraped(url)
    assert found["hothouse_gateway_oldest_unsent_seconds"] == 1.5
    assert found["hothouse_gateway_updated_timestamp_seconds"] == 7.5
    assert found["hothouse_gateway_started_timestamp_seconds"] == 0.5
    assert found["hothouse_gateway_free_bytes"] == 4096
    assert not [name for name in found if name.endswith(("_s", "_ms"))]
    counters = {figure.name for figure in figures_of(GatewayStatus).values() if figure.kind == "counter"}
    assert {name for name in found if name.endswith("_total")} == counters


def test_the_figures_are_those_of_the_scrape(url: str, told: Told) -> None:
    """Each scrape asks anew; what fails shows as one."""
    before = scraped(url)
    told.status = {**STATUS, "samples": 26, "last_error": "no broker", "failing": True}
    after = scraped(url)
    changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    assert changed == {"hothouse_gateway_samples_total": (25, 26), "hothouse_gateway_failing": (0, 1)}


def test_openmetrics_is_answered_where_it_is_asked_for(url: str) -> None:
    """A Prometheus that prefers OpenMetrics gets it, by its own strict rules."""
    asked = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answer = httpx.get(url, headers=asked, timeout=patience_s(30), trust_env=False)
    families = {one.name: one.type for one in openmetrics.text_string_to_metric_families(answer.text)}
    assert families["hothouse_gateway_samples"] == "counter"
    assert families["hothouse_gateway_oldest_unsent_seconds"] == "gauge"


def test_a_taken_port_is_an_error(url: str) -> None:
    """Whoever starts a second gateway on the port hears of it."""
    with pytest.raises(OSError, match="in use"):
        MetricsServer("127.0.0.1", int(url.rsplit(":")[-1].split("/")[0]), lambda: STATUS)
