"""Step 7 of the way of a reading: one median of all experts.

:class:`ExpertMix` composes the weights that were learned of all zones with what a zone follows after a change.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models.durations import HOUR_MS
from models.online.basis import EXPERTS, FIRST, NETWORK, WEIGHED, Basis
from models.online.change_points import ChangePoints
from models.online.mixture import Mixture
from models.spec import ForecastSpec

__all__ = ["LIMIT", "ExpertMix"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

LIMIT = 6.0
"""No expert departs from the climatology by more than this many times its usual error."""

FAST = {"yesterday": 1 / 2, "shifted": 1 / 2}
"""What a zone follows after a change, at horizons of ``FAST_MS`` and more: shorter ones know from the climate now what
has changed."""

FAST_MS = 3 * HOUR_MS


class ExpertMix:
    """The median of experts, and what each weighs in it; what it knows lies in ``mixture`` and ``change``."""

    def __init__(self, spec: ForecastSpec, mixture: Mixture, change: ChangePoints) -> None:
        self._mixture, self._change = mixture, change
        self._fast = [EXPERTS.index(name) for name in FAST]
        self._fast_weights = np.array(list(FAST.values()), dtype=np.float32)
        steps = np.array(spec.horizon_steps, dtype=np.int64)
        self._far = (steps * spec.step_ms >= FAST_MS).astype(np.float32)[:, None]

    def median(self, zones: I64, experts: F32, unit: F64) -> F32:
        """The mixture of ``experts [Z, H, M, K]``, ``[Z, H, M]``; ``unit [H, M]`` is the first one's usual error."""
        mixed = experts[..., 0] + self._mixture.predict(self.deviations(experts, unit)) * unit.astype(np.float32)
        level = self._change.level(zones)
        if level.any():
            fast = experts[..., self._fast] @ self._fast_weights
            share = level[:, None] * self._far
            mixed = mixed + share * np.where(np.isnan(fast), np.float32(0), fast - mixed)
        return np.asarray(mixed, dtype=np.float32)

    def deviations(self, experts: F32, unit: F64) -> F32:
        """How far those that are weighed lie from the first expert, ``[Z, H, M, K - WEIGHED]``, in its usual errors
        (``unit [H, M]``, in the targets' units), within ``LIMIT``.
        """
        deviations = (experts[..., WEIGHED : len(EXPERTS)] - experts[..., :1]) / unit.astype(np.float32)[..., None]
        return np.asarray(np.clip(deviations, np.float32(-LIMIT), np.float32(LIMIT)))

    def weights(self, basis: Basis, network: F32 | None, young: F32) -> F32:
        """What each expert weighs, ``[Z, H, M, K]`` in the order of EXPERTS; ``young [Z, M]`` is the share of a zone's
        first days.

        They sum to one. An expert without an answer weighs nothing: the climatology has its share.
        """
        experts = basis.experts[..., : len(EXPERTS)]
        if network is not None:
            experts = experts.copy()
            experts[..., NETWORK] = network
        learned = self._mixture.weights.astype(np.float32)
        weights = np.zeros_like(experts)
        weights[..., 0], weights[..., WEIGHED:] = learned[..., 0], learned[..., 1:]
        silent = ~np.isfinite(experts)
        weights[..., 0] += np.where(silent, weights, 0).sum(axis=-1)
        weights[silent] = 0
        fast = np.zeros(len(EXPERTS), np.float32)
        fast[self._fast] = self._fast_weights
        changed = self._change.level(basis.zones)[:, None] * self._far  # [Z, H, M]
        changed = np.where(silent[..., self._fast].any(axis=-1), 0, changed)[..., None]
        weights += changed * (fast - weights)
        first = np.zeros(len(EXPERTS), np.float32)
        first[FIRST] = 1
        share = np.where(silent[..., FIRST], 0, young[:, None])[..., None]
        return np.asarray(weights + share * (first - weights), np.float32)
