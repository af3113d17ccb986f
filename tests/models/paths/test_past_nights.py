"""Past nights: their minima, what lies between half hours, and how good scenarios were."""

import numpy as np
import pytest

from models.paths.past_nights import DAY, NIGHT, PRIOR, PastNights, pooled_chance
from models.spec import ForecastSpec

SPEC = ForecastSpec(channels=(), targets=("air_temp_c",), step_ms=600_000)
A_DAY = SPEC.steps_per_day
ONE = np.array([0])


def is_night(step):
    """From 18 to 6 o'clock."""
    return not 6 * 6 <= step % A_DAY < 18 * 6


def made_with(zones=1):
    """Nights of new zones."""
    made = PastNights(SPEC, 1)
    made.add_zones(zones)
    return made


def run(made, series, start=0):
    """Take a series of one zone."""
    for step, value in enumerate(series, start):
        made.learn(ONE, np.float32([[value]]), np.array([step % A_DAY]), np.array([is_night(step)]))


def days_of(lows):
    """A day whose night (the second half of it, and the first of the next) is as cold as asked, at 22 h."""
    series = np.full(len(lows) * A_DAY, 20.0)
    series[22 * 6 :: A_DAY] = lows
    return series


def test_whole_nights_are_remembered():
    """The night in which the record began is not, nor the one that goes on."""
    made = made_with()
    run(made, days_of([12.0, 14.0, 11.0]))
    assert made.past(0, NIGHT)[:, 0].tolist() == [12.0, 14.0]
    assert made.past(0, DAY)[:, 0].tolist() == [20.0, 20.0, 20.0]


def test_a_night_with_many_gaps_is_left_out():
    """Its minimum may lie in a gap."""
    series = days_of([12.0, 14.0, 11.0])
    series[19 * 6 : 24 * 6] = np.nan
    made = made_with()
    run(made, series)
    assert made.past(0, NIGHT)[:, 0].tolist() == [14.0]


def test_a_target_without_a_sensor_takes_no_night_from_the_others():
    """As a zone without a sensor of CO2: its nights are known all the same."""
    made = PastNights(ForecastSpec(channels=(), targets=("air_temp_c", "co2_ppm"), step_ms=600_000), 1)
    made.add_zones()
    for step, value in enumerate(days_of([12.0, 14.0, 11.0])):
        made.learn(ONE, np.float32([[value, np.nan]]), np.array([step % A_DAY]), np.array([is_night(step)]))
    np.testing.assert_array_equal(made.past(0, NIGHT), [[12.0, np.nan], [14.0, np.nan]])


def test_a_chance_is_what_scenarios_and_past_nights_say():
    """Scenarios count twice; without a past night they count alone."""
    made, values = made_with(), np.float32([10.0] * 5 + [16.0] * 5)
    assert pooled_chance(values, made.past(0, NIGHT)[:, 0], 13.0, -1) == pytest.approx(0.5)
    run(made, days_of([12.0, 14.0, 15.0, 15.0, 15.0]))
    past = made.past(0, NIGHT)[:, 0]
    assert pooled_chance(values, past, 13.0, -1) == pytest.approx((2 * 0.5 + 0.25) / 3)
    assert pooled_chance(values, past, 13.0, 1) == pytest.approx((2 * 0.5 + 0.75) / 3)


def test_scenarios_that_were_too_wide_are_made_narrower():
    """Nights that always came out as the median said: less is left of the width, the median stays."""
    made = made_with()
    for day in range(30):
        run(made, days_of([12.0])[12 * 6 :], start=day * A_DAY + 12 * 6)
        made.expect(ONE, NIGHT, np.float32([[[10.0, 12.0, 14.0]]]))
        run(made, np.full(12 * 6, 20.0), start=(day + 1) * A_DAY)
    values = np.linspace(10, 14, 101, dtype=np.float32)[:, None, None]
    low, median, high = np.quantile(made.corrected(NIGHT, values), [0.1, 0.5, 0.9])
    left = PRIOR / (PRIOR + 30)
    assert median == pytest.approx(12, abs=0.05)
    assert high - low == pytest.approx(3.2 * left, rel=0.1)


def test_without_a_past_scenarios_stay_as_they_are():
    """No night was rated: nothing is moved."""
    values = np.random.default_rng(0).normal(12, 2, (100, 1, 1)).astype(np.float32)
    corrected = made_with().corrected(NIGHT, values)
    wide = np.quantile(values, 0.9) - np.quantile(values, 0.1)
    assert np.abs(corrected - values).max() < wide / 2
    assert np.quantile(corrected, 0.5) == pytest.approx(np.quantile(values, 0.5), abs=0.01)


def test_what_lies_between_half_hours_is_remembered():
    """A series that dips by 1 between its half hours does so at that hour, and not above them."""
    series = np.where(np.arange(10 * A_DAY) % 3 == 1, 19.0, 20.0)
    made = made_with()
    run(made, series)
    low, high = (made.beyond(ONE, np.array([0]), np.array([3, 6]), sign) for sign in (-1, 1))
    assert low == pytest.approx(np.ones((1, 2, 1)), abs=0.05)
    assert high == pytest.approx(np.zeros((1, 2, 1)), abs=0.05)


def test_nights_go_on_from_their_state():
    """A copy that took over the state in the middle of a night ends it the same way."""
    series = days_of([12.0, 14.0, 11.0, 13.0])
    made, other = made_with(), PastNights(SPEC, 1)
    run(made, series[: 3 * A_DAY])
    other.load_state_dict(made.state_dict())
    for one in (made, other):
        run(one, series[3 * A_DAY :], start=3 * A_DAY)
    assert np.array_equal(made.past(0, NIGHT), other.past(0, NIGHT))
