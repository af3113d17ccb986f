"""Step 14 of the way of a reading: the errors of a model beside those of the baselines, on the same origins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from models.evaluation.yardsticks import naive_24h, persistence
from models.features.windows import WindowSet
from models.masked import masked_mean

__all__ = ["Errors", "Predict", "evaluate"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Predict = Callable[[Any], F32]
"""Inputs of whatever a model takes -> its quantiles ``[N, H, M, Q]``."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Absolute errors of a forecaster and the baselines, ``[N, H, M]`` each, on the same origins.

    NaN wherever the truth or any of the four is missing, so that every comparison is paired.
    """

    origin_ms: I64
    zone: I64
    model: F32
    climatology: F32
    persistence: F32
    naive_24h: F32
    inside: F32  # 1 where the truth lay within p10 ... p90; NaN of a model that has no such interval

    def mae(self, name: str = "model") -> F32:
        """Mean absolute error a cell, ``[H, M]``; NaN where nothing could be compared."""
        return masked_mean(getattr(self, name), axis=0)


def evaluate(predict: Predict, windows: WindowSet, origins: I64, known_until_ms: int | None = None) -> Errors:
    """Measure ``predict`` and the baselines on ``origins [N]`` of ``windows``, by truths known until ``known_until_ms``
    (:meth:`WindowSet.truth`).
    """
    truth = windows.truth(origins, known_until_ms)
    inputs = windows.inputs(origins)
    quantiles = predict(inputs)
    references = {
        "model": quantiles[..., 1],
        "climatology": inputs.baseline[..., 1],
        "persistence": persistence(inputs.now, windows.spec),
        "naive_24h": naive_24h(windows.recent_targets(origins), windows.spec),
    }
    errors = {name: np.abs(forecast - truth) for name, forecast in references.items()}
    # A model that answers NaN where the climatology answers must not hide there: the gate sees it.
    known = np.isfinite(errors["climatology"] + errors["persistence"] + errors["naive_24h"])
    wide = known & np.any(quantiles[..., 2] > quantiles[..., 0])
    inside = np.where(wide, (truth >= quantiles[..., 0]) & (truth <= quantiles[..., 2]), np.nan).astype(np.float32)
    return Errors(
        origin_ms=windows.times(origins),
        zone=origins // windows.length,
        inside=inside,
        **{name: np.where(known, error, np.nan).astype(np.float32) for name, error in errors.items()},
    )
