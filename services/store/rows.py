"""Step 5 of the way of a reading: what a closed step of a site holds, as windows make it and the history keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["SCHEMA_VERSION", "DeadLetter", "DeviceRow", "SiteStep"]

SCHEMA_VERSION = 1
"""Rises when the meaning of a row's values changes; every row carries the one it was made under."""


class DeviceRow(NamedTuple):
    """One device, one metric, one step; only steps in which the device sent the metric have one.

    ``n`` samples carried it; ``metric`` keeps a second sensor's suffix. ``mean`` is, of an angle, the vector mean; of
    a counter, the increase within the step; of a state, the mean of its samples.
    """

    zone: str
    device: str
    metric: str
    n: int
    mean: float
    min: float
    max: float
    last: float


@dataclass(frozen=True, slots=True)
class SiteStep:
    """All rows of a site that end at ``end_ms``; zones sorted by name, ``Z`` may be 0 (only a weather station)."""

    partition: int
    site: str
    end_ms: int
    zones: tuple[str, ...]
    values: npt.NDArray[np.float32]  # [Z, C], NaN where missing
    ages_s: npt.NDArray[np.float32]  # [Z, C], from the newest reading to the row's end, NaN where none ever came
    devices: list[DeviceRow] = field(default_factory=list)


class DeadLetter(NamedTuple):
    """A sample, value or message that was kept out; ``(partition, offset, item)`` names it for ever."""

    partition: int
    offset: int
    item: int
    receive_ms: int
    topic: str
    reason: str
    detail: str
    payload: bytes
