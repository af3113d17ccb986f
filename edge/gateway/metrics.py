"""Step 2 of the way of a reading: the gateway's figures for Prometheus, on the bare install."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from edge.gateway.status import GatewayStatus

__all__ = ["METRICS", "GatewayCollector", "MetricsServer"]

METRICS = {
    "connected": ("gauge", "1 while the broker's subscription is alive."),
    "connects": ("counter", "Connections to the broker."),
    "messages": ("counter", "Messages taken."),
    "samples": ("counter", "Samples that passed."),
    "refused": ("counter", "Samples and messages refused."),
    "relayed": ("counter", "Records taken from other gateways."),
    "other_topics": ("counter", "Messages on topics that nothing reads, each refused."),
    "answered": ("counter", "Answers of decoders that went out to devices."),
    "unanswered": ("counter", "Answers of decoders that did not go out: another just had, or the broker was away."),
    "records": ("counter", "Records appended durably."),
    "queued": ("gauge", "Messages that wait for the log."),
    "dropped_qos0": ("counter", "Messages of quality 0 dropped because too many waited."),
    "bytes_free": ("gauge", "Bytes that the log takes before nothing is acknowledged any more."),
    "buffered_records": ("gauge", "Records that wait for the uplink."),
    "buffered_bytes": ("gauge", "Bytes of the buffer's file that hold records."),
    "oldest_unsent_s": ("gauge", "Age of the oldest record that waits."),
    "uplinked": ("counter", "Records that the central side has durably."),
    "uplink_errors": ("counter", "Failures of the uplink, each tried again."),
    "updated_ms": ("gauge", "Unix time of these figures."),
}
"""Field of ``GatewayStatus`` -> kind and meaning."""

_BASE_UNITS = {
    "bytes_free": ("free_bytes", 1.0),
    "oldest_unsent_s": ("oldest_unsent_seconds", 1.0),
    "updated_ms": ("updated_timestamp_seconds", 1e-3),
}
"""Field -> its name in Prometheus' convention, which ends in the base unit, and how many of these it counts."""


class GatewayCollector(Collector):
    """Asks ``status`` at each scrape, so that figures are current. A counter gets its ``_total`` in the text."""

    def __init__(self, status: Callable[[], GatewayStatus]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Every figure, and whether something fails."""
        values = asdict(self._status())
        for field, (kind, meaning) in METRICS.items():
            name, unit = _BASE_UNITS.get(field, (field, 1.0))
            family = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            yield family(f"hothouse_gateway_{name}", meaning, value=values[field] * unit)
        yield GaugeMetricFamily("hothouse_gateway_failing", "1 while something fails.", bool(values["last_error"]))


class MetricsServer:
    """Answers GET /metrics from a thread; ``port`` 0 takes a free one. Raises ``OSError`` when it is taken."""

    def __init__(self, host: str, port: int, status: Callable[[], GatewayStatus]) -> None:
        registry = CollectorRegistry(auto_describe=False)  # registering asks for no figures
        registry.register(GatewayCollector(status))
        self._server, self._thread = start_http_server(port, host, registry)
        self.port: int = self._server.server_port

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
