"""What one component tells, as the API shows it, between a server of its own and a real Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server

from edge.prometheus import FiguresCollector
from services.runtime.ports import free_port
from services.serve.components import ApiFigures, Figures, told_by
from tests.patience import patience_s, until
from tests.prometheus.rule_file import quickened
from tests.prometheus.server import Prometheus

__all__ = ["ends", "fires", "watched"]


@contextmanager
def watched(folder: Path, component: str, figures: Callable[[], Figures]) -> Iterator[Prometheus]:
    """Prometheus, with rules whose ranges are short; ``figures`` is asked at each scrape."""
    registry, port = CollectorRegistry(auto_describe=False), free_port()
    own = ApiFigures(refused=0, streams=0, zones=0, zones_usable=0, zones_degraded=0, component_age_s={}, ready=True)
    registry.register(FiguresCollector(lambda: told_by({component: figures()}, own)))
    server, thread = start_http_server(port, "127.0.0.1", registry)
    try:
        with Prometheus(folder / "prometheus", {"hothouse": f"127.0.0.1:{port}"}, quickened(times=3600)) as prometheus:
            until(lambda: prometheus.query("hothouse_api_ready == 1"), "it is scraped")
            yield prometheus
    finally:
        server.shutdown()
        server.server_close()
        thread.join(patience_s(30))


def fires(prometheus: Prometheus, *names: str) -> None:
    """Wait until each has fired."""
    waited = set(names)

    def all_have() -> bool:
        waited.difference_update(prometheus.firing())
        return not waited

    until(all_have, f"{' and '.join(names)} fire")


def ends(prometheus: Prometheus, *names: str) -> None:
    """Wait until none fires any more."""
    until(lambda: not set(names) & prometheus.firing(), f"{' and '.join(names)} end")
