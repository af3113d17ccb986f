"""The parts that show figures on the live state, by name, and the structure of each.

``python -m services.serve.components`` prints ``docs/metrics.md``, which is made from these structures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, TypedDict, cast

from edge.figure_fields import counter, figures_of, gauge
from edge.prometheus import Told
from services.ingest.figures import PartitionFigures, ShardFigures
from services.messages import (
    RETRAINER_ACTOR,
    ForecasterFigures,
    GatewayFigures,
    LearningFigures,
    LeftZone,
    RuntimeFigures,
)
from services.observe.metrics import metrics_page

__all__ = [
    "COMPONENTS",
    "FORECASTER",
    "SHOWN_ON_METRICS",
    "ApiFigures",
    "Figures",
    "left_in",
    "retrainers_of",
    "shards_of",
    "told_by",
]

Figures = ShardFigures | LearningFigures | ForecasterFigures | GatewayFigures | RuntimeFigures

FORECASTER = "forecaster"
"""What the replicas of the Forecaster are called together."""

COMPONENTS: dict[str, type] = {
    "shard": ShardFigures,  # shard-0, shard-1 ...
    RETRAINER_ACTOR: LearningFigures,  # retrainer: the network's; retrainer-trees, retrainer-tuned
    FORECASTER: ForecasterFigures,
    "gateway": GatewayFigures,
    "runtime": RuntimeFigures,
}
"""First part of a component's name -> what it shows."""


class ApiFigures(TypedDict):
    """What an API replica knows of itself."""

    refused: Annotated[
        int, counter("hothouse_api_refused_total", "Requests and streams that were too many of one client (429).")
    ]
    streams: Annotated[int, gauge("hothouse_api_streams", "Open streams of /events.")]
    zones: Annotated[int, gauge("hothouse_api_zones", "Zones that have a forecast.")]
    zones_usable: Annotated[
        int, gauge("hothouse_api_zones_usable", "Zones whose forecast is fresh enough for /predict to answer.")
    ]
    zones_degraded: Annotated[
        int, gauge("hothouse_api_zones_degraded", "Zones whose forecast is weaker than it should be.")
    ]
    component_age_s: Annotated[
        dict[str, float],
        gauge(
            "hothouse_component_age_seconds", "Time since the component last told its figures.",
            label="component", unit="seconds",
        ),
    ]  # fmt: skip
    trace_spans_dropped: Annotated[
        int, counter("hothouse_api_trace_spans_dropped_total", "Spans that did not get to the collector of traces.")
    ]
    ready: Annotated[bool, gauge("hothouse_api_ready", "1 while forecasts can be served, as /health/ready says.")]
    live_state_age_s: Annotated[
        dict[str, float],
        gauge(
            "hothouse_api_live_state_age_seconds", "Time since the live state last answered this replica.",
            label="live_state", unit="seconds",
        ),
    ]  # fmt: skip


SHOWN_ON_METRICS: dict[str, type] = {"API": ApiFigures, **COMPONENTS}
"""Heading of ``docs/metrics.md`` -> the structure whose figures stand there."""


def shards_of(stats: Mapping[str, Figures]) -> dict[str, ShardFigures]:
    """The figures of the shards alone."""
    return {name: cast(ShardFigures, figures) for name, figures in stats.items() if _structure(name) is ShardFigures}


def retrainers_of(stats: Mapping[str, Figures]) -> dict[str, LearningFigures]:
    """The figures of the retrainers alone, one for each expert, by name."""
    return {name: cast(LearningFigures, stats[name]) for name in sorted(stats) if _structure(name) is LearningFigures}


def left_in(figures: Figures) -> list[LeftZone]:
    """The zones that have left, by a shard's figures; of other parts none."""
    return cast(ShardFigures, figures).get("left", [])


def told_by(stats: Mapping[str, Figures], own: ApiFigures) -> Iterator[Told]:
    """What ``/metrics`` is made of: the replica's own figures and those of all components."""
    yield ApiFigures, own, {}
    for name, figures in sorted(stats.items()):
        structure = _structure(name)
        if structure is not None:
            yield structure, _rising(figures), {"component": name}


def _rising(figures: Figures) -> Figures:
    """Without the counts of a shard that reads again what was counted before it was started: a counter that goes back
    has begun at 0 for Prometheus, and all that it ever counted is an increase.
    """
    if not cast(ShardFigures, figures).get("replays"):
        return figures
    counts = {path[0] for path, figure in figures_of(PartitionFigures).items() if figure.kind == "counter"}
    return cast(Figures, {field: value for field, value in figures.items() if field not in counts})


def _structure(component: str) -> type | None:
    return COMPONENTS.get(component.partition("-")[0])


if __name__ == "__main__":
    print(metrics_page(SHOWN_ON_METRICS), end="")  # noqa: T201 - it is what it is for
