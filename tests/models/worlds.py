"""Small made-up worlds that the tests of ``models`` share."""

from __future__ import annotations

import numpy as np

from models.network.training import WindowSet
from models.spec import ForecastSpec, Place

STEP_MS = 900_000
START_MS = 1_646_092_800_000  # 2022-03-01T00:00Z
PLACE = Place("Europe/Amsterdam", "civil", 52.0, 4.5)
CHANNELS = ("air_temp_c", "rh_pct", "co2_ppm", "out_temp_c", "wind_dir_deg", "lamp_pct")
SPEC = ForecastSpec(
    channels=CHANNELS,
    targets=("air_temp_c", "rh_pct", "vpd_kpa"),
    horizons_min=(15, 60, 360, 1440),
    step_ms=STEP_MS,
    lookback_steps=96,
)


def rows(days: float = 4, zones: int = 2, seed: int = 0, missing: float = 0.02) -> np.ndarray:
    """A daily course with weather, ``[Z, T, C]``: the air inside follows the weather an hour later."""
    rng = np.random.default_rng(seed)
    length = round(days * SPEC.steps_per_day)
    hour = np.arange(length) * STEP_MS / 3_600_000 % 24
    sun = np.maximum(np.sin((hour - 6) * np.pi / 12), 0)
    out = np.empty((zones, length, len(CHANNELS)), dtype=np.float32)
    weather = np.zeros(length)  # remembers about a day, as weather does
    for t in range(1, length):
        weather[t] = 0.99 * weather[t - 1] + rng.normal(0, 0.3)
    for z in range(zones):
        lamp = np.where((hour > 2) & (hour < 8), 100.0, 0.0)
        outside = 5 + 6 * sun + weather
        air = 18 + z + 5 * sun + 0.02 * lamp + 0.5 * np.roll(weather, 4) + rng.normal(0, 0.15, length)
        humidity = np.clip(85 - 15 * sun - weather + rng.normal(0, 0.5, length), 5, 100)
        columns = [air, humidity, 500 - 100 * sun, outside, rng.uniform(0, 360, length), lamp]
        out[z] = np.stack(columns, axis=-1)
    out[rng.random(out.shape) < missing] = np.nan
    return out


def window_set(days: float = 4, zones: int = 2, seed: int = 0) -> WindowSet:
    """The same as a :class:`WindowSet`."""
    values = rows(days, zones, seed)
    return WindowSet([f"z{i}" for i in range(zones)], START_MS, values, [PLACE] * zones, SPEC)
