"""Knots of the day: as many for every step, and a line between two."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.day_knots import DayKnots
from models.spec import ForecastSpec

STEPS_S = [s for s in range(10, 3601) if 86_400 % s == 0]


@given(st.sampled_from(STEPS_S))
def test_knots_divide_the_day_and_are_at_most_a_quarter_of_an_hour_apart(step_s: int) -> None:
    """Where rows are further apart than that, every row has its own."""
    knots = DayKnots(ForecastSpec(channels=(), step_ms=1000 * step_s))
    assert knots.stride * knots.count == 86_400 // step_s
    assert knots.stride == 1 or knots.stride * step_s <= 900
    assert knots.count <= 300


@pytest.mark.parametrize("step_min", [1, 5, 15, 60])
def test_what_is_a_line_from_knot_to_knot_comes_back(step_min: int) -> None:
    """At every step of the day, over midnight too, for zones that are at different times."""
    spec = ForecastSpec(channels=(), step_ms=60_000 * step_min)
    knots, rng = DayKnots(spec), np.random.default_rng(0)
    held = rng.normal(20, 3, (2, knots.count, 2)).astype(np.float16)
    bins = np.stack([np.arange(knots.day), np.roll(np.arange(knots.day), 7)])
    found = knots.at(held, np.arange(2)[:, None], bins)
    closed = np.concatenate([held, held[:, :1]], axis=1).astype(float)
    for zone in range(2):
        for column in range(2):
            wanted = np.interp(bins[zone] / knots.stride, np.arange(knots.count + 1), closed[zone, :, column])
            np.testing.assert_allclose(found[zone, :, column], wanted, rtol=1e-5)


def test_beside_a_knot_that_is_unknown_the_other_one_counts() -> None:
    """Between two that are unknown nothing is known."""
    knots = DayKnots(ForecastSpec(channels=()))
    held = np.full((1, knots.count, 1), np.nan, np.float32)
    held[0, 5] = 7
    found = knots.at(held, np.array([[0]]), np.arange(knots.day)[None])[0, :, 0]
    assert np.flatnonzero(np.isfinite(found)).tolist() == [*range(4 * 3 + 1, 6 * 3)]
    assert set(found[np.isfinite(found)].tolist()) == {7.0}
