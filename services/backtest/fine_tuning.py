"""The network of the package along a recording, fine-tuned to it every few days, and what it adds to each forecast.

It learns from what the forecaster issued without it and from what came since; nothing after a training is known to it.
The running system does not do this yet (ADR 48).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from models.features.inputs import targets_of
from models.online.online_forecaster import Learned, OnlineForecaster
from models.online.pretrained_correction import Pretrained
from models.online.tuned_correction import TunedCorrection
from models.pretraining.fine_tuner import FineTuning, TuningExamples
from models.spec import ForecastSpec
from services.backtest.table import Table

__all__ = ["Tuner", "TuningAlong"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Arrays = Mapping[str, npt.NDArray[Any]]
Tuner = Callable[[Arrays, ForecastSpec, TuningExamples, FineTuning], Arrays]
"""What to go on from, the schema, examples, how -> a network's arrays."""

FIRST_DAYS, EVERY_DAYS = 2, 3
FULL_DAYS = 10
"""With fewer days the steps of a training are smaller in proportion: days, not examples, are what differ."""


class TuningAlong:
    """A recording's corrections. Call :meth:`correct` at each step of the table, then :meth:`after`."""

    def __init__(self, table: Table, spec: ForecastSpec, made: Pretrained, tuner: Tuner) -> None:
        self._spec, self._start, self._tuner = spec, made.arrays, tuner
        self._targets = targets_of(table.values, spec)
        self._first_step = table.start_ms // spec.step_ms
        self._correction = TunedCorrection(spec, made, len(table.names))

    def correct(
        self, forecaster: OnlineForecaster, learned: Learned, values: F32, sun: F32, foreseen: F32 | None, given: F32
    ) -> F32:
        """The forecasts ``given [Z, H, M, Q]``, with what the network adds to them."""
        young = forecaster.first.share(learned.zones)
        return self._correction.correct(learned, values, sun, foreseen, given, young)

    def after(self, t: int) -> None:
        """Fine-tune where it is time to: always from the weights of the package, on all that is kept."""
        day = self._spec.steps_per_day
        if t < FIRST_DAYS * day or (t - FIRST_DAYS * day) % (EVERY_DAYS * day):
            return
        examples = self.examples(t)
        if len(examples):
            config = FineTuning()
            rate = config.learning_rate * min(1.0, t / day / FULL_DAYS)
            config = replace(config, learning_rate=rate)
            self._correction.tune(self._tuner(self._start, self._spec, examples, config))

    def examples(self, t: int) -> TuningExamples:
        """What is kept, with what was known at row ``t`` of what came."""
        kept = self._correction.examples
        steps = np.concatenate([np.full(len(zones), step) for step, zones, *_ in kept] or [np.empty(0, np.int64)])
        if not len(steps):
            nothing = np.empty((0, 0, 0, 3), np.float32)
            return TuningExamples(nothing[..., 0, 0].astype(np.float16), nothing[..., 0].astype(np.float16), nothing,
                                  nothing[..., 0])  # fmt: skip
        zones, origin, ahead, baseline = (np.concatenate(part) for part in list(zip(*kept, strict=True))[1:])
        at = (steps - self._first_step)[:, None] + np.array(self._spec.horizon_steps)
        truth = self._targets[zones[:, None], np.minimum(at, t)]
        truth[at > t] = np.nan
        return TuningExamples(origin, ahead, baseline, truth.astype(np.float32))
