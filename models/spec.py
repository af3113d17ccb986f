"""What a forecast is made of: the shapes that shard, training, backtest and serving share.

Letters of shapes in docstrings: ``N`` examples (zone and origin), ``Z`` zones, ``L`` look-back steps, ``C`` channels,
``K`` known-future features, ``H`` horizons, ``M`` targets, ``Q`` quantiles (always p10, p50, p90). In ``[Z, H, M, K]``
the ``K`` are experts; ``T`` are tokens of a window, or times of a path; ``S`` are scenarios, and ``G`` the times of
``GRID_MIN`` at which a what-if is followed. Values are in their metric's unit unless a docstring names another.
"""

from __future__ import annotations

import hashlib
import json
import math
import zoneinfo
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from models.durations import DAY_MS, MINUTE_MS

__all__ = ["QUANTILES", "ForecastSpec", "Place"]

QUANTILES = (0.1, 0.5, 0.9)

_WINTER_OF = {"Europe/Dublin": "Europe/London", "Eire": "Europe/London"}
"""Ireland's law calls summer time the standard, and so does the database of time zones. Britain shows the same times,
and calls winter's the standard. ``edge.recordings.local_time``, which is not imported here, does the same.
"""

_QUARTER_MS = 900_000


@dataclass(frozen=True, slots=True)
class ForecastSpec:
    """Everything that fixes the shape and meaning of a model's input and output.

    ``channels`` are the columns of a row in their order (base metrics; a zone's own and its site's weather), of
    which ``angles`` are directions in degrees and ``counters`` hold the increase within the step.
    """

    channels: tuple[str, ...]
    targets: tuple[str, ...] = ("air_temp_c", "rh_pct", "co2_ppm", "vpd_kpa")
    horizons_min: tuple[int, ...] = (5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
    step_ms: int = 300_000
    lookback_steps: int = 288
    angles: tuple[str, ...] = ("wind_dir_deg",)
    counters: tuple[str, ...] = ("irrigation_l_m2",)

    @property
    def horizon_steps(self) -> tuple[int, ...]:
        """Horizons in steps."""
        return tuple(minutes * MINUTE_MS // self.step_ms for minutes in self.horizons_min)

    @property
    def steps_per_day(self) -> int:
        """Rows a day."""
        return DAY_MS // self.step_ms

    @property
    def example_steps(self) -> int:
        """How many steps apart examples are, and what is kept of a day: a quarter of an hour, or what is next below
        it and divides the day. Rows between say nearly the same.

        >>> [ForecastSpec(channels=(), step_ms=s * 1000).example_steps for s in (60, 120, 300, 600, 3600)]
        [15, 6, 3, 1, 1]
        """
        most = max(_QUARTER_MS // self.step_ms, 1)
        return next(steps for steps in range(most, 0, -1) if self.steps_per_day % steps == 0)

    @property
    def limits(self) -> tuple[tuple[float, float], ...]:
        """The lowest and highest value that is physically possible for each target; forecasts stay within.

        >>> ForecastSpec(channels=(), targets=("soil_temp_c", "lamp_pct", "par_umol_m2_s")).limits
        ((-inf, inf), (0.0, 100.0), (0.0, inf))
        """
        return tuple(_limits(name) for name in self.targets)

    @property
    def hash(self) -> str:
        """Names the schema: a model fits rows only when this is equal."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a zone stands, for sun and calendar; ``latitude`` None means that the sun's position is unknown."""

    timezone: str = "UTC"
    clock: str = "civil"
    latitude: float | None = None
    longitude: float | None = None

    def local_ms(self, utc_ms: int) -> int:
        """The site's control clock as milliseconds of a day-aligned local time line.

        With ``clock='standard'`` daylight saving is left out, because the climate control leaves it out.

        >>> Place("Europe/Amsterdam").local_ms(0)
        3600000
        """
        return utc_ms + _offset_ms(self.timezone, self.clock, utc_ms // 900_000)


def _limits(metric: str) -> tuple[float, float]:
    """By the unit in its name: but for temperatures and net fluxes nothing is below 0."""
    if metric.endswith("_c") or "_net_" in metric:
        return -math.inf, math.inf
    return 0.0, 100.0 if metric.endswith("_pct") else math.inf


@lru_cache(maxsize=100_000)
def _offset_ms(timezone: str, clock: str, quarter: int) -> int:
    zone = zoneinfo.ZoneInfo(_WINTER_OF.get(timezone, timezone) if clock == "standard" else timezone)
    at = datetime.fromtimestamp(quarter * 900, UTC).astimezone(zone)
    offset = at.utcoffset() or timedelta(0)
    if clock == "standard":
        offset -= at.dst() or timedelta(0)
    return round(offset.total_seconds() * 1000)
