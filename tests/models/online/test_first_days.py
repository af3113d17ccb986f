"""A zone's first days: intervals from the first forecast on, a prior that fades, and a state that can be kept."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.online.first_days.answer_weights import AnswerWeights
from models.online.first_days.first_days import FirstDays
from models.online.first_days.first_widths import UNTOLD
from models.online.online_forecaster import OnlineForecaster
from models.online.prior import ANSWERS, Prior, read_table
from models.spec import ForecastSpec
from tests.models.online.online_worlds import DAY, SPEC, forecaster, rows, run, same, sun

HOURLY = ForecastSpec(
    channels=("air_temp_c", "rh_pct", "out_radiation_w_m2"),
    targets=("air_temp_c", "rh_pct", "vpd_kpa", "out_radiation_w_m2"),
    horizons_min=(60, 180, 1440), step_ms=3_600_000, lookback_steps=24,
)  # fmt: skip
NOTHING = np.full((1, 1 + len(HOURLY.horizons_min)), np.nan, np.float32)
VALUE = st.one_of(
    st.tuples(st.floats(-20, 60), st.floats(0, 100), st.floats(0, 1500)), st.just((np.nan,) * 3),
    st.tuples(st.floats(-6e4, 6e4), st.sampled_from((0.0, 100.0)), st.just(0.0)),
)  # fmt: skip


def along(values, spec=HOURLY):
    """Forecasts of one zone at each of ``values [T, C]``, ``[T, H, M, Q]``."""
    made = OnlineForecaster(spec, 1)
    made.add_zones()
    zone, out = np.array([0]), []
    for step, row in enumerate(np.asarray(values, np.float32)):
        out.append(made.predict(made.learn(zone, step, row[None], np.array([step % 24]), NOTHING))[0])
    return np.stack(out)


def opened(quantiles):
    """Whether p10 <= p50 <= p90 and p10 < p90 wherever something is forecast."""
    p10, p50, p90 = np.moveaxis(quantiles[np.isfinite(quantiles).any(axis=-1)], -1, 0)
    return bool(((p10 <= p50) & (p50 <= p90) & (p10 < p90)).all())


@settings(deadline=None, max_examples=25)
@given(st.lists(VALUE, min_size=1, max_size=60))
def test_every_interval_has_a_width_whatever_comes(values):
    """From the first forecast on p10 < p90, also at the ends of what is possible, after gaps and beyond any sensor."""
    assert opened(along(values))


@pytest.mark.parametrize("value", [(21.4, 80.0, 0.0), (0.0, 0.0, 0.0), (60.0, 100.0, 6e4), (-20.0, 100.0, 3e-5)])
@pytest.mark.thorough
def test_a_constant_sensor_keeps_a_width(value):
    """A sensor that says the same for twelve days, young and old, has no interval without a width."""
    assert opened(along([value] * (12 * 24)))


def test_the_first_forecast_is_what_is_now_within_the_prior():
    """One row is persistence, with the widths of simulated zones: wider the longer ahead, up to half a day."""
    (first,) = along([(20.0, 70.0, 300.0)])
    np.testing.assert_allclose(first[:, 0, 1], 20.0, atol=0.01)
    width = first[:, 0, 2] - first[:, 0, 0]
    assert 0.5 < width[0] < width[1] < 15


@pytest.mark.parametrize("begins", [0, 6, 12, 18])
def test_no_interval_reaches_further_than_what_was_seen_lies_apart(begins):
    """A calm night behind a hot day is no reason to expect 60 °C: errors of the evening are many times the prior's, and
    so would be those of the day to come. What the prior says of a zone of which nothing is known is always possible.
    """
    spec = ForecastSpec(("air_temp_c",), ("air_temp_c",), (60, 360, 720), step_ms=300_000, lookback_steps=288)
    made = OnlineForecaster(spec, 1)
    zone, nothing = np.array([made.add_zones()]), np.full((1, 4), np.nan, np.float32)
    steps = np.arange(begins * 12, begins * 12 + 2 * 288)
    course = 22 + 8 * np.sin((steps / 288 - 0.375) * 2 * np.pi) + np.random.default_rng(7).normal(0, 0.1, len(steps))
    seen = np.maximum.accumulate(course) - np.minimum.accumulate(course)
    untold = UNTOLD * made.first.prior.issued[..., 0].max(axis=0)
    for t, step in enumerate(steps.tolist()):
        learned = made.learn(zone, step, course[[t], None].astype(np.float32), np.array([step % 288]), nothing)
        p10, p50, p90 = np.moveaxis(made.predict(learned)[0, :, 0], -1, 0)
        most = np.maximum(seen[t], untold) * 1.001
        assert (p50 - p10 <= most).all(), t
        assert (p90 - p50 <= most).all(), t


@pytest.mark.thorough
def test_answers_are_judged_by_what_they_said():
    """Two days ahead on a slope the day before is off by what rises in two days, as what is now is: no later day, which
    nobody knew, speaks for it.
    """
    spec = ForecastSpec(("air_temp_c",), ("air_temp_c",), (60, 2880), step_ms=3_600_000, lookback_steps=24)
    made = OnlineForecaster(spec, 1)
    zone, nothing = np.array([made.add_zones()]), np.full((1, 3), np.nan, np.float32)
    for step in range(5 * 24):
        made.learn(zone, step, np.full((1, 1), 0.1 * step, np.float32), np.array([step % 24]), nothing)
    now, days_before = made.first.state_dict()["off"][0, 1, 0, :2]
    assert days_before > 0.9 * now > 0


@pytest.mark.parametrize("first", [0, 1, 2])
def test_answers_are_mixed_at_examples_whenever_a_zone_was_born(first):
    """There the learners say something; what is mixed between them would never hear it."""
    spec = ForecastSpec(("air_temp_c",), ("air_temp_c",), (15, 60), step_ms=300_000, lookback_steps=288)
    made = OnlineForecaster(spec, 1)
    zone, nothing = np.array([made.add_zones()]), np.full((1, 3), np.nan, np.float32)
    for step in range(first, 12):
        made.learn(zone, step, np.full((1, 1), 20, np.float32), np.array([step]), nothing)
    assert made.waiting.is_origin(9)
    assert made.first.state_dict()["mixed"].tolist() == [9]


@pytest.mark.parametrize(("step_min", "stride", "around"), [(1, 15, 4), (5, 3, 4), (15, 1, 4), (60, 1, 1)])
def test_a_value_of_a_day_ago_is_a_mean_over_an_hour_on_either_side(step_min, stride, around):
    """However many examples that are: one peak is in as many means."""
    spec = ForecastSpec(("air_temp_c",), ("air_temp_c",), (60, 1440), step_ms=step_min * 60_000, lookback_steps=24)
    first = FirstDays(spec, stride, 1)
    first.add_zones()
    for example in range(21):
        first.see(np.array([0]), example * stride, np.full((1, 1), 9 * (example == 8), np.float32))
    usual = first.state_dict()["usual"][0, :21, 0]
    assert np.flatnonzero(usual > 0).tolist() == list(range(8 - around, 9 + around))


@pytest.mark.thorough
def test_the_forecaster_is_the_old_one_after_ten_days(monkeypatch):
    """Whatever the prior says, forecasts after ten days are the same, bit for bit; before, they are not."""
    values, given_ = rows(12, zones=2), []
    for factor in (1, 3):
        made = forecaster(2)
        made.first.prior.answers *= np.float32([factor, 1, 1 / factor, 1, factor])
        made.first.prior.issued *= factor
        given_.append(run(made, values))
    one, other = given_
    assert (one[:, 10 * DAY :] == other[:, 10 * DAY :]).all()
    assert not (one[:, : 3 * DAY] == other[:, : 3 * DAY]).all()


@pytest.mark.thorough
def test_a_zone_born_late_has_first_days_of_its_own():
    """Beside a zone of eleven days a new one starts from the prior; the old one's forecasts do not notice."""
    values = rows(12, zones=2)
    alone, both = forecaster(1), forecaster(1)
    run(both, values[:1], stop=11 * DAY)
    alone.load_state_dict(both.state_dict())
    both.add_zones()
    assert both.first.share(np.array([0, 1])).tolist() == [[0.0] * 3, [1.0] * 3]
    late = run(both, values, start=11 * DAY)
    assert opened(late)
    np.testing.assert_array_equal(late[1, 0, :, 0, 1] > 0, True)
    np.testing.assert_array_equal(late[0, 0], run(alone, values[:1], start=11 * DAY, stop=11 * DAY + 1)[0, 0])


@pytest.mark.thorough
def test_a_sensor_that_was_never_there_keeps_no_zone_young():
    """After its first days such a zone is left alone and teaches the pool nothing; with its first value it has first
    days again, of what it measures alone.
    """
    values = rows(13, zones=2, missing=0)
    values[1, : 12 * DAY, SPEC.channels.index("rh_pct")] = np.nan  # of which vapour pressure is made, too
    made, zones = forecaster(2), np.array([0, 1])
    run(made, values, stop=10 * DAY)
    assert made.first.young(zones).tolist() == [False, False]
    before = made.first.state_dict()
    run(made, values, start=10 * DAY, stop=12 * DAY)
    after = made.first.state_dict()
    assert all(np.array_equal(after[name], before[name]) for name in ("off", "missed", "pool_off", "pool_missed"))
    late = run(made, values, start=12 * DAY)
    assert made.first.young(zones).tolist() == [False, True]
    assert np.isfinite(late[1, 3:]).all()
    assert opened(late)
    own = made.first.state_dict()["off"][1].sum(axis=(0, 2)) - after["off"][1].sum(axis=(0, 2))
    assert (own > 0).tolist() == [name != "air_temp_c" for name in SPEC.targets]


def test_widths_follow_the_zone():
    """Of two zones in their third day the one with four times the changes has the wider intervals."""
    values = rows(4, zones=1, missing=0)
    calm = values.mean(axis=1, keepdims=True) + (values - values.mean(axis=1, keepdims=True)) / 4
    out = run(forecaster(2), np.concatenate([values, calm]))
    width = (out[..., 2] - out[..., 0])[:, 2 * DAY : 3 * DAY, :, 0].mean(axis=1)
    assert (width[0] > 1.5 * width[1]).all()


@pytest.mark.thorough
def test_the_state_goes_on_as_if_nothing_had_happened():
    """A forecaster that is kept in the middle of the second day and loaded gives the same forecasts and state."""
    values = rows(3, zones=2)
    whole, half = forecaster(2), forecaster(2)
    expected = run(whole, values)
    run(half, values, stop=DAY + 7)
    loaded = forecaster(2)
    loaded.load_state_dict(half.state_dict())
    np.testing.assert_array_equal(run(loaded, values, start=DAY + 7), expected[:, DAY + 7 :])
    assert same(loaded.state_dict(), whole.state_dict())


@pytest.mark.thorough
def test_zones_take_turns():
    """With more young zones than learn at a time every zone still has weights and widths of its own errors."""
    values = np.repeat(rows(2, zones=1, missing=0), 300, axis=0)
    made = forecaster(300)
    quantiles = run(made, values[:, : DAY + 40])
    assert opened(quantiles)
    assert (made.first.state_dict()["counted"][:, 0] > 0).all()


def test_first_days_are_better_than_either_yardstick():
    """On a world with weather the second and third day have less error than the better of persistence and naive."""
    values = np.concatenate([rows(4, zones=2, seed=seed, missing=0) for seed in range(3)])
    out, t = run(forecaster(6), values), np.arange(DAY, 3 * DAY - 1)
    of_base = []
    for h, steps in enumerate(SPEC.horizon_steps):
        truth = values[:, t + steps, 0]
        error = np.abs(out[:, t, h, 0, 1] - truth).mean()
        rivals = (np.abs(values[:, s, 0] - truth).mean() for s in (t, t + steps - DAY))
        of_base.append(error / min(rivals))
    assert np.mean(of_base) < 0.97, of_base


def test_the_table_knows_every_metric_of_the_live_system():
    """Each answer of each live target has positive sizes that grow from five minutes to three hours."""
    sizes = read_table()
    for metric, answer in itertools.product(ForecastSpec(channels=()).targets, (*ANSWERS, "first days")):
        horizons, errors = sizes[metric, answer]
        assert (errors > 0).all()
        assert len(horizons) == 10
    persistence = Prior(ForecastSpec(channels=())).answers[..., 0].mean(axis=0)
    assert (np.diff(persistence[:7], axis=0) > 0).all()


def test_a_metric_of_another_unit_is_measured_by_its_level():
    """A target that the table does not know has intervals in proportion to itself."""
    small = along([(20.0, 70.0, 150.0)] * 3)[-1, :, 3]
    large = along([(20.0, 70.0, 1500.0)] * 3)[-1, :, 3]
    np.testing.assert_allclose(large[:, 2] - large[:, 0], 10 * (small[:, 2] - small[:, 0]), rtol=1e-3)


@pytest.mark.parametrize("metric", ["par_umol_m2_s", "out_radiation_w_m2"])
def test_light_that_begins_in_the_dark_has_honest_widths(metric):
    """In a first night, when no light was ever seen, that of noon may still come; when it has come, widths are of the
    size of light, not of thousands of suns: errors of the night were no proof of anything.
    """
    spec = ForecastSpec(channels=(metric,), targets=(metric,), horizons_min=(60, 720))
    made, day = OnlineForecaster(spec, 1), spec.steps_per_day
    made.add_zones()
    clouds, found = np.random.default_rng(1).uniform(0.3, 1, 400), []
    for k in range(400):  # from eight in the evening on
        step = 20 * 12 + k
        height = np.sin((step / day - 0.25) * 2 * np.pi)
        light = np.float32([[500 * max(height, 0) * clouds[k]]])
        nothing = np.full((1, 3), np.nan, np.float32)
        found.append(made.predict(made.learn(np.array([0]), step, light, np.array([step % day]), nothing))[0, :, 0])
    width = np.diff(np.stack(found)[..., [0, 2]], axis=-1)[..., 0]  # [T, H]
    assert width[:96, 1].min() > 20
    assert width.max() < 3000


def test_state_that_does_not_fit_is_refused():
    """A state of another schema is an error, not a wrong forecast."""
    with pytest.raises(ValueError, match="wanted"):
        forecaster(1).first.load_state_dict(OnlineForecaster(HOURLY, 1).first.state_dict())


def test_sun_is_not_needed():
    """The helper's sun changes nothing of a first forecast: the plain answers know the clock only."""
    made, values = forecaster(1), rows(1, zones=1, missing=0)
    zone, bins = np.array([0]), np.array([0])
    dark = np.full_like(sun(0, 1), np.nan)
    one = made.predict(made.learn(zone, 0, values[:, 0], bins, dark))
    other = forecaster(1)
    np.testing.assert_array_equal(one, other.predict(other.learn(zone, 0, values[:, 0], bins, sun(0, 1))))


@pytest.mark.parametrize(("horizon_min", "soon"), [(60, True), (1440, False)])
def test_an_answer_that_fails_today_soon_counts_less_at_short_horizons(horizon_min, soon):
    """Six hours in which yesterday is four times as wrong as the prior take most of its weight an hour ahead, after a
    day in which it was right; a day ahead, where errors come back late, they take less.
    """
    weights = AnswerWeights(HOURLY, len(ANSWERS), examples_a_day=24, capacity=1)
    weights.zones.add(1)
    prior, zone, h = Prior(HOURLY), np.array([0]), np.array([HOURLY.horizons_min.index(horizon_min)])
    size, unit = prior.mean[h][None], np.ones((1, len(HOURLY.targets)), np.float32)
    at_hours, seen = prior.mean[None], np.ones((1, 1, len(HOURLY.targets)), bool)

    def share(hours, factor):
        off = size.copy()
        off[..., 1] *= factor
        for _ in range(hours):
            weights.learn(zone, h, off, size, 1.0)
        weights.weigh(zone, prior.mean, at_hours, unit, seen)
        weight = weights.zones["weight"][0, h[0], 0]
        return weight[1] / weight.sum()

    right = share(24, 1.0)
    assert (share(6, 4.0) < right / 4) == soon
