"""The mean of what is known, beside Python's own arithmetic and the formulas that it took the place of."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.masked import held_along, masked_mean, mean_of_known, newest_known

VALUES = st.one_of(st.floats(-1e6, 1e6, width=32), st.sampled_from([math.nan, math.inf, -math.inf]))


@given(rows=st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=1, max_size=8))
def test_only_what_is_known_counts(rows: list[list[float]]) -> None:
    """Missing and infinite values are left out; a mean of nothing is NaN; nothing is warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = masked_mean(np.array(rows, np.float32), axis=0, dtype=np.float64)
    for column, mean in zip(zip(*rows, strict=True), found.tolist(), strict=True):
        known = [Fraction(value) for value in column if math.isfinite(value)]
        if known:
            assert mean == pytest.approx(float(sum(known) / len(known)), rel=1e-12, abs=1e-9)
        else:
            assert math.isnan(mean)


@pytest.mark.parametrize("length", [1, 24, 2**16 - 1, 2**16])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_bits_are_those_of_the_formulas_before(length: int, axis: int) -> None:
    """A quotient in float32, and one in float64 that is rounded, were both in use: their bits are the same."""
    rng = np.random.default_rng(length)
    x = rng.normal(20, 30, (length, 7) if axis == 0 else (7, length)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = np.nan
    known = np.isfinite(x)
    count = known.sum(axis=axis)
    total = np.where(known, x, 0).sum(axis=axis)
    with np.errstate(invalid="ignore"):
        double = np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)
        single = np.where(count > 0, total / np.maximum(count, 1).astype(np.float32), np.float32(np.nan))
    found = masked_mean(x, axis=axis)
    assert found.dtype == np.float32
    assert found.tobytes() == double.tobytes() == single.tobytes()


@pytest.mark.parametrize(
    ("given", "asked", "got"),
    [
        (np.float16, None, np.float32),
        (np.float32, None, np.float32),
        (np.float32, np.float64, np.float64),
        (np.float64, None, np.float64),
    ],
)
def test_the_result_has_the_type_of_the_sum(given: type, asked: type | None, got: type) -> None:
    """Half precision is summed in float32, what is asked for in doubles stays in doubles."""
    found = masked_mean(np.full(5000, 30, given), axis=0, dtype=asked)
    assert found.dtype == got
    assert found == 30


def test_nothing_along_the_axis_is_unknown() -> None:
    """No value at all is no mean."""
    assert np.isnan(masked_mean(np.zeros((0, 2), np.float32), axis=0)).all()


def test_the_mean_of_a_few_arrays_is_that_of_one_array():
    """Bit for bit, with gaps anywhere and infinities."""
    rng = np.random.default_rng(3)
    whole = rng.normal(size=(50, 7, 3, 4)).astype(np.float32)
    whole[rng.random(whole.shape) < 0.4] = np.nan
    whole[0, 0, 0, 0] = np.inf
    parts = [whole[:, :, k] for k in range(3)]
    assert np.array_equal(mean_of_known(parts), masked_mean(whole, axis=2), equal_nan=True)


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(0, 40))
def test_the_newest_known_value_is_the_one_that_is_held(seed: int, length: int, most: int) -> None:
    """It is what :func:`held_along` has in the last row, and stands in the row that is said."""
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((2, length, 3)) < 0.2, rng.normal(size=(2, length, 3)), np.nan)
    newest, rows = newest_known(values, most)
    np.testing.assert_array_equal(newest, held_along(values, most)[:, -1])
    place = (length - 1 - rows)[:, None]
    is_known = np.isfinite(newest)
    np.testing.assert_array_equal(np.take_along_axis(values, place, axis=1)[:, 0][is_known], newest[is_known])
    assert (rows <= most).all()
