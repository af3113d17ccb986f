"""Prometheus reads the gateway's figures."""

from __future__ import annotations

import urllib.error
import urllib.request
from dataclasses import fields, replace

import pytest

from edge.gateway import GatewayStatus
from edge.gateway.metrics import METRICS, MetricsServer, exposition
from tests.patience import patience_s

STATUS = GatewayStatus(
    pid=1, updated_ms=7, connected=True, connects=2, messages=30, samples=25, refused=5, records=4, queued=3,
    dropped_qos0=0, relayed=0, last_error="", oldest_unsent_s=1.5,
)  # fmt: skip


def test_every_figure_is_shown() -> None:
    """Each number of the status is a metric with its meaning; what fails shows as one."""
    text = exposition(STATUS)
    assert set(METRICS) == {field.name for field in fields(STATUS)} - {"pid", "last_error"}
    assert "\nhothouse_gateway_samples_total 25\n" in text
    assert "\nhothouse_gateway_connected 1\n" in text
    assert text.count("# TYPE ") == text.count("# HELP ") == len(METRICS) + 1
    assert text.endswith("hothouse_gateway_failing 0\n")
    assert exposition(replace(STATUS, last_error="no broker")).endswith("hothouse_gateway_failing 1\n")


def test_metrics_are_answered_and_nothing_else() -> None:
    """GET /metrics gives the figures of now; any other path is 404."""
    server = MetricsServer("127.0.0.1", 0, lambda: STATUS)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=patience_s(30)) as answer:
            assert answer.read().decode() == exposition(STATUS)
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=patience_s(30))
    finally:
        server.close()
