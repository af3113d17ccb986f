"""How warm a fruit is."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from models.alerts.fruit_temperature import LONGEST, fruit_temperature_c, time_constant_s


def test_a_fruit_makes_63_per_cent_of_a_change_within_its_time_constant() -> None:
    """The air warms by 10 °C at once; a minute's steps do not change what comes out."""
    minutes = round(time_constant_s(60) / 60)
    air = np.where(np.arange(minutes + 2) < 1, 10.0, 20.0)
    fruit = fruit_temperature_c(air, 60_000, 60)
    assert abs(fruit[minutes] - (10 + 10 * 0.632)) < 0.15


def test_a_larger_fruit_follows_more_slowly() -> None:
    """In a morning that warms by 2 °C an hour a large fruit stays further behind: by rate times time constant."""
    air = 10 + np.arange(97) / 2.0
    small, large = (fruit_temperature_c(air, 900_000, size)[-1] for size in (30, 70))
    assert np.allclose([air[-1] - small, air[-1] - large], [2 * time_constant_s(mm) / 3600 for mm in (30, 70)], 0.01)


def test_steps_of_half_an_hour_say_what_steps_of_a_minute_say() -> None:
    """Between its values the air is on a line, and the lag of that is exact."""
    fine = np.concatenate([np.linspace(12, 12, 61), np.linspace(12, 20, 121)[1:], np.linspace(20, 14, 121)[1:]])
    assert np.allclose(fruit_temperature_c(fine, 60_000, 60)[::30], fruit_temperature_c(fine[::30], 1_800_000, 60))


def test_where_the_air_is_unknown_the_fruit_stays() -> None:
    """It goes on from the next known value, and begins with the first."""
    air = np.array([np.nan, 20.0, np.nan, 20.0, 10.0])
    fruit = fruit_temperature_c(air, 1_800_000, 60)
    assert np.isnan(fruit[0])
    assert fruit[1:4].tolist() == [20.0, 20.0, 20.0]
    assert 10 < fruit[4] < 20


@pytest.mark.parametrize("steps", [96, LONGEST + 1])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_a_course_alone_says_what_it_says_among_scenarios(steps: int, missing: float) -> None:
    """Whichever way it is made: short scenarios with a kernel, others step by step."""
    rng = np.random.default_rng(0)
    air = (20 + rng.normal(0, 1, (3, steps)).cumsum(axis=1)).astype(np.float32)
    air[rng.random(air.shape) < missing] = np.nan
    together = fruit_temperature_c(air, 600_000, 60)
    alone = np.stack([fruit_temperature_c(each, 600_000, 60) for each in air])
    assert (alone.dtype, together.dtype) == (np.float32, np.float32)
    np.testing.assert_allclose(alone, together, atol=1e-4)


def test_a_day_of_ten_second_rows_takes_little_memory() -> None:
    """A kernel of its steps would have 600 MB."""
    air = np.linspace(10, 20, 8_640, dtype=np.float32)
    tracemalloc.start()
    try:
        fruit = fruit_temperature_c(air, 10_000, 60)
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()
    assert air[-1] - 1 < fruit[-1] < air[-1]
