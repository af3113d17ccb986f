"""Networks that were fine-tuned, for tests that need some and do not care what they say. Imports no torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from models import artefact
from models.network.house_features import HouseFeatures
from models.network.tuned_network import CorrectionInputs, TunedNetwork
from models.online.corrections.house_memory import channels_of
from models.pretraining.shipped_arrays import pretrained
from models.spec import ForecastSpec
from services.messages import ONLINE_VERSION
from services.store.pointer import Pointer

__all__ = ["arrays", "point_at_tuned", "save_tuned"]


def arrays(bias: float) -> dict[str, np.ndarray]:
    """The package's network, which moves every median by so many widths more."""
    made = {name: array.copy() for name, array in pretrained().arrays.items()}
    made["head.bias"] = made["head.bias"] + np.float32(bias)
    return made


def save_tuned(folder: Path, spec: ForecastSpec, bias: float) -> Path:
    """An artefact of such a network."""
    features, h = HouseFeatures(spec, channels_of(spec)), len(spec.horizons_min)
    golden = CorrectionInputs(
        np.zeros((1, features.width), np.float16),
        np.zeros((1, h, features.ahead_width), np.float16),
        np.broadcast_to(np.float32([9, 10, 12]), (1, h, len(spec.targets), 3)).copy(),
    )
    network = TunedNetwork(spec, arrays(bias))
    artefact.save(folder, network, golden, trained_on={"to_ms": 1}, seed=1, metrics={}, kind="tuned")
    return folder


def point_at_tuned(storage: Path, version: str, folder: Path | str = "") -> None:
    """Have shards follow it."""
    Pointer(storage, "tuned").move(version, "" if version == ONLINE_VERSION else str(folder))
