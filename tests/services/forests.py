"""Trees for tests that need some and do not care what they say. Imports neither torch nor MLflow."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from models import artefact
from models.spec import ForecastSpec
from models.trees.example_set import Regressors
from models.trees.family import Trees
from models.trees.forest import Forest
from models.trees.tree_grower import _fit, _forest
from services.store.pointer import Pointer

__all__ = ["keep_as_before", "point_at", "save_trees", "small_forest"]


def small_forest(spec: ForecastSpec, cell: int = 0) -> Forest:
    """Trees in the cell of one target alone, that ask for the first regressor."""
    cells: list[list[Any]] = [[None] * len(spec.targets) for _ in spec.horizons_min]
    cells[0][cell] = _fit(np.repeat(np.eye(2, dtype=np.float32), 400, axis=0), np.repeat([0.0, 1.0], 400))
    return _forest(len(spec.horizons_min), len(spec.targets), cells)


def save_trees(folder: Path, spec: ForecastSpec, regressors: int, cell: int = 0) -> Path:
    """An artefact of small trees for so many regressors, of which ``_zeros`` are the golden ones."""
    trees = Trees(spec, small_forest(spec, cell), regressors)
    shape = (1, len(spec.horizons_min), len(spec.targets))
    zeros = Regressors(
        np.zeros((1, 3), np.float32), np.zeros((1, shape[1], regressors - 3), np.float32), np.ones(shape, np.float32),
        np.zeros((1, shape[2]), np.float32), np.zeros(shape, np.float32),
    )  # fmt: skip
    artefact.save(folder, trees, zeros, trained_on={"to_ms": 1}, seed=7, metrics={}, kind="trees")
    return folder


def point_at(storage: Path, version: str, folder: Path | str = "") -> None:
    """Have shards use these trees."""
    Pointer(storage, "trees").move(version, str(folder))


def keep_as_before(root: Path, spec: ForecastSpec, regressors: int, to_ms: int) -> str:
    """Trees in the folder and form of before there was a registry for them; their name."""
    weights = save(small_forest(spec).state_dict())
    digest = hashlib.sha256(weights).hexdigest()
    name = f"{datetime.fromtimestamp(to_ms / 1000, UTC):%Y%m%dT%H%M%S}-{digest[:8]}"
    manifest = {
        "format": 1, "schema_hash": spec.hash, "regressors": regressors, "weights_sha256": digest,
        "grown_on": {"to_ms": to_ms, "zones": ["demo/z1"]},
    }  # fmt: skip
    folder = root / "models" / "forests" / name
    folder.mkdir(parents=True)
    (folder / "weights.safetensors").write_bytes(weights)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return name
