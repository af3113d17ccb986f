"""What a model sees."""

from datetime import datetime

import numpy as np
import pytest

from models.features.inputs import (
    build_inputs,
    day_bins,
    input_channels,
    local_ms,
    refracted_deg,
    sun_elevation_deg,
    targets_along,
    targets_of,
    window_tokens,
)
from models.spec import ForecastSpec, Place
from tests.models.worlds import PLACE, SPEC, START_MS, STEP_MS, rows

FIELDS = ("window", "now", "calendar", "sun", "yesterday", "future", "baseline")


def example(n=3, spec=SPEC):
    """``n`` windows one step apart, and a baseline that says which cell it is."""
    series = rows(3, 1)[0]
    length = spec.lookback_steps
    values = np.stack([series[i : i + length] for i in range(n)])
    origin = START_MS + (length - 1 + np.arange(n, dtype=np.int64)) * STEP_MS
    baseline = np.arange(n * 4 * 3 * 3, dtype=np.float32).reshape(n, 4, 3, 3)
    return values, origin, baseline


def test_an_example_does_not_depend_on_those_beside_it():
    """A batch equals its examples one by one, bit for bit."""
    values, origin, baseline = example(5)
    batch = build_inputs(values, origin, [PLACE] * 5, baseline, SPEC)
    for i in range(5):
        one = build_inputs(values[i : i + 1], origin[i : i + 1], [PLACE], baseline[i : i + 1], SPEC)
        for name in FIELDS:
            assert np.array_equal(getattr(one, name)[0], getattr(batch, name)[i], equal_nan=True), name


def test_inputs_are_not_changed():
    """Building inputs leaves its arguments as they were."""
    values, origin, baseline = example()
    before = values.copy(), origin.copy(), baseline.copy()
    build_inputs(values, origin, [PLACE] * 3, baseline, SPEC)
    for kept, now in zip(before, (values, origin, baseline), strict=True):
        assert np.array_equal(kept, now, equal_nan=True)


def test_tokens_are_hourly_means_then_the_newest_rows():
    """The last hourly token is the mean of the last hour's known values, the last token is the newest row."""
    values, origin, baseline = example(1)
    inputs = build_inputs(values, origin, [PLACE], baseline, SPEC)
    assert inputs.window.shape == (1, window_tokens(SPEC), len(input_channels(SPEC)))
    temp = input_channels(SPEC).index("air_temp_c")
    assert inputs.window[0, 23, temp] == pytest.approx(np.nanmean(values[0, -4:, 0]), rel=1e-6)
    assert np.array_equal(inputs.window[0, -1, temp], values[0, -1, 0], equal_nan=True)


def test_directions_enter_as_sine_and_cosine():
    """350 and 10 degrees average to north, not to south."""
    values, origin, baseline = example(1)
    wind = SPEC.channels.index("wind_dir_deg")
    values[0, -4:, wind] = [350, 10, 350, 10]
    inputs = build_inputs(values, origin, [PLACE], baseline, SPEC)
    names = input_channels(SPEC)
    assert inputs.window[0, 23, names.index("cos wind_dir_deg")] == pytest.approx(np.cos(np.deg2rad(10)), abs=1e-6)
    assert inputs.window[0, 23, names.index("sin wind_dir_deg")] == pytest.approx(0, abs=1e-6)


def test_yesterday_is_the_same_time_of_day_as_the_horizon():
    """A day before the target's time: for 24 h that is now, for 1 h it is 23 h ago."""
    values, origin, baseline = example(1)
    inputs = build_inputs(values, origin, [PLACE], baseline, SPEC)
    for h, steps in enumerate(SPEC.horizon_steps):
        assert np.array_equal(inputs.yesterday[0, h, 0], values[0, steps - 1, 0], equal_nan=True)


def test_a_place_without_coordinates_has_no_sun_but_a_calendar():
    """The sun is missing where it is unknown, and stays known for the zone beside it."""
    values, origin, baseline = example(2)
    inputs = build_inputs(values, origin, [Place(), PLACE], baseline[:2], SPEC)
    assert np.isnan(inputs.sun[0]).all()
    assert np.isfinite(inputs.sun[1]).all()
    assert np.isfinite(inputs.calendar).all()


def test_missing_channels_give_missing_targets():
    """Without a humidity channel there is no VPD; the rest stays."""
    spec = ForecastSpec(channels=("air_temp_c",), targets=("air_temp_c", "rh_pct", "vpd_kpa"))
    assert np.isfinite(targets_of(np.array([[20.0]], dtype=np.float32), spec)).tolist() == [[True, False, False]]


def test_all_missing_values_stay_missing():
    """A silent zone gives NaN features and no warning."""
    values, origin, baseline = example(1)
    with np.errstate(all="raise"):
        inputs = build_inputs(np.full_like(values, np.nan), origin, [PLACE], baseline, SPEC)
    assert np.isnan(inputs.window).all()


@pytest.mark.parametrize("wrong", ["values", "baseline", "places"])
def test_shapes_that_do_not_fit_are_refused(wrong):
    """A wrong shape is named, not broadcast."""
    values, origin, baseline = example(2)
    baseline = baseline[:2]
    places = [PLACE] * 2
    if wrong == "values":
        values = values[:, 1:]
    elif wrong == "baseline":
        baseline = baseline[:, 1:]
    else:
        places = places[:1]
    with pytest.raises(ValueError, match=r"wants|fit"):
        build_inputs(values, origin, places, baseline, SPEC)


def test_the_calendar_follows_the_control_clock_through_daylight_saving():
    """On 27 March 2022 civil time jumps an hour at 01:00 UTC; standard time does not."""
    before = 1_648_342_800_000 - STEP_MS  # 2022-03-27T00:45Z
    times = np.array([before, before + STEP_MS], dtype=np.int64)
    civil = local_ms(Place("Europe/Amsterdam", "civil"), times)
    standard = local_ms(Place("Europe/Amsterdam", "standard"), times)
    assert np.diff(civil)[0] == STEP_MS + 3_600_000
    assert np.diff(standard)[0] == STEP_MS
    assert day_bins(Place("Europe/Amsterdam", "standard"), times, SPEC).tolist() == [7, 8]


@pytest.mark.parametrize(("timezone", "hours"), [("Europe/Dublin", 0), ("Eire", 0), ("Africa/Casablanca", 1)])
def test_a_standard_clock_is_that_of_winter_also_where_the_law_says_otherwise(timezone: str, hours: int) -> None:
    """Ireland's standard time is summer's by its law; Morocco puts its clock back in Ramadan, here in March."""
    days = ["2026-01-15", "2026-03-05", "2026-07-15"]
    times = [round(datetime.fromisoformat(f"{day}T12:00+00:00").timestamp() * 1000) for day in days]
    place = Place(timezone, "standard")
    assert [place.local_ms(ms) - ms for ms in times] == [hours * 3_600_000] * 3


def test_the_sun_is_seen_near_where_it_is():
    """Refraction lifts it by less than a degree, and never where it is far below the horizon."""
    true = np.linspace(-90, 90, 1_000_001)
    lifted = refracted_deg(true) - true
    assert np.all(lifted[true < -2] == 0)
    assert np.all((lifted[true > -0.8] > 0) | (true[true > -0.8] > 80))
    assert 0.3 < lifted.max() < 1


def test_the_sun_of_an_array_is_the_sun_of_each_time():
    """Elevations come out in the shape that was asked, alike in any company."""
    times = START_MS + np.arange(12, dtype=np.int64).reshape(3, 4) * 7_777_777
    grid = sun_elevation_deg(times, 52.0, 4.5)
    assert grid.shape == (3, 4)
    assert grid[1, 2] == sun_elevation_deg(times[1:2, 2], 52.0, 4.5)[0]


FIVE = ForecastSpec(("air_temp_c", "rh_pct", "irrigation_l_m2"), ("air_temp_c", "rh_pct", "vpd_kpa"))


def apart(length: int, every: int) -> np.ndarray:
    """Air and humidity of sensors that report in each ``every``-th row, never in the same, ``[1, length, 3]``."""
    values = np.full((1, length, 3), np.nan, np.float32)
    values[0, ::every, 0] = 20
    values[0, every // 2 :: every, 1] = 50
    return values


@pytest.mark.parametrize("every", [3, 12])
def test_sensors_that_never_share_a_row_make_a_vapour_pressure_deficit(every: int):
    """Of a quarter of an hour, or of an hour: each reading goes with the newest one of the other."""
    values = apart(48, every)
    made = targets_along(values, FIVE)[0, every:, 2]
    spoken = np.isfinite(values[0, every:, :2]).any(axis=1)
    assert made[spoken] == pytest.approx(targets_of(np.float32([20, 50, np.nan]), FIVE)[2])
    assert np.isnan(made[~spoken]).all()


def test_a_reading_makes_no_vapour_pressure_deficit_with_one_that_is_old():
    """After half an hour the other one stands for nothing; and none is made of two old ones."""
    values = np.full((1, 10, 3), np.nan, np.float32)
    values[0, 0, 0], values[0, 6, 1], values[0, 9, 1] = 20, 50, 50
    assert np.flatnonzero(np.isfinite(targets_along(values, FIVE)[0, :, 2])).tolist() == [6]


def test_a_network_reads_in_the_newest_row_what_slow_sensors_said_last():
    """In the hour before; a counter counts in its own row alone."""
    values = np.broadcast_to(apart(FIVE.lookback_steps, 12), (1, FIVE.lookback_steps, 3)).copy()
    values[0, -2, 2] = 1.5
    origin, baseline = np.array([START_MS]), np.zeros((1, len(FIVE.horizons_min), 3, 3), np.float32)
    made = build_inputs(values, origin, [PLACE], baseline, FIVE)
    newest = made.window[0, -1, [input_channels(FIVE).index(name) for name in FIVE.channels]]
    np.testing.assert_array_equal(newest, np.float32([20, 50, np.nan]))
    assert made.now[0, :2].tolist() == [20, 50]
    assert np.isfinite(made.now[0, 2])
    assert np.isnan(made.window[0, -2, 0])
