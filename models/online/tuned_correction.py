"""Step 8 of the way of a reading: what a network that is fine-tuned to a site adds to forecasts of any age.

It stands beside an :class:`~models.online.online_forecaster.OnlineForecaster`, whose forecasts it moves, and which
learns nothing of it. In a zone's first days the network of the package is followed as before; then this one takes over.
Which share of it is followed is learned for each zone, target and horizon, as for that one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.features.inputs import targets_of
from models.online.online_forecaster import EXAMPLE_MS, EXPERTS, Learned
from models.online.pretrained_correction import Pretrained, PretrainedCorrection
from models.spec import ForecastSpec

__all__ = ["TunedCorrection"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

DAYS = 14.0
"""How long errors are remembered."""

GAIN = 0.02
"""With half of what it says the error is expected to be this much smaller, with all of it no smaller: it is asked where
little can be said."""

KEPT_DAYS = 60.0
"""How long examples are kept to be trained on."""

EVERY = 2
"""Each second example is: those between say nearly the same."""


class TunedCorrection:
    """Of ``zones`` zones. Each step, after the forecaster's ``predict``, call :meth:`correct` with the same rows."""

    def __init__(self, spec: ForecastSpec, made: Pretrained, zones: int) -> None:
        self._spec = spec
        self._stride = max(round(EXAMPLE_MS / spec.step_ms), 1)
        self._steps = np.array(spec.horizon_steps, dtype=np.int64)
        self._slots = self._steps // self._stride + 1
        self._first = np.concatenate([[0], np.cumsum(self._slots)[:-1]])
        shape = np.ones_like(made.half)
        # Half of a gain is believed beforehand.
        expected = Pretrained(made.arrays, shape * (1 - 2 * GAIN), shape)
        self._correction = PretrainedCorrection(spec, self._stride, int(self._slots.sum()), expected, zones, DAYS)
        self._correction.add_zones(zones)
        total, targets = int(self._slots.sum()), len(spec.targets)
        self._base = np.full((zones, total, targets), np.nan, np.float32)
        self._asked_at = np.full((zones, total), -1, np.int64)
        self._tuned = False
        self.examples: deque[tuple[int, I64, Any, Any, F32]] = deque()
        """Step, zones, what the network looked at, and the forecasts without it."""
        low, high = zip(*spec.limits, strict=True)
        self._low, self._high = (np.array(ends, np.float32)[:, None] for ends in (low, high))

    def tune(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Follow this network from the next example on."""
        self._correction.tune(arrays)
        self._tuned = True

    def correct(self, learned: Learned, values: F32, sun: F32, foreseen: F32 | None, quantiles: F32, young: F32) -> F32:
        """``quantiles [Z, H, M, Q]`` as they are to be issued; ``young [Z, M]`` is the weight of the first days."""
        zones, step = learned.zones, learned.step
        y = targets_of(values, self._spec)
        self._learn(zones, step, np.where(np.isfinite(y), y, np.float32(np.nan)))
        self._correction.see(zones, step, values)
        before = np.zeros_like(quantiles[..., 1])
        if learned.experts.shape[-1] > len(EXPERTS) + 1:
            before = learned.experts[..., len(EXPERTS) + 1]
        if step % self._stride == 0:
            base, most = quantiles - before[..., None], np.ones_like(young)
            turn, origin, ahead = self._correction.ask(zones, step, values, learned.day_bin, sun, foreseen, base, most)
            at = self._first + step // self._stride % self._slots
            self._correction.keep(zones, at)
            self._base[zones[:, None], at] = base[..., 1]
            self._asked_at[zones[:, None], at] = step
            if step // self._stride % EVERY == 0:
                self.examples.append(
                    (step, zones[turn], origin.astype(np.float16), ahead.astype(np.float16), base[turn])
                )
                while self.examples[0][0] < step - KEPT_DAYS * self._spec.steps_per_day:
                    self.examples.popleft()
        if not self._tuned:
            return quantiles
        old = (1 - young)[:, None]
        added = old * (self._correction.added(zones) - before)
        return np.asarray(np.clip(quantiles + added[..., None], self._low, self._high), np.float32)

    def _learn(self, zones: I64, step: int, y: F32) -> None:
        origins = step - self._steps
        h = np.flatnonzero((origins >= 0) & (origins % self._stride == 0))
        if not len(h):
            return
        at = self._first[h] + origins[h] // self._stride % self._slots[h]
        due = self._asked_at[zones[:, None], at] == origins[h]
        if due.any():
            self._correction.learn(zones, h, at, due, y, self._base[zones[:, None], at])
