"""The forecaster for DataFrames: the backtest's forecasts, whatever calls the rows come in."""

import numpy as np
import pandas as pd
import pytest

from edge.wire.vocabulary import VOCABULARY, Metric
from models.frames import FrameForecaster
from models.trees import tree_grower
from services.backtest.frames import backtest
from tests.models.frames.recording import PLACE, forecaster, recorded

TARGETS = ["air_temp_c", "rh_pct", "co2_ppm"]
HORIZONS = ["30min", "1h", "3h", "6h", "12h", "24h"]  # those of the backtest


@pytest.fixture(autouse=True)
def small_trees(monkeypatch):
    """Few trees are quicker, and as good for these claims."""
    monkeypatch.setitem(tree_grower.OPTIONS, "num_iterations", 3)


def cut(frames, after=None, until=None):
    """The rows later than one time, up to another."""
    return {
        zone: frame[(frame.index > (after or frame.index[0] - pd.Timedelta("1s"))) & (frame.index <= until)]
        for zone, frame in frames.items()
    }


@pytest.fixture(scope="module")
def week():
    """Seven days of three zones, in steps of fifteen minutes."""
    return recorded(7, every=3)


@pytest.mark.thorough
def test_forecasts_are_those_of_the_backtest(week):
    """Fitted to a first origin and updated to each later one, also after trees were grown, it says what the backtest of
    the same frames says: every quantile, bit for bit.
    """
    found = backtest(week, warmup="4d", every="6h", **PLACE).predictions
    made, before = forecaster(targets=TARGETS, horizons=HORIZONS), None
    origins = sorted(found.origin.unique())
    assert len(origins) == 12
    for origin in origins:
        rows = cut(week, before, origin)
        made, before = made.fit(rows) if before is None else made.update(rows), origin
        wanted = found[found.origin == origin].set_index(["zone", "metric", "target_time"])[["q10", "q50", "q90"]]
        given = made.predict()
        given.index = given.index.set_levels(given.index.levels[2].tz_localize(None), level="time")
        assert len(given) == len(wanted) == 3 * 3 * 6
        assert set(given.dtypes) == {np.dtype(np.float64)}
        np.testing.assert_array_equal(given.loc[wanted.index].to_numpy(), wanted.to_numpy().astype(np.float64))
    assert made._fitted._forecaster.forest.state_dict()  # there were trees among it


@pytest.mark.thorough
def test_a_pause_of_weeks_is_that_of_a_running_system(week):
    """Its rows are not learned from but for those of three days: forecasts are those of the backtest, in however many
    calls rows come, and rows that say nothing are no rows.
    """

    def moved(frame, days):
        late = frame.index >= frame.index[4 * 96 + 1]
        return frame.set_axis(frame.index + pd.to_timedelta(np.where(late, days, 0), unit="D"))

    paused = {zone: moved(frame, 12) for zone, frame in week.items()}
    end, pause = paused["CVA"].index[-1], paused["CVA"].index[4 * 96]
    found = backtest(paused, warmup=f"{19 * 1440 - 15}min", **PLACE).predictions
    wanted = found.set_index(["zone", "metric", "target_time"])[["q10", "q50", "q90"]]
    often = forecaster(targets=TARGETS, horizons=HORIZONS).fit(cut(paused, until=pause))
    silent = {zone: frame.reindex(pd.date_range(pause, periods=9, freq="D")[1:]) for zone, frame in paused.items()}
    before = often.update({zone: frame[:3] for zone, frame in silent.items()}).predict()
    assert not len(before)  # all silent for more than a day
    often.update({zone: frame[3:] for zone, frame in silent.items()})
    told = []
    for made in (
        often.update(cut(paused, pause, end)),
        forecaster(targets=TARGETS, horizons=HORIZONS).fit(paused, lambda *done: told.append(done)),
    ):
        given = made.predict()
        given.index = given.index.set_levels(given.index.levels[2].tz_localize(None), level="time")
        np.testing.assert_array_equal(given.loc[wanted.index].to_numpy(), wanted.to_numpy().astype(np.float64))
    assert told[-1] == (19 * 96, 19 * 96)


@pytest.mark.thorough
def test_it_does_not_matter_in_how_many_calls_rows_come(week):
    """Rows in one call, or in many of odd lengths with predictions between, give equal forecasts; so do aware times,
    one frame with a column `zone`, and frames of which one has the weather.
    """
    frames = cut(week, until=week["CVA"].index[300])
    whole = forecaster().fit(frames).predict()
    assert len(whole) == 3 * 4 * 8
    times, made, before = week["CVA"].index, forecaster(), None
    for row in (7, 8, 120, 299, 300):
        rows = cut(frames, before, times[row])
        made, before = made.fit(rows) if before is None else made.update(rows), times[row]
        made.predict()
    pd.testing.assert_frame_equal(made.predict(), whole, check_exact=True)
    aware = {zone: frame.tz_localize(PLACE["timezone"]).tz_convert("UTC") for zone, frame in frames.items()}
    pd.testing.assert_frame_equal(forecaster().fit(aware).predict(), whole, check_exact=True)
    one = pd.concat([frame.assign(zone=zone) for zone, frame in frames.items()])
    pd.testing.assert_frame_equal(forecaster().fit(one).predict(), whole, check_exact=True)
    weather = [name for name in frames["CVA"] if name.startswith(("out_", "wind_", "rain"))]
    assert len(weather) == 8
    once = {zone: frame if zone == "CVA" else frame.drop(columns=weather) for zone, frame in frames.items()}
    pd.testing.assert_frame_equal(forecaster().fit(once).predict(), whole, check_exact=True)


def test_a_step_waits_for_the_rest_of_its_rows():
    """Rows of a minute are cut within a step: forecasts come from whole steps only, and are those of one call."""
    hour = recorded(0.2)["CVA"]
    minutes = hour.resample("1min").interpolate()
    cut_at = hour.index[30] + pd.Timedelta("3min")
    made = forecaster(step="5min").fit(minutes[:cut_at])
    assert made.predict().index.unique("time")[0].tz_localize(None) == hour.index[30] + pd.Timedelta("5min")
    made.update(minutes[cut_at + pd.Timedelta("1s") :])
    pd.testing.assert_frame_equal(made.predict(), forecaster(step="5min").fit(minutes).predict(), check_exact=True)


@pytest.mark.thorough
def test_a_saved_one_goes_on_as_if_it_had_not_been_saved(week, tmp_path, monkeypatch):
    """From a file that was written in the middle, and in the middle of a step, later forecasts are equal bit for bit,
    trees that are grown later included; nothing in the file is a pickle.
    """
    monkeypatch.setattr(tree_grower, "MIN_EXAMPLES", 100)
    until, later = week["CVA"].index[460], week["CVA"].index[500]
    made = forecaster(targets=TARGETS, horizons=HORIZONS, step="30min").fit(cut(week, until=until))
    now = made.predict()
    made.save(tmp_path / "house.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["house.safetensors"]
    loaded = FrameForecaster.load(tmp_path / "house.safetensors", VOCABULARY)
    pd.testing.assert_frame_equal(loaded.predict(), now, check_exact=True)
    assert (loaded.zones, loaded.spec) == (made.zones, made.spec)
    assert not made._fitted._forecaster.forest.state_dict()
    made.update(cut(week, until, later))
    loaded.update(cut(week, until, later))
    assert made._fitted._forecaster.forest.state_dict()
    pd.testing.assert_frame_equal(loaded.predict(), made.predict(), check_exact=True)
    made.save(str(tmp_path / "house.safetensors"))
    again = FrameForecaster.load(tmp_path / "house.safetensors", VOCABULARY)
    pd.testing.assert_frame_equal(again.predict(), made.predict(), check_exact=True)


def test_a_zone_may_come_later_and_fall_silent(week):
    """A new zone is forecast from its first row; one without rows goes on as missing, and leaves after a day."""
    day = week["CVA"].index[96]
    made = forecaster().fit({"CVA": cut(week, until=day)["CVA"]})
    assert made.zones == ("CVA",)
    rows = cut(week, day, day + pd.Timedelta("1h"))
    made.update({zone: rows[zone] for zone in ("CVA", "Koala")})
    assert made.zones == ("CVA", "Koala")
    forecast = made.predict()
    assert list(forecast.index.unique("zone")) == ["CVA", "Koala"]
    assert (forecast.p10 < forecast.p90).all()
    assert ((forecast.p10 <= forecast.p50) & (forecast.p50 <= forecast.p90)).all()
    made.update({"CVA": cut(week, day + pd.Timedelta("1h"), day + pd.Timedelta("25h"))["CVA"]})
    assert list(made.predict().index.unique("zone")) == ["CVA", "Koala"]
    made.update({"CVA": cut(week, day + pd.Timedelta("25h"), day + pd.Timedelta("26h"))["CVA"]})
    assert list(made.predict().index.unique("zone")) == ["CVA"]


def test_one_row_is_enough_to_answer():
    """The first row of a zone gives a forecast of each target that is in it, in the site's time."""
    at = pd.DatetimeIndex(["2022-07-01 12:00"])
    made = forecaster().fit(pd.DataFrame({"air_temp_c": [21.4], "rh_pct": [71]}, at))
    forecast = made.predict()
    assert made.zones == ("zone",)
    assert list(forecast.index.unique("target")) == ["air_temp_c", "rh_pct", "vpd_kpa"]
    assert forecast.index.names == ["zone", "target", "time"]
    assert str(forecast.index.get_level_values("time")[0]) == "2022-07-01 12:05:00+02:00"
    assert forecast.loc[("zone", "air_temp_c"), "p50"].iloc[0] == pytest.approx(21.4, abs=0.2)


def test_a_frame_is_not_changed(week):
    """What goes in is as it was."""
    frames = cut(week, until=week["CVA"].index[10])
    before = {zone: frame.copy() for zone, frame in frames.items()}
    forecaster().fit(frames)
    for zone, frame in frames.items():
        pd.testing.assert_frame_equal(frame, before[zone])


def test_step_targets_and_horizons_follow_the_rows():
    """The step is the longest that the interval fills; targets are those that there are values of."""
    at = pd.date_range("2022-02-01", periods=6, freq="20min")
    made = forecaster().fit(pd.DataFrame({"co2_ppm": 600.0, "rh_pct": np.nan, "out_temp_c": 3.0}, at))
    assert (made.spec.step_ms, made.spec.targets) == (900_000, ("co2_ppm",))
    assert made.spec.horizons_min == (15, 30, 60, 120, 180, 360, 720, 1440)
    chosen = forecaster(step="30min", targets=["out_temp_c"], horizons=[pd.Timedelta("2h"), "30min"])
    chosen.fit(pd.DataFrame({"co2_ppm": 600.0, "out_temp_c": 3.0}, at))
    assert (chosen.spec.targets, chosen.spec.horizons_min) == (("out_temp_c",), (30, 120))
    assert list(chosen.predict().index.unique("target")) == ["out_temp_c"]


def test_a_metric_of_your_own_is_forecast():
    """The vocabulary is the caller's; horizons may be what pandas makes of a range."""
    own = {**VOCABULARY, "fog_bar": Metric("fog_bar", "fog pressure", "bar", 0, 100)}
    horizons = pd.timedelta_range("1h", "24h", freq="1h")
    made = FrameForecaster(own, **PLACE, targets=["fog_bar"], horizons=horizons)
    at = pd.date_range("2022-02-01", periods=40, freq="5min")
    forecast = made.fit(pd.DataFrame({"fog_bar": [3.0, 4.0] * 20}, at)).predict()
    assert list(forecast.index.unique("time") - at[-1].tz_localize(PLACE["timezone"])) == list(horizons)
    assert forecast.p50.between(3, 4).all()
    assert made.plot(forecast).get_ylabel() == "fog pressure (bar)"


def test_a_vocabulary_of_ones_own_needs_none_of_the_metrics_that_sensors_are_checked_by():
    """One metric is enough, also one of which nothing is known."""
    at = pd.date_range("2022-02-01", periods=40, freq="5min")
    made = FrameForecaster({"fog_bar": Metric("fog_bar", "fog pressure", "bar", 0, 100)}, **PLACE, targets=["fog_bar"])
    assert made.fit(pd.DataFrame({"fog_bar": [3.0, 4.0] * 20}, at)).predict().p50.between(3, 4).all()


@pytest.mark.parametrize("start", ["2022-03-25", "2022-10-28"])
@pytest.mark.thorough
def test_days_on_which_the_clock_changes_have_all_their_rows(start):
    """Times of the site's clock over a change, forward or back, are the instants that they were: forecasts are those of
    the same rows with offsets, and their own times are on the new clock.
    """
    at = pd.date_range(start, periods=4 * 48, freq="30min", tz=PLACE["timezone"])
    warm = 20 + 4 * np.sin((at.hour + at.minute / 60) * np.pi / 12)
    aware = pd.DataFrame({"air_temp_c": warm}, at)
    shown = aware.set_axis(at.tz_localize(None))
    one, other = forecaster().fit(aware), forecaster()
    for row in range(0, len(shown), 64):
        other = (other.update if row else other.fit)(shown.iloc[row : row + 64])
    forecast = other.predict()
    pd.testing.assert_frame_equal(forecast, one.predict(), check_exact=True)
    assert len({time.utcoffset() for time in at}) == 2
    assert forecast.index.get_level_values("time")[0] == at[-1] + pd.Timedelta("30min")
    assert forecast.p50.iloc[-1] == pytest.approx(warm[-1], abs=0.5)  # an hour beside it, it would be 1 °C off


def test_a_place_may_come_from_a_frame():
    """Its numbers are NumPy's, of whatever width."""
    place = pd.DataFrame({"latitude": [52], "longitude": np.array([4.5], np.float32)})
    made = forecaster(latitude=place["latitude"][0], longitude=place["longitude"][0])
    one, other = (each.fit(recorded(0.5)).predict() for each in (made, forecaster(latitude=52.0, longitude=4.5)))
    assert one.equals(other)


def test_progress_is_told():
    """Each row is counted, up to all of them."""
    told = []
    forecaster().fit(recorded(0.05), lambda done, total: told.append((done, total)))
    assert told == [(row + 1, 14) for row in range(14)]


def test_what_is_not_plausible_in_later_rows_counts_as_missing(week):
    """A sensor that sends -99 for an hour stops nothing."""
    day = week["CVA"].index[96]
    rows = cut(week, day, day + pd.Timedelta("1h"))["CVA"]
    broken, gone = (
        forecaster().fit(cut(week, until=day)["CVA"]).update(rows.assign(rh_pct=value)) for value in (-99.0, np.nan)
    )
    pd.testing.assert_frame_equal(broken.predict(), gone.predict(), check_exact=True)
