"""Step 8 of the way of a reading: what a forecaster says of any time up to its longest horizon.

:class:`PathInterpolation` composes what lies between learned horizons (:mod:`models.paths.steps`): a zone's usual day,
earlier forecasts for the same times, and widths. It learns nothing itself.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models.online.climatology.climatology import Climatology
from models.online.corrections.corrections import Corrections
from models.online.first_days.first_days import FirstDays
from models.online.waiting_examples import WaitingExamples
from models.online.widths import Widths
from models.paths.steps import Knots, between
from models.spec import ForecastSpec

__all__ = ["PathInterpolation"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]


class PathInterpolation:
    """Quantiles between learned horizons, from what the parts of a forecaster have learned."""

    def __init__(
        self, spec: ForecastSpec, climatology: Climatology, waiting: WaitingExamples, first: FirstDays,
        corrections: Corrections, widths: Widths,
    ) -> None:  # fmt: skip
        self._steps = np.array(spec.horizon_steps, dtype=np.int64)
        self._climatology, self._waiting, self._first = climatology, waiting, first
        self._corrections, self._widths = corrections, widths

    def at(self, knots: Knots, zones: I64, step: int, day_bin: I64, quantiles: F32) -> F32:
        """See :meth:`~models.online.online_forecaster.OnlineForecaster.path`."""
        usual = self._climatology.usual(zones, day_bin, knots.steps)
        at_knots = self._climatology.usual(zones, day_bin, np.concatenate([[0], self._steps]))
        median = between(knots, usual, at_knots, self._climatology.last(zones), quantiles[..., 1])
        median = self._with_earlier(zones, step, day_bin, knots, usual, median)
        any_plans = self._corrections.known is not None
        return self._widths.path(zones, day_bin, median, quantiles, knots, any_plans=any_plans)

    def _with_earlier(self, zones: I64, step: int, day_bin: I64, knots: Knots, usual: F32, median: F32) -> F32:
        """Let the forecasts have their say that were made for the same times when these were a horizon ahead.

        Forecasts are kept of every example's step; one that was made for a little before a time tells how far off the
        usual value that is.
        """
        h, stride = knots.after, self._waiting.stride
        late = step % stride
        origin = step - (self._steps[h] - knots.steps) - late
        is_origin = (origin >= 0) & (origin % stride == 0)
        mine = np.flatnonzero((knots.earlier > 0) & ~knots.learned & is_origin)
        if not len(mine):
            return median
        at, made = self._waiting.made_at(zones, origin[mine], h[mine])
        said = self._first.issued(zones, at)
        for network in self._corrections.networks:
            said = said + network.moved(zones[:, None], at)
        if late:
            said = said + usual[:, mine] - self._climatology.usual(zones, day_bin, knots.steps[mine] - late)
        there = made[..., None] & np.isfinite(said)
        moved = knots.earlier[mine][:, None] * np.where(there, said - median[:, mine], np.float32(0))
        median = median.copy()
        median[:, mine] += moved
        return median
