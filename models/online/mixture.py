"""Step 7 of the way of a reading: the weight of each expert, learned for all zones together.

For each horizon and target, non-negative weights that sum to at most one minimise the recent absolute error of the
mixture (stacking, Wolpert 1992; absolute error by iteratively reweighted least squares). The rest, up to one, goes to
the first expert, which always answers. Another expert without an answer counts as answering like the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Mixture"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

DAYS = 5.0
"""How long the experts' errors are remembered."""

LEAST = 0.3
"""Errors smaller than this share of the usual one count as this large when examples are weighed."""

PRIOR = 50.0
"""The prior, equal weights, is as strong as this many examples in which experts differ by the usual error."""

SWEEPS = 30


class Mixture:
    """Weights over ``K`` experts; deviations of the others from the first are in units of its usual error.

    >>> mixture = Mixture(horizons=1, targets=1, experts=2, steps_per_day=24)
    >>> rng = np.random.default_rng(0)
    >>> for step in range(500):
    ...     truth = rng.normal(size=(1, 1, 1, 1)).astype(np.float32)
    ...     mixture.learn(np.array([0]), step, truth, truth[..., 0])
    >>> mixture.refit()
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

    def knows(self, expert: int) -> bool:
        """Whether an expert, numbered among the others than the first, has ever answered."""
        return bool((self._moment[..., expert, expert] > 0).any())

    def predict(self, deviations: F32) -> F32:
        """The mixture's deviation from the first expert: ``[Z, H, M, K - 1] -> [Z, H, M]``."""
        others = np.where(np.isnan(deviations), np.float32(0), deviations)
        return np.asarray((others * self._weights.astype(np.float32)).sum(axis=-1))

    def learn(self, horizons: I64, step: int, deviations: F32, residual: F32) -> None:
        """Matured examples of ``horizons [P]``: ``deviations [N, P, M, K - 1]``, and the truth's deviation
        ``residual [N, P, M]``, NaN where unknown.
        """
        elapsed = np.where(self._step[horizons] >= 0, np.maximum(step - self._step[horizons], 0), 0)
        keep = (self._keep**elapsed)[:, None, None]
        self._step[horizons] = np.maximum(step, self._step[horizons])
        x = np.where(np.isnan(deviations), 0, deviations).astype(np.float64)
        ok = np.isfinite(residual)
        r = np.where(ok, residual, 0).astype(np.float64)
        off = np.abs(r - (x * self._weights[horizons]).sum(axis=-1))
        weighed = ((ok / np.maximum(off, LEAST))[..., None] * x).transpose(1, 2, 3, 0)  # [P, M, K, N]
        self._moment[horizons] = self._moment[horizons] * keep[..., None] + weighed @ x.transpose(1, 2, 0, 3)
        added = (weighed @ r.transpose(1, 2, 0)[..., None])[..., 0]
        self._product[horizons] = self._product[horizons] * keep + added

    def refit(self) -> None:
        """Find the weights by coordinate descent, from those there are; a few times a day."""
        w = self._weights
        # An expert that has never differed from the first (a network that does not exist yet) has no share.
        alive = np.diagonal(self._moment, axis1=-2, axis2=-1) > 0
        prior = alive / (1 + alive.sum(axis=-1, keepdims=True))
        others = w.shape[-1]
        moment = self._moment + PRIOR * np.eye(others)
        product = self._product + PRIOR * prior
        for _ in range(SWEEPS):
            for k in range(others):
                rest = product[..., k] - (moment[..., k, :] * w).sum(axis=-1) + moment[..., k, k] * w[..., k]
                w[..., k] = np.minimum(np.maximum(rest / moment[..., k, k], 0), 1)
            w /= np.maximum(w.sum(axis=-1, keepdims=True), 1)

    def state_dict(self) -> dict[str, _Array]:
        """Everything that was learned; copies."""
        held = {"moment": self._moment, "product": self._product, "weights": self._weights, "step": self._step}
        return {name: array.copy() for name, array in held.items()}

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit."""
        if state["moment"].shape != self._moment.shape:
            raise ValueError(f"moment is {state['moment'].shape}, wanted {self._moment.shape}")
        self._moment, self._product = state["moment"].copy(), state["product"].copy()
        self._weights, self._step = state["weights"].copy(), state["step"].copy()
