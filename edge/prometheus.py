"""Declared figures as families of prometheus-client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from edge.figure_fields import readings

__all__ = ["FiguresCollector", "Told"]

Told = tuple[type, Mapping[str, Any], Mapping[str, str]]
"""A structure of figures, its values, and labels that say whose they are."""


class FiguresCollector(Collector):
    """A family for each declared figure, with the samples of all who have it; ``told`` is asked at each scrape."""

    def __init__(self, told: Callable[[], Iterable[Told]]) -> None:
        self._told = told

    def collect(self) -> Iterator[Metric]:
        """The families, in the order of declaration."""
        families: dict[str, Metric] = {}
        for structure, values, labels in self._told():
            for figure, keys, number in readings(structure, values):
                family = families.get(figure.name)
                if family is None:
                    name = figure.name.removesuffix("_total")
                    family = families[figure.name] = Metric(name, figure.help, figure.kind, figure.unit)
                own = zip(figure.labels, keys, strict=True)
                family.add_sample(figure.name, {**labels, **dict(own)}, number)
        yield from families.values()
