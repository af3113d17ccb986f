"""Step 8 of the way of a reading: fast learners of the climatology's residual, fed by matured forecasts.

:class:`PooledRidge` holds recursive ridge regressions with forgetting, in information form. Absolute error is their
loss, by reweighting every example with the error that the learner would have made (iteratively reweighted least
squares, one pass; Holland and Welsch 1977).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.durations import HOUR_MS
from models.spec import ForecastSpec
from models.zone_arrays import whose_turn

__all__ = ["PooledRidge", "prior_strength"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

LEAST = 0.2
"""Errors smaller than this share of the climatology's usual error count as this large when examples are weighed."""

RIDGE = 150.0
"""The prior: as strong as this many examples of the usual error, that say zero ..."""

RIDGE_MS = 6 * HOUR_MS
"""... and again as many for each of these that a horizon is long: neighbouring examples of a long one share most of
what lies between origin and truth, and the first days would be taken for more than they are."""

MOST_GROWN = 500.0
"""An example weighs at most e to this against the sums' unit; after a gap of years more would be infinite."""

MOST_ZONES = 128
"""With more zones than this, this many at a time teach the pooled regressions; all take turns."""


def prior_strength(spec: ForecastSpec) -> F64:
    """The ridges' prior for each horizon, in examples: ``[H]``.

    >>> prior_strength(ForecastSpec(channels=(), horizons_min=(30, 360, 1440))).tolist()
    [162.5, 300.0, 750.0]
    """
    return RIDGE * (1 + np.array(spec.horizon_steps) * spec.step_ms / RIDGE_MS)


class PooledRidge:
    """One regression a rate of forgetting, horizon and target, for all zones together.

    ``prior [H]`` is its strength (:func:`prior_strength`); a horizon has an example every ``stride`` steps. The
    learner's answer to regressors ``x`` is ``x @ weights``; :meth:`learn` takes matured examples of some horizons.
    """

    def __init__(
        self, prior: F64, targets: int, width: int, days: tuple[float, ...], steps_per_day: int, stride: int = 1
    ) -> None:
        horizons = len(prior)
        self._stride = stride
        shape = (len(days), horizons, targets)
        self._prior = prior
        self._keep = np.exp(-1 / (np.array(days) * steps_per_day))
        self._moment = np.zeros((*shape, width, width))
        self._product = np.zeros((*shape, width))
        self._weights = np.zeros((*shape, width))
        # Sums are kept in units of what an example weighed at this step: forgetting costs nothing until a refit.
        self._since = np.full(horizons, -1, dtype=np.int64)
        self._step = np.full(horizons, -1, dtype=np.int64)

    def predict(self, common: F32, ahead: F32) -> F32:
        """``[Z, D]`` and ``[Z, H, E] -> [Z, H, M, R]``, in the climatology's units."""
        d = common.shape[1]
        rates, horizons, targets, _ = self._weights.shape
        w = self._weights.astype(np.float32).transpose(1, 3, 2, 0).reshape(horizons, -1, targets * rates)
        answer = np.matmul(common, w[:, :d]) + np.matmul(ahead.transpose(1, 0, 2), w[:, d:])
        return np.asarray(answer.transpose(1, 0, 2).reshape(len(common), horizons, targets, rates))

    def learn(self, horizons: I64, step: int, x: F32, residual: F32) -> None:
        """Examples ``x [N, P, D]`` of ``horizons [P]``, and their truths ``residual [N, P, M]``, NaN where unknown."""
        for p, horizon in enumerate(horizons.tolist()):
            mine = whose_turn(len(x), MOST_ZONES, step // self._stride + horizon)
            self._learn(horizon, step, x[mine, p].astype(np.float64), residual[mine, p].T)

    def refit(self, horizon: int) -> None:
        """Solve one horizon's regressions; a few times a day."""
        self._forget(horizon)
        ridge = self._prior[horizon] * np.eye(self._moment.shape[-1])
        self._weights[:, horizon] = np.linalg.solve(
            self._moment[:, horizon] + ridge, self._product[:, horizon, ..., None]
        )[..., 0]

    def state_dict(self) -> dict[str, _Array]:
        """Everything that was learned; copies."""
        held = {"moment": self._moment, "product": self._product, "weights": self._weights, "since": self._since,
                "step": self._step}  # fmt: skip
        return {name: array.copy() for name, array in held.items()}

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit."""
        if state["moment"].shape != self._moment.shape:
            raise ValueError(f"moment is {state['moment'].shape}, wanted {self._moment.shape}")
        self._moment, self._product = state["moment"].copy(), state["product"].copy()
        self._weights = state["weights"].copy()
        self._since, self._step = state["since"].copy(), state["step"].copy()

    def _learn(self, horizon: int, step: int, x: F64, residual: F32) -> None:
        """``x [N, D]``, ``residual [M, N]``."""
        if self._since[horizon] < 0:
            self._since[horizon] = step
        self._step[horizon] = max(step, self._step[horizon])
        if (self._since[horizon] - self._step[horizon]) * np.log(self._keep.min()) > MOST_GROWN:
            self._forget(horizon)
        ok = np.isfinite(residual)
        r = np.where(ok, residual, 0)
        off = np.abs(r - self._weights[:, horizon] @ x.T)  # [R, M, N]
        grown = self._keep ** -(self._step[horizon] - self._since[horizon])
        weighed = (ok / np.maximum(off, LEAST) * grown[:, None, None])[..., None] * x  # [R, M, N, D]
        self._moment[:, horizon] += weighed.swapaxes(-1, -2) @ x
        self._product[:, horizon] += (r[:, None] @ weighed)[..., 0, :]

    def _forget(self, horizon: int) -> None:
        keep = (self._keep ** (self._step[horizon] - self._since[horizon]))[:, None, None]
        self._moment[:, horizon] *= keep[..., None]
        self._product[:, horizon] *= keep
        self._since[horizon] = self._step[horizon]
