"""The plain forecasts that every model must beat."""

import numpy as np

from models.evaluation.yardsticks import naive_24h, persistence
from tests.models.worlds import SPEC

DAY = SPEC.steps_per_day


def test_yardsticks():
    """Persistence repeats now; the naive takes the same time of the day before, NaN where it does not reach."""
    recent = np.arange(DAY, dtype=np.float32)[None, :, None]
    assert (persistence(recent[:, -1], SPEC) == DAY - 1).all()
    assert naive_24h(recent, SPEC)[0, :, 0].tolist() == [steps - 1 for steps in SPEC.horizon_steps]
    assert np.isnan(naive_24h(recent[:, 10:], SPEC)[0, 0, 0])
