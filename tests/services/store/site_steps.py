"""Closed steps of a site."""

from __future__ import annotations

import numpy as np

from services.store.rows import DeviceRow, SiteStep

CHANNELS = ("air_temp_c", "rh_pct")
DAY = 86_400_000


T0 = 1_646_092_800_000  # 2022-03-01 00:00 UTC


def site_step(end_ms: int, zones: tuple[str, ...] = ("z1", "z2"), site: str = "demo") -> SiteStep:
    rng = np.random.default_rng(end_ms // 1000)
    values = rng.normal(size=(len(zones), 2)).astype(np.float32)
    values[0, 1] = np.nan
    device = DeviceRow(zones[0], "d", "air_temp_c", 3, 0.1, 0.0, 0.2, 0.15)
    return SiteStep(0, site, end_ms, zones, values, values * 2, [device])
