"""Step 7 of the way of a reading: how far each expert is to be followed, learned for all zones together.

For each horizon and target, non-negative weights that sum to at most one minimise the recent absolute error of the
mixture (stacking, Wolpert 1992; absolute error by iteratively reweighted least squares). What is left of one goes to
the first expert, which never misses; another that has no answer counts as answering like the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Mixture"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
_Array = npt.NDArray[Any]

DAYS = 5.0
"""How long the experts' errors are remembered."""

LEAST = 0.3
"""Errors smaller than this share of the usual one count as this large when examples are weighed."""

PRIOR = 50.0
"""The prior, equal weights, is as strong as this many examples in which experts differ by the usual error."""

SWEEPS = 30


class Mixture:
    """Weights over ``K`` experts; deviations from the first expert are in units of its usual error.

    >>> mixture = Mixture(horizons=1, targets=1, experts=2, steps_per_day=24)
    >>> rng = np.random.default_rng(0)
    >>> for step in range(500):
    ...     truth = rng.normal(size=(1, 1, 1)).astype(np.float32)
    ...     mixture.learn(0, step, np.concatenate([np.zeros_like(truth), truth], axis=-1), truth[..., 0])
    >>> mixture.refit(0)
    >>> bool(mixture.weights[0, 0, 1] > 0.8)
    True
    """

    def __init__(self, horizons: int, targets: int, experts: int, steps_per_day: int) -> None:
        shape = (horizons, targets, experts - 1)
        self._keep = np.exp(-1 / (DAYS * steps_per_day))
        self._moment = np.zeros((*shape, experts - 1))
        self._product = np.zeros(shape)
        self._weights = np.full(shape, 1 / experts)
        self._step = np.full(horizons, -1, dtype=np.int64)

    @property
    def weights(self) -> F64:
        """``[H, M, K]``; they sum to one."""
        return np.concatenate([1 - self._weights.sum(axis=-1, keepdims=True), self._weights], axis=-1)

    def predict(self, deviations: F32) -> F32:
        """The mixture's deviation from the first expert: ``[Z, H, M, K] -> [Z, H, M]``."""
        others = np.nan_to_num(deviations[..., 1:])
        return np.asarray(np.einsum("zhmk,hmk->zhm", others, self._weights), dtype=np.float32)

    def learn(self, horizon: int, step: int, deviations: F32, residual: F32) -> None:
        """Matured examples: ``deviations [N, M, K]``, the truth's deviation ``residual [N, M]``, NaN where unknown."""
        if self._step[horizon] >= 0 and step > self._step[horizon]:
            keep = self._keep ** (step - self._step[horizon])
            self._moment[horizon] *= keep
            self._product[horizon] *= keep
        self._step[horizon] = max(step, self._step[horizon])
        x = np.nan_to_num(deviations[..., 1:]).astype(np.float64)
        ok = np.isfinite(residual)
        r = np.where(ok, residual, 0).astype(np.float64)
        off = np.abs(r - (x * self._weights[horizon]).sum(axis=-1))
        weight = ok / np.maximum(off, LEAST)
        weighed = np.moveaxis(weight[..., None] * x, 0, 1)  # [M, N, K]
        self._moment[horizon] += weighed.swapaxes(-1, -2) @ np.moveaxis(x, 0, 1)
        self._product[horizon] += (r.T[:, None] @ weighed)[:, 0]

    def refit(self, horizon: int) -> None:
        """Find one horizon's weights by coordinate descent, from those it has."""
        w = self._weights[horizon]
        others = w.shape[-1]
        # An expert that has never differed from the first (a network that does not exist yet) has no share.
        alive = np.diagonal(self._moment[horizon], axis1=-2, axis2=-1) > 0
        prior = alive / (1 + alive.sum(axis=-1, keepdims=True))
        moment = self._moment[horizon] + PRIOR * np.eye(others)
        product = self._product[horizon] + PRIOR * prior
        for _ in range(SWEEPS):
            for k in range(others):
                rest = product[:, k] - (moment[:, k] * w).sum(axis=-1) + moment[:, k, k] * w[:, k]
                w[:, k] = np.clip(rest / moment[:, k, k], 0, 1)
            w /= np.maximum(w.sum(axis=-1, keepdims=True), 1)

    def state_dict(self) -> dict[str, _Array]:
        """Everything that was learned; copies."""
        held = {"moment": self._moment, "product": self._product, "weights": self._weights, "step": self._step}
        return {name: array.copy() for name, array in held.items()}

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` where it does not fit."""
        if state["moment"].shape != self._moment.shape:
            raise ValueError(f"moment is {state['moment'].shape}, wanted {self._moment.shape}")
        self._moment, self._product = state["moment"].copy(), state["product"].copy()
        self._weights, self._step = state["weights"].copy(), state["step"].copy()
