"""Step 13 of the way of a reading: trees are grown on the history, by the replay that a backtest does.

The newest weeks of some zones run through an :class:`OnlineForecaster` of their own, whose examples a
:class:`TreeGrower` fits: a shard would need 2.8 KB for each of a zone's 2,700 examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from models.features.inputs import day_bins, sun_sine
from models.features.sensor_faults import SensorFaults
from models.online.online_forecaster import OnlineForecaster
from models.spec import ForecastSpec, Place
from services.errors import TrainingError
from services.learn.training import dataset
from services.learn.trees.forest_job import ForestJob
from services.learn.trees.tree_grower import TreeGrower
from services.store.forests import Forests

__all__ = ["MAX_ZONES", "grow_forest"]

MAX_ZONES = 12
"""Zones that trees are grown on, at most, spread evenly over all: bounds memory and time."""

I64 = npt.NDArray[np.int64]
F32 = npt.NDArray[np.float32]


def grow_forest(job: ForestJob) -> str:
    """Grow trees and keep them; the name of the artefact.

    Equal rows give equal trees. Raises :class:`TrainingError` where there is too little to learn from, and
    :class:`HistoryError` or :class:`ArtefactError` where files cannot be read or written.
    """
    whole = dataset.describe(job.files, job.after_ms, job.to_ms)
    zones = sorted(whole.rows)[:: -(-len(whole.rows) // MAX_ZONES)]
    rows = dataset.gather(job.files, job.spec.channels, job.after_ms, job.to_ms, zones)
    places = [job.places.get(site, Place()) for site in rows.sites]
    forecaster, grower = OnlineForecaster(job.spec, len(zones)), TreeGrower(job.spec)
    sensors, sites = SensorFaults(job.spec.channels, job.spec.step_ms, len(zones)), np.array(rows.sites)
    for _ in zones:
        forecaster.add_zones()
        sensors.add_zones()
    for end_ms, at in _by_time(rows.end_ms):
        here, step, values = rows.zone_ids[at].astype(np.int64), end_ms // job.spec.step_ms, rows.values[at]
        bins, sun = _sky([places[z] for z in here], end_ms, job.spec)
        for site in dict.fromkeys(sites[here].tolist()):
            mine = np.flatnonzero(sites[here] == site)
            hour = int(bins[mine[0]]) * 24 // job.spec.steps_per_day
            values[mine], _ = sensors.learn(here[mine], step, values[mine], hour)
        grower.add(forecaster.examine(here, step, values, bins, sun))
    forest = grower.grow(forecaster.unit)
    if forest is None:
        raise TrainingError("the history is too short to grow trees on")
    grown_on = {**whole.as_dict(), "zones": zones, "rows": len(rows.end_ms)}
    return Forests(Path(job.storage)).keep(forest, job.spec, forecaster.regressors, grown_on)


def _by_time(ends: npt.NDArray[np.int64]) -> Iterator[tuple[int, I64]]:
    """``(end, rows)`` of each step, in order of time and zone."""
    order = np.argsort(ends, kind="stable")
    times, starts = np.unique(ends[order], return_index=True)
    yield from zip(times.tolist(), np.split(order, starts[1:]), strict=True)


def _sky(places: list[Place], end_ms: int, spec: ForecastSpec) -> tuple[I64, F32]:
    """Day bins ``[Z]`` and the sun ``[Z, 1 + H]``, as shards have them."""
    ahead = end_ms + np.array((0, *spec.horizon_steps), np.int64) * spec.step_ms
    now = ahead[:1]
    seen = {place: (day_bins(place, now, spec)[0], sun_sine(place, ahead)) for place in dict.fromkeys(places)}
    bins, sun = zip(*(seen[place] for place in places), strict=True)
    return np.array(bins, np.int64), np.stack(sun)
