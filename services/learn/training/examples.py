"""Step 14 of the way of a reading: the rows that models are compared on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from models.network.training import WindowSet
from models.spec import ForecastSpec, Place
from services.learn.training import dataset
from services.learn.training.dataset import DataRange
from services.messages import I64

__all__ = ["EVALUATED_ORIGINS", "origins_after", "spread", "zone_places"]

EVALUATED_ZONES = 200
"""Zones that models are compared on, at most, spread evenly over all: bounds memory and time."""
EVALUATED_ORIGINS = 10_000


def origins_after(
    cut_ms: int, whole: DataRange, files: Sequence[str], spec: ForecastSpec, places: Mapping[str, Place]
) -> tuple[WindowSet, I64]:
    """Windows over ``whole``, so that the climatology is as warm as in service, and the origins from the cut on.

    ``places`` are those of sites. Raises :class:`HistoryError` without rows.
    """
    zones = sorted(whole.rows)[:: -(-len(whole.rows) // EVALUATED_ZONES)]
    rows = dataset.gather(files, spec.channels, whole.from_ms - 1, whole.to_ms, zones)
    names = np.array(rows.zones)[rows.zone_ids]
    windows = WindowSet.from_columns(names, rows.end_ms, rows.values, zone_places(places, whole), spec)
    origins = windows.origins(spec.steps_per_day)
    return windows, origins[windows.times(origins) >= cut_ms]


def spread(origins: I64, most: int) -> I64:
    """At most this many of them, drawn evenly over times and zones; always the same ones."""
    if len(origins) <= most:
        return origins
    return origins[np.sort(np.random.default_rng(0).choice(len(origins), most, replace=False))]


def zone_places(places: Mapping[str, Place], found: DataRange) -> dict[str, Place]:
    """The place of each zone (``site/zone``): that of its site."""
    return {zone: places.get(zone.split("/", 1)[0], Place()) for zone in found.rows}
