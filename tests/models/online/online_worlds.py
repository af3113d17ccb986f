"""How the tests of the online models run a forecaster along made-up rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.online.online_forecaster import OnlineForecaster
from tests.models.worlds import SPEC, rows

DAY = SPEC.steps_per_day
STEPS = np.array((0, *SPEC.horizon_steps))


def forecaster(zones: int, spec=SPEC, capacity: int = 1) -> OnlineForecaster:
    """A forecaster of ``zones`` new zones."""
    made = OnlineForecaster(spec, capacity)
    for _ in range(zones):
        made.add_zones()
    return made


def sun(step: int, zones: int) -> np.ndarray:
    """Sines of the sun's elevation now and at each horizon."""
    height = np.sin((step + STEPS) * 2 * np.pi / DAY - np.pi / 2)
    return np.broadcast_to(height.astype(np.float32), (zones, len(STEPS)))


def run(made: OnlineForecaster, values: np.ndarray, start: int = 0, stop: int | None = None, zones=None) -> np.ndarray:
    """Learn and forecast each step of ``values [Z, T, C]``: ``[Z, T, H, M, Q]``."""
    zones = np.arange(len(values)) if zones is None else np.asarray(zones)
    out = []
    for step in range(start, values.shape[1] if stop is None else stop):
        bins = np.full(len(zones), step % DAY)
        out.append(made.predict(made.learn(zones, step, values[zones, step], bins, sun(step, len(zones)))))
    return np.stack(out, axis=1)


def flat(state: dict[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """A nested state as one map."""
    found: dict[str, np.ndarray] = {}
    for name, part in state.items():
        found |= flat(part, f"{prefix}{name}.") if isinstance(part, dict) else {f"{prefix}{name}": part}
    return found


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two states are equal bit for bit."""
    a, b = flat(one), flat(other)
    return set(a) == set(b) and all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)


__all__ = ["DAY", "SPEC", "STEPS", "flat", "forecaster", "rows", "run", "same", "sun"]
