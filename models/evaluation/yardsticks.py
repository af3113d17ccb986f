"""Steps 10 and 14 of the way of a reading: the plain forecasts that every model must beat."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models.spec import ForecastSpec

__all__ = ["naive_24h", "persistence"]

F32 = npt.NDArray[np.float32]


def persistence(y_now: F32, spec: ForecastSpec) -> F32:
    """What is now stays: ``[..., M] -> [..., H, M]``."""
    return np.repeat(y_now[..., None, :], len(spec.horizons_min), axis=-2)


def naive_24h(recent: F32, spec: ForecastSpec) -> F32:
    """The value a whole number of days before each horizon: ``[..., L, M] -> [..., H, M]``.

    ``recent`` ends at the origin; NaN where it does not reach back far enough.
    """
    at = recent.shape[-2] - 1 - (-np.array(spec.horizon_steps) % spec.steps_per_day)
    picked: F32 = np.take(recent, np.maximum(at, 0), axis=-2)
    picked[..., at < 0, :] = np.nan
    return picked
