"""Step 13 of the way of a reading: rows of many zones on a regular grid, and the windows that are cut from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from models.features.inputs import Inputs, build_inputs, day_bins, targets_along
from models.features.regressors import HOLD_MS
from models.masked import held_along
from models.online.climatology.climatology import Climatology
from models.spec import ForecastSpec, Place

__all__ = ["Split", "WindowSet", "split"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

_CHUNK = 2048


class WindowSet:
    """Rows of ``Z`` zones on one regular grid of ``T`` steps, and the windows that can be cut from them.

    An *origin* is one integer, ``zone * T + t``. Forecasts of the climatology are made once, prequentially, when the
    set is built: the one at ``t`` has seen rows up to ``t`` only, exactly as in service. So ``targets`` are those of
    the rows, but for those of an example, a quarter of an hour apart, which are the newest of its quarter.
    """

    def __init__(self, zone_ids: Sequence[str], first_end_ms: int, values: F32, places: Sequence[Place],
                 spec: ForecastSpec) -> None:  # fmt: skip
        self.zone_ids, self.first_end_ms, self.places, self.spec = tuple(zone_ids), first_end_ms, tuple(places), spec
        self.length = values.shape[1]
        # One look-back of nothing before the first row, so that every row can be an origin.
        before = np.full((len(values), spec.lookback_steps - 1, values.shape[2]), np.nan, dtype=np.float32)
        self._values = np.concatenate([before, values], axis=1)
        self.end_ms = first_end_ms + np.arange(self.length, dtype=np.int64) * spec.step_ms
        measured = targets_along(values, spec)
        self.targets = measured.copy()
        of_examples = self.end_ms // spec.step_ms % spec.example_steps == 0
        self.targets[:, of_examples] = held_along(measured, spec.example_steps - 1)[:, of_examples]
        bins = np.array([day_bins(place, self.end_ms, spec) for place in places], dtype=np.int64)
        held = held_along(measured, HOLD_MS // spec.step_ms)
        self.baseline = Climatology.run_over(self.targets, bins.reshape(len(values), self.length), spec, held)

    @classmethod
    def from_columns(cls, zone_ids: Sequence[str] | npt.NDArray[Any], end_ms: I64, values: F32,
                     places: Mapping[str, Place], spec: ForecastSpec) -> WindowSet:  # fmt: skip
        """Lay out ``R`` rows, in any order: ``zone_ids [R]``, ``end_ms [R]``, ``values [R, C]``; gaps become NaN.

        ``places`` has an entry for every zone id. Raises ``ValueError`` without rows, for rows off the grid and for
        two rows of one zone and step.
        """
        names, zone = np.unique(np.asarray(zone_ids, dtype=str), return_inverse=True)
        if not len(names):
            raise ValueError("there are no rows")
        end_ms = np.asarray(end_ms, dtype=np.int64)
        if np.any(end_ms % spec.step_ms):
            raise ValueError(f"rows do not end on the grid of {spec.step_ms} ms")
        first = int(end_ms.min())
        at = (end_ms - first) // spec.step_ms
        if len(np.unique(zone * (at.max() + 1) + at)) != len(at):
            raise ValueError("two rows of one zone end at the same time")
        grid = np.full((len(names), int(at.max()) + 1, values.shape[1]), np.nan, dtype=np.float32)
        grid[zone, at] = values
        return cls([str(name) for name in names], first, grid, [places[str(name)] for name in names], spec)

    @property
    def rows(self) -> F32:
        """The rows on their grid, ``[Z, T, C]``; a view."""
        return self._values[:, self.spec.lookback_steps - 1 :]

    def origins(self, warm_steps: int = 0) -> I64:
        """Every origin that has a row, a forecast of the climatology and at least one truth, ordered by time.

        The first ``warm_steps`` of each zone are left out: the climatology is still learning there, and its residual is
        not what it will be in service.
        """
        present = np.asarray(np.isfinite(self.targets).any(axis=-1))
        start = np.argmax(present, axis=1)
        old = np.arange(self.length) >= (start + warm_steps)[:, None]
        answered = np.isfinite(self.baseline[..., 0, :, 1]).any(axis=-1)
        followed = np.zeros_like(present)
        for steps in self.spec.horizon_steps:
            followed[:, :-steps] |= present[:, steps:]
        zone, t = np.nonzero(present & old & answered & followed)
        order = np.lexsort((zone, t))
        return np.asarray((zone * self.length + t)[order], dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows, the targets and the climatology's forecasts."""
        return sum(int(array.nbytes) for array in (self._values, self.targets, self.baseline))

    def times(self, origins: I64) -> I64:
        """When each origin is, Unix time in ms."""
        return np.asarray(self.end_ms[origins % self.length])

    def inputs(self, origins: I64) -> Inputs:
        """The input of each origin, by the same function as in service."""
        zone, t = np.divmod(origins, self.length)
        parts = []
        for at in range(0, max(len(origins), 1), _CHUNK):
            z, here = zone[at : at + _CHUNK], t[at : at + _CHUNK]
            rows = here[:, None] + np.arange(self.spec.lookback_steps)
            values, baseline = self._values[z[:, None], rows], self.baseline[z, here]
            parts.append(build_inputs(values, self.end_ms[here], [self.places[i] for i in z], baseline, self.spec))
        return Inputs.concatenate(parts)

    def truth(self, origins: I64, known_until_ms: int | None = None) -> F32:
        """What happened, ``[N, H, M]``; NaN where it is missing or was not known yet at ``known_until_ms``."""
        zone, t = np.divmod(origins, self.length)
        last = self.length - 1
        if known_until_ms is not None:
            last = min(last, (known_until_ms - self.first_end_ms) // self.spec.step_ms)
        at = t[:, None] + np.array(self.spec.horizon_steps)
        picked: F32 = self.targets[zone[:, None], np.minimum(at, self.length - 1)]
        picked[at > last] = np.nan
        return picked

    def recent_targets(self, origins: I64) -> F32:
        """The targets of the last day up to each origin, ``[N, steps_per_day, M]``."""
        zone, t = np.divmod(origins, self.length)
        at = t[:, None] + np.arange(1 - self.spec.steps_per_day, 1)
        picked = self.targets[zone[:, None], np.maximum(at, 0)]
        picked[at < 0] = np.nan
        return picked


@dataclass(frozen=True, slots=True)
class Split:
    """Origins to train on and origins held back; nothing after ``cut_ms`` may be known in training."""

    train: I64
    held_back: I64
    cut_ms: int


def split(windows: WindowSet, share: float) -> Split:
    """Hold the newest ``share`` of the time range back.

    The embargo is exact, not a gap: pass ``cut_ms`` to :meth:`WindowSet.truth`, and a training example knows of each
    horizon only what had happened by the cut. Warm-up is one day a zone.
    """
    origins = windows.origins(windows.spec.steps_per_day)
    times = windows.times(origins)
    if not len(times):
        return Split(origins, origins, windows.first_end_ms)
    first, last = int(times.min()), int(times.max())
    cut = last - round((last - first) * share)
    return Split(origins[times < cut], origins[times >= cut], cut)
