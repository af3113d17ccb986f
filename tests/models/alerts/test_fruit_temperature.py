"""How warm a fruit is."""

from __future__ import annotations

import numpy as np

from models.alerts.fruit_temperature import fruit_temperature_c, time_constant_s


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
