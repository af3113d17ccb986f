"""Step 9 of the way of a reading: what zones' newest readings are, how old they are, and how often they come."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edge.wire.vocabulary import VOCABULARY
from models.features.regressors import HOLD_MS
from models.features.report_gaps import LOOK_S, report_gaps_s
from models.half_precision import in_decimals
from models.masked import newest_known
from models.spec import ForecastSpec
from services.ingest.learned.rings import Rings
from services.store.rows import SiteStep

__all__ = ["Readings", "inputs_of", "readings_at", "readings_of_row"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

AT_ONCE = 100
"""Zones whose rows are looked at in one go: those of a thousand zones take 260 MB if a row is a minute."""


class Readings(NamedTuple):
    """Of a step's ``Z`` zones."""

    values: F32  # [Z, C], of the step, or of the past hour where the step has none
    ages_s: F32  # [Z, C], of those of the past hour; 0 for those of the step
    gaps_s: I64  # [Z, K], how often the inputs come (inputs_of), as report_gaps_s says it
    zone_gaps_s: I64  # [Z], how often any of them comes


def inputs_of(spec: ForecastSpec, target: str | None = None) -> tuple[str, ...]:
    """The channels that a target is read from; left out: those of all targets."""
    if target is not None:
        return (target,) if target in spec.channels else ("air_temp_c", "rh_pct")  # vpd_kpa is computed from these
    return tuple(dict.fromkeys(channel for one in spec.targets for channel in inputs_of(spec, one)))


def readings_of_row(spec: ForecastSpec, step: SiteStep) -> Readings:
    """Where nothing but the step is known."""
    zones = len(step.zones)
    gaps_s = np.zeros((zones, len(inputs_of(spec))), np.int64)
    return Readings(step.values, np.zeros_like(step.values), gaps_s, np.zeros(zones, np.int64))


def readings_at(spec: ForecastSpec, step: SiteStep, rings: Rings, indices: I64) -> Readings:
    """At the end of a step, whose zones have these ``indices`` in ``rings``.

    Rows say themselves how long what is sent on change holds, and what a counter counted was counted once. Where a
    newer reading was taken out as faulty, older ones are not trusted, either.
    """
    at = np.full(len(indices), step.end_ms, np.int64)
    hour = rings.window(indices, at, HOLD_MS // spec.step_ms + 1)
    older, age_steps = newest_known(hour, HOLD_MS // spec.step_ms)
    known = (VOCABULARY.get(channel) for channel in spec.channels)
    holds = np.array([metric is None or (metric.hold_s is None and metric.kind != "counter") for metric in known])
    is_newest = step.ages_s >= age_steps * spec.step_ms // 1000
    is_older = ~np.isfinite(step.values) & np.isfinite(older) & holds & is_newest
    values = step.values.copy()
    values[is_older] = [in_decimals(value) for value in older[is_older].tolist()]

    readings = readings_of_row(spec, step)._replace(
        values=values, ages_s=np.where(is_older, step.ages_s, np.float32(0))
    )
    columns = [spec.channels.index(channel) for channel in inputs_of(spec)]
    # What came in each row of the past hour, or never came, needs no look at the rows before.
    is_seldom = np.isnan(hour[:, :, columns]).any(axis=1) & np.isfinite(step.ages_s[:, columns])
    seldom = np.flatnonzero(is_seldom.any(axis=1))
    for begin in range(0, len(seldom), AT_ONCE):
        some = seldom[begin : begin + AT_ONCE]
        came = np.isfinite(rings.window(indices[some], at[some], 1000 * LOOK_S // spec.step_ms)[:, :, columns])
        readings.gaps_s[some] = report_gaps_s(came.swapaxes(1, 2), spec.step_ms // 1000)
        readings.zone_gaps_s[some] = report_gaps_s(np.asarray(came.any(axis=2)), spec.step_ms // 1000)
    return readings
