"""The moving mean of the online models, beside Python's own arithmetic and the formulas that it took the place of."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.half_precision import LARGEST
from models.running_mean import counted, moved_mean

VALUES = st.one_of(st.floats(-1e4, 1e4, width=32), st.just(math.nan))


@given(values=st.lists(VALUES, max_size=30))
def test_a_mean_of_few_values_is_their_mean_and_the_missing_change_nothing(values: list[float]) -> None:
    """Until it is as slow as it may be, all values have the same weight."""
    mean, count = np.float32([np.nan]), np.uint8([0])
    for value in values:
        new = np.float32([value])
        mean, count = moved_mean(mean, count, new, np.float32(1e-9)), counted(count, ~np.isnan(new))
    known = [value for value in values if not math.isnan(value)]
    assert count.tolist() == [len(known)]
    if known:
        assert mean[0] == pytest.approx(sum(known) / len(known), rel=1e-4, abs=0.1)
    else:
        assert math.isnan(mean[0])


def test_a_count_stays_at_255_and_the_mean_goes_on() -> None:
    """Eight bits do not begin again at 0: a mean would then follow a single value."""
    mean, count = np.float32([20.0]), np.uint8([255])
    for _ in range(3):
        mean, count = moved_mean(mean, count, np.float32([30.0]), np.float32(1 / 64)), counted(count, known=True)
    assert (count.dtype, count.tolist()) == (np.dtype(np.uint8), [255])
    assert 20.0 < mean[0] < 21.0


def test_the_bits_are_those_of_the_formulas_before() -> None:
    """Of hours of day and horizons, sizes of errors, cut and in half precision, moved so."""
    rng = np.random.default_rng(7)
    shape = (50, 10, 4)
    count, slowest = rng.integers(0, 256, shape).astype(np.uint8), np.float32(1 / 60)
    half = rng.exponential(3, shape).astype(np.float16)
    half[count == 0] = np.nan
    error = rng.normal(0, 3, shape).astype(np.float32)
    error[rng.random(shape) < 0.2], error[rng.random(shape) < 0.01] = np.nan, np.inf
    held, known = half.astype(np.float32), np.isfinite(error)

    gain = np.maximum(slowest, 1 / (count + np.float32(1)))
    size = np.minimum(np.abs(error), np.float32(LARGEST))
    moved = np.where(np.isnan(held), size, held + gain * (size - held))
    before, count_before = np.where(known, moved, held), np.minimum(count, 254) + known

    after = moved_mean(held, count, np.where(known, size, np.float32(np.nan)), slowest)
    assert (after.dtype, after.tobytes()) == (before.dtype, before.tobytes())
    assert counted(count, known).tobytes() == count_before.tobytes()
