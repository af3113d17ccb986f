"""Declared figures as Prometheus text, and as the page of the documentation that lists them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest

from edge.figure_fields import figures_of
from edge.prometheus import FiguresCollector, Told

__all__ = ["CONTENT_TYPE", "metrics_page", "prometheus_text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_HEAD = """\
# Metrics

`GET /metrics` answers these for Prometheus. The label `component` says which part told a figure: `shard-0` and so on,
`retrainer`, `retrainer-trees`, `retrainer-tuned`, `forecaster` (all its replicas), `gateway`, `runtime` (the process
`hothouse up`). The figures of the API replica that answers have none, nor have those of a gateway that runs alone and
answers for itself (`gateway.metrics_port`).

`field` is where `GET /status` has the figure, under `components`. There a field that ends in `_ms` is in milliseconds.
What a shard counts of samples, rows and forecasts goes on over a restart, and is a function of the log; while it reads
again what was counted before, these counters are not there, so that none goes back. All other counters begin at 0 with
their process. Each reason, kind and channel that we know is there with 0 from the start; what
a decoder of your own calls its reasons begins with the first such message. A replica of the API that a live state has
not answered for 15 seconds leaves out what that one told, which would be older than what other replicas tell.

No label names a zone or a device: 1,000 zones would be thousands of series. What is of one zone is in InfluxDB and on
the page. Let Prometheus scrape one address for all replicas of the API: each tells the figures of all components, and
two addresses would count them twice. Alert rules are in `deploy/prometheus/`, a page for each in
[runbooks](runbooks/README.md).

This page is made from the code. Renew it with `.venv/bin/python -m services.serve.components > docs/metrics.md`.
"""


def prometheus_text(told: Iterable[Told]) -> bytes:
    """The exposition of what is told: structures, values, labels.

    >>> from typing import Annotated, TypedDict
    >>> from edge.figure_fields import counter
    >>> late = counter("hothouse_samples_late_total", "Samples whose row had closed.")
    >>> Counts = TypedDict("Counts", {"late": Annotated[int, late]})
    >>> print(prometheus_text([(Counts, {"late": 7}, {"component": "shard-0"})]).decode(), end="")
    # HELP hothouse_samples_late_total Samples whose row had closed.
    # TYPE hothouse_samples_late_total counter
    hothouse_samples_late_total{component="shard-0"} 7.0
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FiguresCollector(lambda: told))
    return generate_latest(registry)


def metrics_page(structures: Mapping[str, type]) -> str:
    """The page: a table for each component, a row for each figure, in the order of declaration."""
    parts = [_HEAD]
    for component, structure in structures.items():
        rows = [
            f"| `{figure.name}` | {figure.kind} | {figure.unit} | {', '.join(f'`{label}`' for label in figure.labels)}"
            f" | `{'.'.join(path)}` | {figure.help} |"
            for path, figure in figures_of(structure).items()
        ]
        if rows:
            head = ["| metric | kind | unit | labels | field | meaning |", "|---|---|---|---|---|---|"]
            parts.append(
                "\n".join([f"## {component.capitalize() if component != 'API' else component}", "", *head, *rows, ""])
            )
    return "\n".join(parts)
