"""The simulated weather: memory, season, and the laws it keeps."""

import numpy as np
import pytest

from edge.simulator.physics.sun import clear_sky_w_m2, sine_of_elevation
from edge.simulator.physics.weather import Outside, SyntheticWeather
from models.psychrometrics import relative_humidity_pct

DAY_MS = 86_400_000
FEBRUARY_MS = 1_643_673_600_000
JULY_MS = FEBRUARY_MS + 150 * DAY_MS


@pytest.fixture(scope="module")
def february():
    """Thirty days, minute by minute: one array a variable."""
    return thirty_days(FEBRUARY_MS)


def thirty_days(start_ms):
    weather = SyntheticWeather(11, start_ms, 52.0, 4.5)
    rows = [weather.at(start_ms + minute * 60_000) for minute in range(30 * 1440)]
    return Outside(*np.array(rows).T)


def test_the_same_seed_gives_the_same_weather(february):
    """Also when it is asked in another pattern."""
    again = SyntheticWeather(11, FEBRUARY_MS, 52.0, 4.5)
    later = again.at(FEBRUARY_MS + 2 * DAY_MS)
    assert later == Outside(*(column[2 * 1440] for column in february))
    assert again.at(FEBRUARY_MS + DAY_MS) == Outside(*(column[1440] for column in february))


def test_the_past_is_refused():
    """The weather does not run backwards beyond what it keeps."""
    weather = SyntheticWeather(1, FEBRUARY_MS, 52.0, 4.5)
    weather.at(FEBRUARY_MS + 5 * DAY_MS)
    with pytest.raises(ValueError, match="only runs forward"):
        weather.at(FEBRUARY_MS)


def test_radiation_is_the_suns(february):
    """None at night, and never above a clear sky's by more than cloud edges add."""
    sine = np.concatenate([sine_of_elevation(FEBRUARY_MS // DAY_MS + day, 52.0, 4.5) for day in range(30)])
    clear = clear_sky_w_m2(sine)
    assert (february.radiation_w_m2[sine < 0] == 0).all()
    assert (february.radiation_w_m2 <= 1.09 * clear).all()
    assert 0.25 < february.radiation_w_m2.sum() / clear.sum() < 0.85


def test_days_differ_and_remember(february):
    """Daily means vary by 1-5 K, and one day resembles the next more than one a week later."""
    daily = february.temp_c.reshape(30, 1440).mean(axis=1)
    assert 1.0 < daily.std() < 5.0
    assert np.abs(np.diff(daily)).mean() < np.abs(daily[7:] - daily[:-7]).mean()


def test_weather_is_continuous_across_midnight(february):
    """No minute jumps: the day is a unit of computing, not of weather."""
    steps = np.abs(np.diff(february.temp_c))
    assert steps[1439::1440].max() < 3 * np.quantile(steps, 0.999)


def test_values_are_physical(february):
    """Humidity at most saturation, sky colder than air, wind not negative, directions on the compass."""
    rh = relative_humidity_pct(february.vapour_pa, february.temp_c)
    assert 15 < rh.min()  # noqa: SIM300
    assert rh.max() <= 99.6
    assert (february.sky_temp_c <= february.temp_c).all()
    assert february.wind_m_s.min() > 0
    assert february.wind_m_s.max() < 35
    assert ((february.wind_dir_deg >= 0) & (february.wind_dir_deg < 360)).all()
    assert set(np.unique(february.rain)) == {0.0, 1.0}


@pytest.mark.thorough
def test_summer_is_warmer_and_brighter(february):
    """The season and the sun do what they do."""
    july = thirty_days(JULY_MS)
    assert july.temp_c.mean() > february.temp_c.mean() + 7
    assert july.radiation_w_m2.mean() > 2 * february.radiation_w_m2.mean()


def test_clear_days_swing_more(february):
    """Days with more sun have a larger range of temperature."""
    sun = february.radiation_w_m2.reshape(30, 1440).mean(axis=1)
    swing = np.ptp(february.temp_c.reshape(30, 1440), axis=1)
    bright = sun > np.median(sun)
    assert swing[bright].mean() > swing[~bright].mean()


@pytest.mark.parametrize(("latitude", "warmer"), [(52.0, "July"), (-35.0, "January")])
def test_summer_is_when_the_sun_is_high(latitude, warmer):
    """South of the equator January is the warm month, as it is the bright one."""
    starts = {"January": FEBRUARY_MS - 31 * DAY_MS, "July": JULY_MS}
    found = {}
    for month, start_ms in starts.items():
        weather = SyntheticWeather(11, start_ms, latitude, 4.5)
        found[month] = np.mean([weather.at(start_ms + hour * 3_600_000).temp_c for hour in range(10 * 24)])
    cooler = (starts.keys() - {warmer}).pop()
    assert found[warmer] > found[cooler] + 5
