"""The climatology's contract: purity, batch equals stream, bounded memory, missing values."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.features.inputs import targets_of
from models.online.climatology.climatology import Climatology
from models.online.climatology.deviation_regression import DeviationRegression
from models.spec import ForecastSpec
from tests.models.worlds import SPEC, rows

DAY = SPEC.steps_per_day


def series(days=3, zones=2):
    """Targets and day bins of a made-up world."""
    y = targets_of(rows(days, zones), SPEC)
    return y, np.broadcast_to(np.arange(y.shape[1]) % DAY, y.shape[:2])


def streamed(y, bins):
    """Forecasts of one climatology that gets row after row."""
    climatology = Climatology(SPEC, capacity=1)
    zones = np.array([climatology.add_zones() for _ in range(len(y))])
    out = []
    for t in range(y.shape[1]):
        climatology.learn(zones, y[:, t], bins[:, t])
        out.append(climatology.predict(zones, y[:, t], bins[:, t]))
    return climatology, np.stack(out, axis=1)


def test_batch_equals_stream():
    """run_over gives bit for bit what learn and predict give."""
    y, bins = series()
    assert np.array_equal(Climatology.run_over(y, bins, SPEC), streamed(y, bins)[1], equal_nan=True)


def test_a_zone_does_not_depend_on_those_beside_it():
    """A zone alone gets the forecasts it gets in company."""
    y, bins = series()
    together = Climatology.run_over(y, bins, SPEC)
    assert np.array_equal(Climatology.run_over(y[1], bins[1], SPEC), together[1], equal_nan=True)


def test_forecasts_use_no_later_row():
    """Changing the future changes no forecast of the past."""
    y, bins = series()
    changed = y.copy()
    changed[:, 150:] += 7
    before, after = Climatology.run_over(y, bins, SPEC), Climatology.run_over(changed, bins, SPEC)
    assert np.array_equal(before[:, :150], after[:, :150], equal_nan=True)
    assert not np.array_equal(before[:, 150:], after[:, 150:], equal_nan=True)


def test_predict_changes_nothing():
    """Asking, also "what if", leaves the state as it was."""
    y, bins = series()
    climatology, _ = streamed(y, bins)
    before = climatology.state_dict()
    climatology.predict(np.array([0, 1]), y[:, -1] + 5, bins[:, -1])
    assert all(np.array_equal(before[name], held, equal_nan=True) for name, held in climatology.state_dict().items())


def test_state_goes_round_bit_for_bit_and_goes_on():
    """A loaded climatology is the one that was saved, also in what it learns next."""
    y, bins = series()
    first, _ = streamed(y[:, :200], bins[:, :200])
    second = Climatology(SPEC, capacity=7)
    second.load_state_dict(first.state_dict())
    zones = np.array([0, 1])
    for t in range(200, y.shape[1]):
        first.learn(zones, y[:, t], bins[:, t])
        second.learn(zones, y[:, t], bins[:, t])
    one, other = first.state_dict(), second.state_dict()
    assert all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)
    assert len(second) == 2
    assert second.add_zones() == 2


def test_a_state_of_another_shape_is_refused():
    """A state that does not fit is named."""
    state = Climatology(SPEC).state_dict()
    with pytest.raises(ValueError, match="wanted"):
        Climatology(SPEC).load_state_dict({**state, "last": np.zeros((0, 99), dtype=np.float32)})
    with pytest.raises(ValueError, match="lacks"):
        Climatology(SPEC).load_state_dict({"rows": state["rows"]})
    other = Climatology(SPEC)
    other.add_zones(2)
    with pytest.raises(ValueError, match=r"\[0, 2\] zones"):
        Climatology(SPEC).load_state_dict(
            {**state, "past": other.state_dict()["past"], "deviation": other.state_dict()["deviation"]}
        )


def test_memory_does_not_grow_with_time():
    """The state of a zone is as large after three days as at the start, and within its budget."""
    y, bins = series()
    climatology, _ = streamed(y, bins)
    fresh = Climatology(SPEC)
    fresh.add_zones()
    size = sum(held.nbytes for held in climatology.state_dict().values()) / 2
    assert size == sum(held.nbytes for held in fresh.state_dict().values())


@pytest.mark.parametrize("step_min", [1, 5])
def test_a_zone_costs_at_most_28_kilobytes_whatever_its_step(step_min):
    """The default schema's state fits a shard's budget."""
    climatology = Climatology(ForecastSpec(channels=("air_temp_c", "rh_pct", "co2_ppm"), step_ms=60_000 * step_min))
    climatology.add_zones()
    assert sum(held.nbytes for held in climatology.state_dict().values()) <= 28_000


def test_nothing_seen_gives_nan_and_one_value_gives_a_forecast():
    """Before the first value all is NaN; after it, every horizon of that target is finite."""
    climatology = Climatology(SPEC)
    zone, bin_ = np.array([climatology.add_zones()]), np.array([5])
    nothing = np.full((1, 3), np.nan, dtype=np.float32)
    climatology.learn(zone, nothing, bin_)
    assert np.isnan(climatology.predict(zone, nothing, bin_)).all()
    climatology.learn(zone, np.array([[20, np.nan, np.nan]], dtype=np.float32), bin_ + 1)
    forecast = climatology.predict(zone, nothing, bin_ + 1)
    assert np.isfinite(forecast[..., 0, :]).all()
    assert np.isnan(forecast[..., 1:, :]).all()


def test_a_missing_value_is_forecast_from_the_one_before_and_teaches_nothing():
    """Where a row has no value the forecast is that from the held one; what comes later is as without it."""
    y, bins = series()
    y, zones = np.nan_to_num(y, nan=20), np.array([0, 1])
    one, other = (streamed(y[:, :-1], bins[:, :-1])[0] for _ in range(2))
    nothing = np.full_like(y[:, -1], np.nan)
    members = one.learn(zones, nothing, bins[:, -1], y[:, -2])
    plain = other.learn(zones, nothing, bins[:, -1])
    assert np.array_equal(members.median, one.predict(zones, y[:, -2], bins[:, -1])[..., 1])
    assert np.abs(members.median - plain.median).max() > 0.1
    known = one.learn(zones, y[:, -1], bins[:, -1], y[:, -2])
    assert np.array_equal(known.median, other.learn(zones, y[:, -1], bins[:, -1]).median)


def test_a_silent_zone_poisons_nothing():
    """After two days without a value the forecast is still finite, and learning goes on."""
    y, bins = series(5)
    y[0, DAY : 3 * DAY] = np.nan
    forecast = Climatology.run_over(y, bins, SPEC)
    assert np.isfinite(forecast[0, 20:]).all()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6, width=32), st.just(float("inf"))), min_size=1, max_size=120))
def test_quantiles_never_cross_whatever_comes(values):
    """For any series, also broken ones, p10 <= p50 <= p90 within what is physically possible."""
    column = np.array([np.nan if v is None else v for v in values], dtype=np.float32)
    y = np.repeat(column[:, None], 3, axis=1)
    out = Climatology.run_over(y, np.arange(len(y)) % DAY, SPEC)
    seen = np.isfinite(y[:, 0]).cumsum() > 0
    assert np.isfinite(out[seen]).all()
    assert (np.diff(out[seen], axis=-1) >= 0).all()
    assert (out[seen][:, :, 1] >= 0).all()
    assert (out[seen][:, :, 1] <= 100).all()


def test_it_learns_the_day_and_beats_both_yardsticks():
    """On a daily course with weather it is better than persistence and the naive, 1 and 6 hours ahead."""
    y, bins = series(14, 1)
    forecast = Climatology.run_over(y, bins, SPEC)[0]
    t = np.arange(7 * DAY, 13 * DAY)
    inside = []
    for h, steps in enumerate(SPEC.horizon_steps):
        truth = y[0, t + steps, 0]
        known = np.isfinite(truth)
        inside.append(((truth >= forecast[t, h, 0, 0]) & (truth <= forecast[t, h, 0, 2]))[known].mean())
        if SPEC.horizons_min[h] in (60, 360):
            model = np.nanmean(np.abs(forecast[t, h, 0, 1] - truth))
            assert model < np.nanmean(np.abs(y[0, t, 0] - truth))
            assert model < np.nanmean(np.abs(y[0, t + steps - DAY, 0] - truth))
    assert 0.7 < np.mean(inside) < 0.9


@pytest.mark.parametrize("missing", [0, DAY // 2], ids=["whole", "with half a day of silence"])
@pytest.mark.thorough
def test_a_young_zone_follows_the_naive_and_an_old_one_does_not(missing):
    """Where the level moves on its second day, forecasts a day ahead are the naive's; after weeks they are not."""
    rng = np.random.default_rng(3)
    hour = np.arange(24 * DAY) % DAY
    level = 20 + 5 * np.sin(hour * 2 * np.pi / DAY) + rng.normal(0, 1, len(hour))
    level[DAY : 4 * DAY] += 12
    y = np.repeat(level[None, :, None], len(SPEC.targets), axis=2).astype(np.float32)
    y[:, 5 * DAY : 5 * DAY + missing] = np.nan
    bins = hour[None]
    median = Climatology.run_over(y, bins, SPEC)[0, :, -1, 0, 1]
    assert SPEC.horizon_steps[-1] == DAY
    young, old = slice(2 * DAY, 3 * DAY), slice(22 * DAY, 23 * DAY)
    assert np.abs(median[young] - y[0, young, 0]).mean() < 0.5
    truth = y[0, 23 * DAY :, 0]
    assert np.abs(median[old] - truth).mean() < 0.9 * np.abs(y[0, old, 0] - truth).mean()


@pytest.mark.thorough
def test_the_shifted_profile_and_yesterday_follow_a_new_regime_within_a_day():
    """A day after days became 20 lower and nights stayed, their mean is nearer than either and every climatology."""
    rng = np.random.default_rng(5)
    hour = np.arange(24 * DAY) % DAY
    weather = np.zeros(len(hour))
    for t in range(1, len(hour)):
        weather[t] = 0.96 * weather[t - 1] + rng.normal(0, 0.8)
    level = 80 + weather - 20 * np.maximum(-np.cos(hour * 2 * np.pi / DAY), 0) * (np.arange(len(hour)) >= 20 * DAY)
    y = np.repeat(level[None, :, None], len(SPEC.targets), axis=2).astype(np.float32)
    climatology = Climatology(SPEC, capacity=1)
    zone, errors = np.array([climatology.add_zones()]), []
    for t in range(22 * DAY - DAY // 4):
        members = climatology.learn(zone, y[:, t], hour[[t]])
        fast = [members.yesterday[0, 2, 0], members.shifted[0, 2, 0]]
        if t >= 21 * DAY:
            answers = np.array([*members.rates[0, :, 2, 0], *fast, np.mean(fast)])
            errors.append(np.abs(answers - y[0, t + SPEC.horizon_steps[2], 0]))
    *others, both = np.mean(errors, axis=0)
    assert both < 0.95 * min(others)


@pytest.mark.thorough
def test_a_profile_is_as_steady_after_a_year_as_before():
    """A wild day moves a profile by its share, also when the count of days is at its limit."""
    spec = replace(SPEC, targets=SPEC.targets[:1], step_ms=86_400_000 // 4, horizons_min=(360,))
    climatology = Climatology(spec, capacity=1)
    zone = np.array([climatology.add_zones()])
    for row in range(4 * 400):
        y = np.full((1, 1), 20.0 + row % 4, np.float32)
        members = climatology.learn(zone, y, np.array([row % 4]))
        if row % 4 == 0 and row > 120:
            state = climatology.state_dict()
            for hour, value in ((1, 21.0), (2, 22.0), (3, 23.0), (0, 70.0), (1, 21.0), (2, 22.0), (3, 23.0)):
                members = climatology.learn(zone, np.full((1, 1), value, np.float32), np.array([hour]))
            assert 20 < members.profiles[0, -1, 0, 0] < 30, row // 4
            climatology.load_state_dict(state)


@pytest.mark.parametrize(
    ("step_min", "horizons_min"),
    [(5, (5, 10, 20, 65, 360, 1435, 1440)), (1, (1, 7, 20, 30, 1437)), (10, (10, 30, 60, 1430)), (15, (15, 45, 1440))],
)
def test_an_example_is_regressed_on_what_was_known_at_its_origin(step_min, horizons_min, monkeypatch):
    """On the deviation of that very row, and of rows before it: never on one that came later, or was overwritten."""
    spec = ForecastSpec(
        channels=("air_temp_c",), targets=("air_temp_c",), horizons_min=horizons_min, step_ms=60_000 * step_min
    )
    day, stride = spec.steps_per_day, max(15 // step_min, 1)
    lag, steps = 180 // step_min, np.array(spec.horizon_steps)
    climatology, zone, deviations, seen = Climatology(spec), np.array([0]), [], 0
    climatology.add_zones()
    plain, learned = DeviationRegression._regressors, DeviationRegression.learn

    def of_examples(row, origin):
        """From the deviations of every row: that of ``row``, on a line between examples up to ``origin``."""
        low = row // stride * stride
        if low < 0:
            return np.nan
        before, after = deviations[low], deviations[low + stride] if low + stride <= origin else np.nan
        if row % stride == 0 or np.isnan(after):
            return before
        return after if np.isnan(before) else before + (row - low) / stride * (after - before)

    def looked(self, indices, h, origins, now=None):
        nonlocal seen
        found = plain(self, indices, h, origins, now)
        if now is None:
            for p, horizon in enumerate(h):
                origin = int(origins[0, p])
                if origin < 0 or origin % stride:
                    continue
                x0, x1 = deviations[origin], of_examples(origin - lag, origin)
                whole = origin + int(steps[horizon]) - day * -(-int(steps[horizon]) // day)
                x2 = 0.0 if whole == origin else of_examples(whole, origin)
                wanted = [x0, x0 if np.isnan(x1) else x1, 0.0 if np.isnan(x2) else x2]
                np.testing.assert_allclose(found[0, -1, p, 0], wanted, rtol=2e-3, atol=2e-3)
                seen += np.isfinite(x0)
        return found

    def only_examples(self, indices, h, origins, due, y, deviation):
        assert due.tolist() == ((origins >= 0) & (origins % stride == 0)).tolist()
        learned(self, indices, h, origins, due, y, deviation)

    monkeypatch.setattr(DeviationRegression, "learn", only_examples)
    monkeypatch.setattr(DeviationRegression, "_regressors", looked)
    rng, air = np.random.default_rng(0), 0.0
    for t in range(round(2.2 * day)):
        air = 0.97 * air + rng.normal()
        y, day_bin = np.array([[20 + air]], np.float32), np.array([t % day])
        usual = climatology._profiles.at(zone, day_bin)[0, -1, 0]
        deviations.append(float(y[0, 0] - usual))
        climatology.learn(zone, y, day_bin)
    assert seen > 50


@pytest.mark.parametrize("gap", [1, 2, 4, 5])
@pytest.mark.parametrize("late", range(3))
def test_after_a_gap_examples_are_those_of_whole_quarters_again(gap, late):
    """And what the gap has left out is not known, wherever in a quarter it began."""
    spec = ForecastSpec(channels=("air_temp_c",), targets=("air_temp_c",), horizons_min=(5, 15, 60))
    day, zone, climatology = spec.steps_per_day, np.array([0]), Climatology(spec)
    climatology.add_zones()
    begun = 2 * day + 60 + late
    for t in (*range(begun), *range(begun + gap, begun + gap + 4)):
        climatology.learn(zone, np.array([[20 + t % 7]], np.float32), np.array([t % day]))
        state = climatology.state_dict()
        row = int(state["rows"][0]) - 1
        assert row % 3 == t % 3
        if t == begun + gap and gap % 3:
            left_out = [r for r in range(begun, row) if r % 3 == 0]
            for example in (r // 3 for r in left_out):
                assert np.isnan(state["past"][0, example % state["past"].shape[1]]).all()
                assert np.isnan(state["deviation"][0, example % state["deviation"].shape[1]]).all()
                assert np.isnan(state["issued"][0, 2 + example % 4]).all()  # of an hour, which has four slots


def test_one_value_that_is_none_is_forgotten():
    """A day after a value beyond half precision every slope is a number."""
    y, bins = series(days=4, zones=1)
    y = y.copy()
    y[0, DAY + 5, 0] = 1e5
    climatology, _ = streamed(y, bins)
    assert all(np.isfinite(climatology.state_dict()[name]).all() for name in ("slope", "moment", "product"))
