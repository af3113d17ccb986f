"""The network of the package along a recording, fine-tuned to it every few days.

It learns from what the forecaster would have issued without it and from what came since; nothing after a training is
known to it. The running system does the same (ADR 48), by ``services/learn/training/fine_tuning/tuned_challenger.py``.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from models.evaluation.truth import Truths
from models.features.inputs import targets_along
from models.online.corrections.pretrained_correction import Pretrained
from models.online.corrections.tuned_correction import KEPT_DAYS, Shown
from models.online.online_forecaster import OnlineForecaster
from models.pretraining.fine_tuner import FineTuning, Tuner, TuningExamples
from models.spec import ForecastSpec
from services.backtest.table import Table

__all__ = ["TuningAlong"]

FIRST_DAYS, EVERY_DAYS = 2, 3


class TuningAlong:
    """Fine-tunes along a recording what ``forecaster`` follows. Call :meth:`after` at each step of the table."""

    def __init__(self, table: Table, forecaster: OnlineForecaster, spec: ForecastSpec, made: Pretrained,
                 tuner: Tuner) -> None:  # fmt: skip
        self._spec, self._start, self._tuner, self._forecaster = spec, made.arrays, tuner, forecaster
        self._truths = Truths(targets_along(table.values, spec), spec)
        self._first_step = table.start_ms // spec.step_ms
        self._kept: deque[Shown] = deque()

    def after(self, t: int) -> None:
        """Keep the example of row ``t``; fine-tune where it is time to: always from the weights of the package, on all
        that is kept.
        """
        day = self._spec.steps_per_day
        tuned = self._forecaster.corrections.tuned
        shown = tuned.shown if tuned else None
        if shown is not None and shown.step == self._first_step + t:
            self._kept.append(shown)
            while self._kept[0].step < shown.step - KEPT_DAYS * day:
                self._kept.popleft()
        if t < FIRST_DAYS * day or (t - FIRST_DAYS * day) % (EVERY_DAYS * day):
            return
        examples = self.examples(t)
        if len(examples):
            how = FineTuning().of_days(t / day)
            self._forecaster.tune(self._tuner(self._start, self._spec, examples, how))

    def examples(self, t: int) -> TuningExamples:
        """What is kept, with what was known at row ``t`` of what came."""
        kept = self._kept
        steps = np.concatenate([np.full(len(one.zones), one.step) for one in kept] or [np.empty(0, np.int64)])
        if not len(steps):
            nothing = np.empty((0, 0, 0, 3), np.float32)
            return TuningExamples(nothing[..., 0, 0].astype(np.float16), nothing[..., 0].astype(np.float16), nothing,
                                  nothing[..., 0])  # fmt: skip
        zones, origin, ahead, baseline = (
            np.concatenate([getattr(one, name) for one in kept]) for name in ("zones", "origin", "ahead", "base")
        )
        truth = self._truths.after(zones, steps - self._first_step, t)
        return TuningExamples(origin, ahead, baseline, truth.astype(np.float32))
