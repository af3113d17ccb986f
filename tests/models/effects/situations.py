"""Situations for the tests of this folder."""

from __future__ import annotations

import numpy as np

from models.effects.plan_change import GRID_MIN
from models.effects.situation import SEEN, Situation
from models.features.plans import BINS_BACK, PLANNED

USUAL = {
    "air_temp_c": 18.0, "rh_pct": 80.0, "co2_ppm": 500.0, "vent_lee_pct": 5.0, "heat_pipe_low_c": 40.0,
    "sp_heat_c": 17.5, "sp_vent_c": 20.0, "sp_rh_pct": 88.0, "sp_co2_ppm": 600.0, "out_temp_c": 5.0,
    "out_rh_pct": 80.0, "out_radiation_w_m2": 0.0, "wind_m_s": 3.0,
}  # fmt: skip


def situation(count: int = 1, **metrics: float) -> Situation:
    """Zones of which nothing changes all day and nothing is foreseen; keyword arguments are other values, in rows."""
    now = np.array([{**USUAL, **metrics}.get(name, np.nan) for name in SEEN], np.float32)
    path = np.broadcast_to(now[:3], (count, len(GRID_MIN), 3)).copy()
    return Situation(
        day=np.broadcast_to(now, (count, 48, len(SEEN))).copy(), now=np.broadcast_to(now, (count, len(SEEN))).copy(),
        foreseen=np.full((count, BINS_BACK + 50, len(PLANNED)), np.nan, np.float32),
        into_bin_ms=np.full(count, 1_799_999, np.int64), path=path,
        sun=np.full((count, len(GRID_MIN)), -0.5, np.float32),
        clock_min=np.zeros((count, len(GRID_MIN)), np.int64),
    )  # fmt: skip


__all__ = ["USUAL", "situation"]
