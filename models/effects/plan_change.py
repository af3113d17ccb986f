"""What is asked in a what-if: a change of a setpoint or of the weather, over a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = ["CHANGEABLE", "GRID_MIN", "HOWS", "HOW_OF", "Changeable", "How", "PlanChange"]

F32 = npt.NDArray[np.float32]

How = Literal["add", "set", "least", "most"]
HOW_OF: Mapping[str, How] = MappingProxyType({"add": "add", "set": "set", "at_least": "least", "at_most": "most"})
"""The ways to change a plan, by what requests call them."""
HOWS = tuple(HOW_OF.values())

STEP_MIN = 5
GRID_MIN: npt.NDArray[np.int64] = np.arange(STEP_MIN, 1441, STEP_MIN, dtype=np.int64)
"""Minutes after the origin at which changes are followed, for a day: each stands for the five minutes before it."""


@dataclass(frozen=True, slots=True)
class Changeable:
    """A metric that changes were tried of: in which ways, how far, and by how much they usually were (``scale``).

    ``low`` and ``high`` bound how far the metric is moved, in its unit.
    """

    hows: tuple[How, ...]
    scale: float
    low: float
    high: float


CHANGEABLE: Mapping[str, Changeable] = MappingProxyType({
    "sp_heat_c": Changeable(HOWS, 2.0, -6.0, 6.0),
    "sp_vent_c": Changeable(HOWS, 2.0, -6.0, 6.0),
    "sp_rh_pct": Changeable(("add", "set", "most"), 6.0, -20.0, 20.0),
    "sp_co2_ppm": Changeable(("add", "set"), 250.0, -800.0, 800.0),
    "vent_lee_pct": Changeable(("least",), 30.0, 0.0, 80.0),
    "sp_pipe_min_c": Changeable(("set", "least"), 30.0, -50.0, 70.0),
    "sp_lamp_pct": Changeable(("set",), 100.0, -100.0, 100.0),
    "sp_screen_energy_pct": Changeable(("set",), 100.0, -100.0, 100.0),
    "sp_screen_black_pct": Changeable(("set",), 100.0, -100.0, 100.0),
    "out_temp_c": Changeable(("add",), 4.0, -8.0, 8.0),
    "out_radiation_w_m2": Changeable(("add",), 150.0, -400.0, 400.0),
    "wind_m_s": Changeable(("add",), 3.0, -6.0, 6.0),
})  # fmt: skip
"""What simulated houses were tried with, in the order of the network's inputs. ``vent_lee_pct``, how far the lee vents
stay open at least, is moved from shut."""


@dataclass(frozen=True, slots=True)
class PlanChange:
    """``metric`` is changed after ``begin_min`` until ``end_min``, minutes after the origin of a forecast: by adding
    ``value``, by setting it, or by holding it at least, or at most, at it.

    >>> PlanChange("sp_heat_c", "add", -1.5, 60, 120).active().sum()
    np.float32(12.0)
    """

    metric: str
    how: How
    value: float
    begin_min: float
    end_min: float

    def __post_init__(self) -> None:
        if self.how not in HOWS:
            raise ValueError(f"{self.how!r} is no way to change a plan; one of {', '.join(HOWS)}")
        if not np.isfinite(self.value):
            raise ValueError(f"the change of {self.metric} has no number")
        if not self.begin_min < self.end_min:
            raise ValueError(f"the change of {self.metric} ends before it has begun")

    def active(self) -> F32:
        """The share of each time of :data:`GRID_MIN` in which it holds: ``[G]``."""
        held = np.minimum(GRID_MIN, self.end_min) - np.maximum(GRID_MIN - STEP_MIN, self.begin_min)
        return np.asarray(np.clip(held / STEP_MIN, 0.0, 1.0), np.float32)

    def moved(self, usual: F32) -> F32:
        """By how much it moves the metric where it holds, from its ``usual [G]`` values, ``[G]`` in the metric's unit;
        NaN where these are needed and unknown.
        """
        if self.how == "add":
            return np.full(usual.shape, self.value, np.float32)
        by = np.float32(self.value) - usual
        if self.how == "least":
            by = np.maximum(by, np.float32(0))
        elif self.how == "most":
            by = np.minimum(by, np.float32(0))
        return np.asarray(by, np.float32)
