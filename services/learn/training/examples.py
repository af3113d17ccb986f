"""Step 14 of the way of a reading: the rows that models are compared on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from models.features.windows import WindowSet
from models.spec import ForecastSpec, Place
from models.trees.example_set import ExampleSet
from services.learn.training import dataset
from services.learn.training.dataset import DataRange
from services.messages import I64
from services.store.storage import StorageAddress

__all__ = ["EVALUATED_ORIGINS", "EVALUATED_ZONES", "cases_of", "origins_after", "spread", "zone_places"]

EVALUATED_ZONES = {"windows": 200, "examples": 12, "forecasts": 12}
"""Zones that models are compared on, at most, spread evenly over all: bounds memory and time. Models that take examples
are fitted on these zones, too."""
EVALUATED_ORIGINS = 10_000
CASES: Mapping[str, type[WindowSet]] = {"windows": WindowSet, "examples": ExampleSet}


def cases_of(
    whole: DataRange, files: Sequence[str], spec: ForecastSpec, places: Mapping[str, Place], takes: str,
    where: StorageAddress | None = None,
) -> WindowSet:  # fmt: skip
    """The rows of ``whole`` as cases for models that take windows or examples.

    ``places`` are those of sites. Raises :class:`HistoryError` without rows.
    """
    zones = sorted(whole.rows)[:: -(-len(whole.rows) // EVALUATED_ZONES[takes])]
    rows = dataset.gather(files, spec.channels, whole.from_ms - 1, whole.to_ms, zones, where)
    names = np.array(rows.zones)[rows.zone_ids]
    return CASES[takes].from_columns(names, rows.end_ms, rows.values, zone_places(places, whole), spec)


def origins_after(cut_ms: int, cases: WindowSet) -> I64:
    """The origins from the cut on, of zones that were there for a day: as warm a climatology as in service."""
    origins = cases.origins(cases.spec.steps_per_day)
    return origins[cases.times(origins) >= cut_ms]


def spread(origins: I64, most: int) -> I64:
    """At most this many of them, drawn evenly over times and zones; always the same ones."""
    if len(origins) <= most:
        return origins
    return origins[np.sort(np.random.default_rng(0).choice(len(origins), most, replace=False))]


def zone_places(places: Mapping[str, Place], found: DataRange) -> dict[str, Place]:
    """The place of each zone (``site/zone``): that of its site."""
    return {zone: places.get(zone.split("/", 1)[0], Place()) for zone in found.rows}
