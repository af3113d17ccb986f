"""Step 2 of the way of a reading: the gateway's figures for Prometheus, on the bare install."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, start_http_server

from edge.prometheus import FiguresCollector
from edge.wire.gateway_status import GatewayStatus

__all__ = ["MetricsServer"]


class MetricsServer:
    """Answers GET /metrics from a thread; ``port`` 0 takes a free one. Raises ``OSError`` when it is taken."""

    def __init__(self, host: str, port: int, status: Callable[[], GatewayStatus]) -> None:
        registry = CollectorRegistry(auto_describe=False)  # registering asks for no figures
        registry.register(FiguresCollector(lambda: [(GatewayStatus, status(), {})]))
        self._server, self._thread = start_http_server(port, host, registry)
        self.port: int = self._server.server_port

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
