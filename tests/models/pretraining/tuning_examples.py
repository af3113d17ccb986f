"""Examples that a network can be fine-tuned on."""

from __future__ import annotations

import numpy as np

from models.network.house_features import HouseFeatures
from models.pretraining.fine_tuner import TuningExamples
from models.spec import ForecastSpec

SPEC = ForecastSpec(("air_temp_c", "rh_pct"), ("air_temp_c", "rh_pct"), (60, 360))


def examples(count: int = 400, seed: int = 1) -> TuningExamples:
    """What came lies above what was forecast wherever the first number of a horizon does, and below where that does."""
    rng, features = np.random.default_rng(seed), HouseFeatures(SPEC)
    origin = rng.normal(size=(count, features.width)).astype(np.float16)
    ahead = rng.normal(size=(count, 2, features.ahead_width)).astype(np.float16)
    baseline = np.broadcast_to(np.float32([18, 20, 22]), (count, 2, 2, 3)).copy()
    truth = 20 + np.sign(ahead[..., :1].astype(np.float32)) * np.ones(2, np.float32)
    return TuningExamples(origin, ahead, baseline, truth)
