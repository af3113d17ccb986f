"""A forest for tests that need one and do not care what it says. Imports neither torch nor MLflow."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.spec import ForecastSpec
from models.trees.forest import Forest
from services.learn.trees.tree_grower import _fit, _forest

__all__ = ["small_forest"]


def small_forest(spec: ForecastSpec) -> Forest:
    """Trees in the first cell alone, that ask for the first regressor."""
    cells: list[list[Any]] = [[None] * len(spec.targets) for _ in spec.horizons_min]
    cells[0][0] = _fit(np.repeat(np.eye(2, dtype=np.float32), 400, axis=0), np.repeat([0.0, 1.0], 400))
    return _forest(len(spec.horizons_min), len(spec.targets), cells)
