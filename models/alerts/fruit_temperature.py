"""Step 9 of the way of a reading: how warm a fruit is, which follows the air with a lag.

A fruit is taken as one lump: a sphere of water that exchanges heat with the air by convection and radiation. Its
temperature follows the air's with the time constant rho c d / (6 h) (the lumped capacitance method: F. P. Incropera and
others, *Fundamentals of Heat and Mass Transfer*, 6th edition (2007), section 5.1). It is good where the Biot number
h d / (6 k) is small: 0.17 for a tomato of 60 mm. In the sun a fruit is warmer than this says; then nothing condenses.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["fruit_temperature_c", "time_constant_s"]

_Array = npt.NDArray[Any]

HEAT_J_M3_K = 4.0e6
"""Volumetric heat capacity of a fruit that is nearly all water."""

LONGEST = 256
"""Courses of more steps are not made with a kernel, which has the square of their number. Scenarios of half hours after
a day of them have 96.
"""

TRANSFER_W_M2_K = 10.0
"""Heat transfer at a leaf or fruit in the still air of a greenhouse at night, half by convection, half by radiation."""


def time_constant_s(diameter_mm: float) -> float:
    """After this long a fruit has made 63 % of a sudden change of the air.

    >>> round(time_constant_s(60) / 60)
    67
    """
    return HEAT_J_M3_K * diameter_mm / 1000 / (6 * TRANSFER_W_M2_K)


def fruit_temperature_c(air_c: _Array, step_ms: int, diameter_mm: float) -> _Array:
    """``[..., N] -> [..., N]``: the fruit's temperature along the air's, which is on a line between its values.

    It begins with the first known value. Where the air is unknown the fruit stays as it is.

    >>> air = np.array([20.0, 10.0, 10.0, 10.0])
    >>> fruit_temperature_c(air, 3_600_000, 60).round(1).tolist()
    [20.0, 16.6, 12.7, 11.1]
    """
    ratio = step_ms / 1000 / time_constant_s(diameter_mm)
    if air_c.ndim == 1:
        return _course(air_c, ratio)
    if air_c.shape[-1] <= LONGEST and np.isfinite(air_c).all():
        kernel = _kernel(air_c.shape[-1], ratio).astype(air_c.dtype)
        return np.asarray(air_c @ kernel)
    return _along(air_c, ratio)


def _shares(ratio: float) -> tuple[float, float]:
    """What is left of a difference after a step, and how far a step that warms by 1 leaves the fruit behind."""
    keep = math.exp(-ratio)
    return keep, (1 - keep) / ratio


def _course(air_c: _Array, ratio: float) -> _Array:
    """:func:`_along` of one course, in plain numbers: a kernel of a day of ten-second rows would take 600 MB."""
    keep, ramp = _shares(ratio)
    before = held = math.nan
    fruit = []
    for air in air_c.tolist():
        if not math.isnan(air):
            if math.isnan(held):
                held = air
            elif not math.isnan(before):
                held = air + (held - before) * keep - (air - before) * ramp
        before = air
        fruit.append(held)
    return np.array(fruit, dtype=air_c.dtype)


def _along(air_c: _Array, ratio: float) -> _Array:
    keep, ramp = _shares(ratio)
    fruit = np.empty_like(air_c)
    before = held = air_c[..., 0]
    for n in range(air_c.shape[-1]):
        air = air_c[..., n]
        began = air + (held - before) * keep - (air - before) * ramp
        new = np.where(np.isnan(air), held, np.where(np.isnan(held), air, np.where(np.isnan(before), held, began)))
        held, before = new, air
        fruit[..., n] = held
    return fruit


@lru_cache(32)
def _kernel(length: int, ratio: float) -> _Array:
    """The fruit is a weighted mean of the air so far: ``[N, N]``, so that one product is all that scenarios take."""
    return _along(np.eye(length), ratio)
