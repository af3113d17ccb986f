"""Step 7 of the way of a reading: finds changes of a zone, after which its forecasts follow the experts that forget
fastest.

A cumulative sum (E. S. Page, 1954) of how much larger than usual a zone's errors are calls a change. Learned weights
cannot tell soon enough which expert to follow then: for a day every expert is wrong, the fast ones too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from models.zone_arrays import ZoneArrays, ZoneState

__all__ = ["ChangePoints"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

ALLOWED = 1.4
"""Errors up to this many times the usual are weather ..."""

CALL_HOURS = 12.0
"""... and a change is called when what they are above it adds up to the usual error for this long: errors that
treble need some eight hours, ones that double 20, and ones that stay below ``ALLOWED`` never call."""

LARGEST = 4.0
"""A single error counts as at most this many usual ones."""

WARM_UP_DAYS = 8.0
"""Before this there is no usual error."""

DEAF_HOURS = 12.0
"""After a call the same zone and target makes no other for this long."""

RISE_DAYS = 0.5
"""The fastest experts learn the new regime only gradually, and a call may come from a single odd day. So their share
grows with the time since the call, and is whole after this long ..."""

HOLD_DAYS = 1.5
"""... until this long after the call: they must see a whole day of the new regime, and forecast the next one ..."""

REMEMBER_DAYS = 1.0
"""... and from then on the learned weights take over within this time."""


class ChangePoints(ZoneState):
    """Per zone and target: ``level [Z, M]`` rises from 0 to 1 after a call, stays, and decays.

    >>> change = ChangePoints(targets=1, a_day=24)
    >>> zone = np.array([change.add_zones()])
    >>> for hour in range(10 * 24):
    ...     change.update(zone, np.ones((1, 1), np.float32))
    >>> change.level(zone).tolist()
    [[0.0]]
    >>> for hour in range(8 + 14):
    ...     change.update(zone, np.full((1, 1), 3.0, np.float32))
    >>> change.level(zone).tolist()
    [[1.0]]
    """

    def __init__(self, targets: int, a_day: int, capacity: int = 16) -> None:
        one = (targets,)
        self._threshold = np.float32(CALL_HOURS * a_day / 24)
        self._warm, self._deaf = round(WARM_UP_DAYS * a_day), round(DEAF_HOURS * a_day / 24)
        self._example = np.float32(1 / a_day)
        self._zones = ZoneArrays(
            capacity, excess=(one, np.float32, 0.0), seen=(one, np.int32, 0), days=(one, np.float32, np.inf)
        )

    def level(self, indices: I64) -> F32:
        """How much the fast experts are to be followed, 0 to 1: ``[Z, M]``."""
        days = self._zones["days"][indices]  # since the call
        rising = np.minimum(days / np.float32(RISE_DAYS), 1)
        return np.asarray(rising * np.exp(np.minimum(np.float32(HOLD_DAYS) - days, 0) / np.float32(REMEMBER_DAYS)))

    def update(self, indices: I64, relative: F32) -> None:
        """Take the errors that matured at one example's step, as multiples of the usual: ``[Z, M]``, NaN where none."""
        s, known = self._zones, np.isfinite(relative)
        seen = s["seen"][indices] + known
        over = s["excess"][indices] + np.minimum(np.where(known, relative, ALLOWED), LARGEST) - np.float32(ALLOWED)
        listening = seen > self._warm
        over = np.where(listening, np.maximum(over, 0), 0)
        called = over > self._threshold
        s["excess"][indices] = np.where(called, 0, over)
        s["seen"][indices] = np.where(called, self._warm - self._deaf, np.minimum(seen, self._warm + 1))
        days = s["days"][indices] + self._example
        # Called again, what is already followed goes on being followed.
        again = np.where(days < HOLD_DAYS + REMEMBER_DAYS, np.minimum(days, np.float32(RISE_DAYS)), np.float32(0))
        s["days"][indices] = np.where(called, again, days)
