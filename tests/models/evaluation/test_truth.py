"""What counts as having happened, where a sensor has no value in most rows."""

from __future__ import annotations

import numpy as np
import pytest

from models.evaluation.scoring import LiveScore
from models.evaluation.truth import Truths
from models.spec import ForecastSpec

SPEC = ForecastSpec(("air_temp_c",), ("air_temp_c",), horizons_min=(5, 15, 60))
STEPS = SPEC.horizon_steps


def quarterly(length: int = 40) -> np.ndarray:
    """One zone whose sensor reports each quarter of an hour, ``[1, T, 1]``; each value is its row's number."""
    targets = np.full((1, length, 1), np.nan, np.float32)
    targets[0, 1::3, 0] = np.arange(length)[1::3]
    return targets


def test_a_truth_is_what_was_read_last_in_the_quarter_of_an_hour():
    """Never what was read when the forecast was made, or before, and nothing after the last row that counts."""
    truths = Truths(quarterly(), SPEC)
    found = truths.after(np.array([0, 0]), np.array([3, 30]), 34)[..., 0]
    np.testing.assert_array_equal(found, np.float32([[4, 4, 13], [31, 31, np.nan]]))
    assert np.isnan(truths.after(np.array([0]), np.array([1]))[0, 0, 0])  # row 2 has none, and row 1 is the origin


def test_live_scores_and_backtests_know_the_same_truths():
    """Of forecasts of 0 the error is the truth itself, and there is one for nearly each."""
    targets, live = quarterly(3 * SPEC.steps_per_day), LiveScore(SPEC)
    targets[:] = np.where(np.isfinite(targets), 20 + targets % 8, np.nan)
    truths, zone = Truths(targets, SPEC), np.array([live.add_zones()])
    said = np.zeros((1, len(STEPS), 1, 3), np.float32)
    for row in range(targets.shape[1]):
        live.learn(zone, targets[:, row], truths.newest[:, row])
        live.issue(zone, said, said[..., 1])
    origins = np.arange(3, targets.shape[1], 3)  # the first of each quarter of an hour; the first of all knows nothing
    came = truths.after(np.zeros_like(origins), origins)[..., 0]
    for h, steps in enumerate(STEPS):
        compared = came[origins + steps >= SPEC.steps_per_day + 1, h]  # a day before there was one to compare with
        known = compared[np.isfinite(compared)]
        cell = live.table()["air_temp_c"][SPEC.horizons_min[h]]
        assert cell["n"] == len(known)
        assert cell["model"] == pytest.approx(known.mean())
        assert len(known) > 0.9 * len(compared)
