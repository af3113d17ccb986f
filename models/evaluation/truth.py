"""Step 10 of the way of a reading: what happened, at each horizon of a forecast.

One rule for live scores, backtests and what a network is fine-tuned on. A sensor that reports each quarter of an hour
has no value in most rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models.masked import held_along
from models.spec import ForecastSpec

__all__ = ["Truths", "truth_of"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]


def truth_of(of_row: F32, newest: F32, steps: I64, spec: ForecastSpec) -> F32:
    """The truth ``[..., M]`` of forecasts ``steps [...]`` ahead: ``of_row`` is what was read in the row that ends then,
    ``newest`` what was read last in the quarter of an hour up to there.

    That counts where the horizon is as long: a truth is newer than the forecast.

    >>> spec = ForecastSpec(channels=("air_temp_c",), targets=("air_temp_c",))
    >>> truth_of(np.float32([[np.nan]] * 2), np.float32([[20]] * 2), np.array([2, 3]), spec).tolist()
    [[nan], [20.0]]
    """
    return np.where((steps >= spec.example_steps)[..., None], newest, of_row)


class Truths:
    """The targets of rows on a grid, ``[Z, T, M]``, as truths of forecasts."""

    def __init__(self, targets: F32, spec: ForecastSpec) -> None:
        self._spec, self._steps = spec, np.array(spec.horizon_steps, dtype=np.int64)
        self._of_row = targets
        self.newest: F32 = held_along(targets, spec.example_steps - 1)
        """What was read last in the quarter of an hour up to each row, ``[Z, T, M]``."""

    def after(self, zone: I64, row: I64, last: int | None = None) -> F32:
        """What happened after the rows ``row [N]`` of zones ``zone [N]``, ``[N, H, M]``; NaN where it is missing, or in
        a row after ``last``.
        """
        end = self._of_row.shape[1] - 1
        at = row[:, None] + self._steps
        there = zone[:, None], np.minimum(at, end)
        found = truth_of(self._of_row[there], self.newest[there], self._steps, self._spec)
        found[at > (end if last is None else min(end, last))] = np.nan
        return found
