"""Components' figures as Prometheus text. A leaf: names of metrics follow from the figures' own names.

A figure that is a number becomes a gauge ``hothouse_<figure>{component}``; a table of numbers (``rejected`` by
reason) gets the label ``key``. Figures that only count up end in ``_total``. The figures of a part that a component
reports on (a shard's ``series``) are figures of their own, ``series_sent`` and so on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

__all__ = ["CONTENT_TYPE", "COUNTERS", "PARTS", "prometheus_text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

COUNTERS = frozenset({
    "accepted", "answered", "connects", "copied_records", "device_rows", "drifts", "dropped_qos0", "duplicates",
    "failed", "failures", "forced", "forecast_failures", "forecasts", "late", "messages", "other_topics", "records",
    "refused", "rejected", "relayed", "restarts", "retrains", "rows", "samples", "sensor_faults", "series_dropped",
    "series_refused", "series_retries", "series_sent", "steps", "swaps", "unanswered", "uplink_errors", "uplinked",
    "values_refused", "zone_rows",
})  # fmt: skip
"""Figures that only rise while their component lives; shards, gateway and retrainer report them."""

PARTS = ("series",)
"""Tables whose entries are figures of different kinds, not one figure by key."""

_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_]")


def prometheus_text(stats: Mapping[str, Mapping[str, Any]], own: Mapping[str, float]) -> bytes:
    """The exposition of all components' figures, and of ``own`` (name -> gauge) of who asks.

    >>> text = prometheus_text({"shard-0": {"accepted": 7, "rejected": {"malformed": 2}, "note": ""}}, {"api_zones": 1})
    >>> [line for line in text.decode().splitlines() if not line.startswith("#")]
    ['hothouse_api_zones 1.0', 'hothouse_accepted_total{component="shard-0"} 7.0', \
'hothouse_rejected_total{component="shard-0",key="malformed"} 2.0']
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(stats, own))
    return generate_latest(registry)


class _Figures:
    """A collector over plain figures; made for one exposition."""

    def __init__(self, stats: Mapping[str, Mapping[str, Any]], own: Mapping[str, float]) -> None:
        self._stats = {component: _flattened(figures) for component, figures in stats.items()}
        self._own = own

    def collect(self) -> Iterator[Metric]:
        for name, value in sorted(self._own.items()):
            yield GaugeMetricFamily(_metric(name), f"{name} of this API replica.", value=value)
        names = sorted({name for figures in self._stats.values() for name in figures})
        for name in names:
            flat = self._flat(name)
            tables = self._tables(name)
            if flat:
                yield self._family(name, ["component"], flat)
            elif tables:
                yield self._family(name, ["component", "key"], tables)

    def _flat(self, name: str) -> list[tuple[list[str], float]]:
        return [([part], float(f[name])) for part, f in sorted(self._stats.items()) if _is_number(f.get(name))]

    def _tables(self, name: str) -> list[tuple[list[str], float]]:
        return [
            ([part, str(key)], float(value))
            for part, figures in sorted(self._stats.items())
            if isinstance(figures.get(name), Mapping)
            for key, value in sorted(figures[name].items())
            if _is_number(value)
        ]

    def _family(self, name: str, labels: list[str], samples: list[tuple[list[str], float]]) -> Metric:
        family: CounterMetricFamily | GaugeMetricFamily
        if name in COUNTERS:
            family = CounterMetricFamily(_metric(name), f"{name}, since the component's state began.", labels=labels)
        else:
            family = GaugeMetricFamily(_metric(name), f"{name}, as the component last reported it.", labels=labels)
        for values, number in samples:
            family.add_metric(values, number)
        return family


def _flattened(figures: Mapping[str, Any]) -> dict[str, Any]:
    parts = {f"{part}_{name}": value for part in PARTS for name, value in figures.get(part, {}).items()}
    return {name: value for name, value in figures.items() if name not in PARTS} | parts


def _metric(name: str) -> str:
    return f"hothouse_{_NOT_ALLOWED.sub('_', name)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, bool))
