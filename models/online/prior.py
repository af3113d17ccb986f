"""Step 7 of the way of a reading: a prior for the errors of a new zone, from simulated zones.

The table beside this file is made by ``python -m benchmarks.first_days --table``. It holds, for each metric and
horizon and eight parts of the day, the mean absolute error of what a young zone is forecast from, and of the forecast.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from models.durations import MINUTE_MS
from models.spec import ForecastSpec

__all__ = ["ANSWERS", "PARTS", "TABLE", "Prior", "read_table"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Sizes = Mapping[tuple[str, str], tuple[F64, F64]]
"""(metric, answer) -> horizons in minutes ``[H]`` and errors ``[H, PARTS]``."""

ANSWERS = ("persistence", "days before", "days before, moved", "usual level", "old zone's")
"""What a young zone's forecast is mixed from; the table has ``first days`` besides, which is the mixture."""

TABLE = Path(__file__).with_name("first_days.csv")
PARTS = 8
"""The table divides the day into this many parts."""

COURSE = 0.4
"""Houses differ in when they are calm: of the table's course over the day this power is believed."""

LIKE = {"_c": ("air_temp_c", 1.0), "_pct": ("rh_pct", 1.0), "_ppm": ("co2_ppm", 1.0), "_kpa": ("vpd_kpa", 1.0),
        "hd_g_m3": ("vpd_kpa", 7.4)}  # fmt: skip
"""A metric that the table lacks is taken for the one of its unit: 1 kPa of deficit is 7.4 g/m³ at 20 °C."""

OTHER, OTHER_LEVEL = "vpd_kpa", 0.6
"""One of another unit has the errors of this metric, which is usually at this level, in proportion to its own level."""

LEAST_LEVEL = {"_w_m2": 100.0, "_umol_m2_s": 100.0, "_j_cm2": 100.0}
"""By unit, the least level that errors are in proportion to: of light nothing is seen in the first night."""

SMALLEST_LEVEL = 1e-3
"""That of a unit of which nothing is known."""

_HOURS = 24


class Prior:
    """Sizes of errors by the hour of day that is forecast: ``answers [24, H, M, K]`` and ``issued [24, H, M]``.

    Where ``relative [M]`` holds, the metric's unit says nothing: sizes are shares of the zone's own level, which counts
    as ``least_level [M]`` where it is lower.

    >>> prior = Prior(ForecastSpec(channels=(), targets=("air_temp_c", "soil_temp_c", "out_radiation_w_m2")))
    >>> bool((prior.issued[:, :, 0] == prior.issued[:, :, 1]).all()), prior.relative.tolist()
    (True, [False, False, True])
    """

    def __init__(self, spec: ForecastSpec, sizes: Sizes | None = None) -> None:
        found = read_table() if sizes is None else sizes
        like = [_like(target, found) for target in spec.targets]
        self.relative = np.array([name is None for name, _ in like])
        self.least_level: F32 = np.array([_least_level(target) for target in spec.targets], np.float32)
        columns = [
            np.stack([_by_hour(found[name or OTHER, answer], spec) * scale for name, scale in like], axis=-1)
            for answer in (*ANSWERS, "first days")
        ]
        self.answers: F32 = np.stack(columns[:-1], axis=-1).astype(np.float32)
        self.mean: F32 = self.answers.mean(axis=0)
        self.issued: F32 = columns[-1].astype(np.float32)


@cache
def read_table(path: Path = TABLE) -> Sizes:
    """The table, by metric and answer."""
    rows: dict[tuple[str, str], list[list[float]]] = {}
    with path.open(newline="") as file:
        for metric, answer, *numbers in list(csv.reader(file))[1:]:
            rows.setdefault((metric, answer), []).append([float(number) for number in numbers])
    return {key: (np.array(held)[:, 0], np.array(held)[:, 1:]) for key, held in rows.items()}


def _like(target: str, sizes: Sizes) -> tuple[str | None, float]:
    """The metric of the table whose errors are taken, and by how much larger the target's are."""
    if (target, ANSWERS[0]) in sizes:
        return target, 1.0
    ends = (found for end, found in LIKE.items() if target.endswith(end) and "w_m2" not in target)
    return next(ends, (None, 1.0 / OTHER_LEVEL))


def _least_level(target: str) -> float:
    return next((level for end, level in LEAST_LEVEL.items() if target.endswith(end)), SMALLEST_LEVEL)


def _by_hour(held: tuple[F64, F64], spec: ForecastSpec) -> F64:
    """``[24, H]``: between the table's horizons and parts of the day sizes lie on a line."""
    horizons, errors = held
    at = np.log(np.array(spec.horizon_steps) * spec.step_ms / MINUTE_MS)
    parts = np.stack([np.interp(at, np.log(horizons), errors[:, part]) for part in range(PARTS)])  # [PARTS, H]
    centre = (np.arange(-1, PARTS + 1) + 0.5) * _HOURS / PARTS
    around = np.concatenate([parts[-1:], parts, parts[:1]])
    hours = np.stack([np.interp(np.arange(_HOURS) + 0.5, centre, column) for column in around.T], axis=1)
    mean = hours.mean(axis=0)
    return np.asarray(mean * (hours / mean) ** COURSE)
