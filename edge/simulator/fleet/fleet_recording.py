"""What was recorded of a fleet: rows, weather, forecasts and plans of many simulated sites, as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.simulator.fleet.edits import FIELDS, HOW
from edge.simulator.fleet.growers import PLAN_BINS, PLAN_EVERY_MIN
from edge.simulator.fleet.row_sensors import FLEET_METRICS
from edge.simulator.fleet.site_forecasts import FORECAST_HOURS, FORECAST_METRICS
from edge.simulator.simulated_site import WEATHER_METRICS
from models.durations import MINUTE_MS

__all__ = ["PLAN_METRICS", "RECORDING_FORMAT", "FleetRecording", "recording_layout"]

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]

RECORDING_FORMAT = 1

PLAN_METRICS = (*FIELDS, "sp_hd_g_m3")
"""The columns of setpoint plans. ``vent_min_pct``, how far vents stay open at least, is no metric of rows."""


@dataclass(frozen=True, slots=True)
class FleetRecording:
    """Letters: ``S`` sites, ``Z`` zones, ``N`` rows, ``R`` forecasts of a site, ``D`` plans of a zone, ``E`` edits.

    Row ``n`` of a site ends at its ``start_ms + (n + 1) * step_ms``. What is not measured, or was lost, is NaN.
    """

    step_ms: int
    site: I64  # [S] its number in the fleet
    start_ms: I64  # [S] a midnight UTC
    latitude: F32  # [S]
    longitude: F32  # [S]
    utc_offset_h: I64  # [S] of its clock, all year
    zone_site: I64  # [Z] its site's place in the arrays of sites
    zone: I64  # [Z] its number in its site
    values: F32  # [Z, N, FLEET_METRICS]
    weather: F32  # [S, N, WEATHER_METRICS]
    forecast_issued_ms: I64  # [S, R] rising; from the day before the start on
    forecast_came: NDArray[np.uint8]  # [S, R] 0 where it never came, or the site has none
    forecast: F32  # [S, R, FORECAST_HOURS, FORECAST_METRICS] valid half an hour, one and a half ... after its issue
    plan_issued_ms: I64  # [Z, D] rising
    plan_came: NDArray[np.uint8]  # [Z, D]
    plan: F32  # [Z, D, PLAN_BINS, PLAN_METRICS] in the middle of each half-hour from its issue on
    edit_zone: I64  # [E] place in the arrays of zones
    edit_metric: I64  # [E] place in PLAN_METRICS
    edit_begin_ms: I64  # [E] since the site's start
    edit_end_ms: I64  # [E]
    edit_how: I64  # [E] place in HOW
    edit_value: F32  # [E]
    edit_planned: NDArray[np.uint8]  # [E]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays by their names."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "step_ms"}


def recording_layout() -> Mapping[str, Any]:
    """What the columns of the arrays are, for who reads them without this package."""
    return {
        "format": RECORDING_FORMAT, "zone_metrics": list(FLEET_METRICS), "weather_metrics": list(WEATHER_METRICS),
        "forecast_metrics": list(FORECAST_METRICS), "forecast_hours": FORECAST_HOURS,
        "plan_metrics": list(PLAN_METRICS), "plan_bins": PLAN_BINS, "plan_bin_ms": PLAN_EVERY_MIN * MINUTE_MS,
        "edit_how": list(HOW),
    }  # fmt: skip
