"""A third kind of model in one file: ridge regression on how far a zone is off its climatology now and a day ago."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from models.families import Kind, Model
from models.features.inputs import Inputs
from models.features.windows import WindowSet
from models.spec import ForecastSpec

__all__ = ["LINE", "RidgeFamily"]

LINE = {"ridge": Kind("windows", "tests.models.tiny_ridge:RidgeFamily")}
"""The line that makes it known."""

F32 = npt.NDArray[np.float32]
STRENGTH = 10.0


def _regressors(inputs: Inputs) -> F32:
    """``[N, H, M, 3]``; what is missing says nothing."""
    base = inputs.baseline[..., 1]
    ones = np.ones_like(base)
    found = np.stack([ones, inputs.now[:, None] - base, inputs.yesterday - base], axis=-1)
    return np.asarray(np.nan_to_num(found, posinf=0, neginf=0), np.float32)


@dataclass(frozen=True)
class Ridge:
    """Weights of each horizon and target."""

    spec: ForecastSpec
    weights: F32  # [H, M, 3]

    @property
    def options(self) -> dict[str, Any]:
        return {"strength": STRENGTH}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"weights": self.weights.copy()}

    def answer(self, inputs: Inputs) -> F32:
        """The climatology's quantiles, moved."""
        moved = inputs.baseline + (_regressors(inputs) * self.weights).sum(axis=-1)[..., None]
        low, high = (np.array(ends, np.float32)[:, None] for ends in zip(*self.spec.limits, strict=True))
        return np.asarray(np.clip(moved, low, high), np.float32)


class RidgeFamily:
    """See :class:`models.families.ModelFamily`."""

    refits = False

    def make(self, spec: ForecastSpec, options: Mapping[str, Any]) -> Ridge:
        return Ridge(spec, np.zeros((len(spec.horizons_min), len(spec.targets), 3), np.float32))

    def fit(
        self, cases: WindowSet, origins: npt.NDArray[np.int64], settings: Mapping[str, Any], *, cut_ms: int,
        start: Model | None = None,
    ) -> Ridge:  # fmt: skip
        if not len(origins):
            raise ValueError("the history is too short: there is no origin to fit on")
        inputs, made = cases.inputs(origins), self.make(cases.spec, {})
        residual = cases.truth(origins, cut_ms) - inputs.baseline[..., 1]
        x = _regressors(inputs).astype(np.float64)
        for h, m in np.ndindex(residual.shape[1:]):
            known = np.isfinite(residual[:, h, m])
            a, b = x[known, h, m], residual[known, h, m].astype(np.float64)
            made.weights[h, m] = np.linalg.solve(a.T @ a + STRENGTH * np.eye(3), a.T @ b)
        return made

    def load(self, spec: ForecastSpec, options: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Ridge:
        weights = np.array(arrays["weights"])
        if weights.shape != self.make(spec, options).weights.shape:
            raise ValueError(f"weights are {weights.shape}")
        return Ridge(spec, weights)
