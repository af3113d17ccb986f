"""The forecaster for DataFrames: the backtest's forecasts, whatever calls the rows come in, and one sentence each."""

import builtins
import re

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

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


def test_a_file_that_cannot_be_read_is_one_sentence(week, tmp_path):
    """Absent, damaged, of another vocabulary or another version: the sentence says which."""
    path = tmp_path / "house.safetensors"
    with pytest.raises(ValueError, match=r"there is no file .*: save a forecaster there first"):
        FrameForecaster.load(path, VOCABULARY)
    forecaster().fit(cut(week, until=week["CVA"].index[20])).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(ValueError, match="is no saved forecaster, or it is damaged"):
        FrameForecaster.load(path, VOCABULARY)
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="was saved with another vocabulary: load it with the one"):
        FrameForecaster.load(path, {"air_temp_c": VOCABULARY["air_temp_c"]})
    path.write_bytes(whole.replace(b'\\"format\\": 1', b'\\"format\\": 9', 1))
    assert path.read_bytes() != whole
    with pytest.raises(ValueError, match="was saved by another version of Hothouse: fit again"):
        FrameForecaster.load(path, VOCABULARY)
    for text in ("[]", "{}"):
        save_file({"a": np.zeros(3)}, path, {"hothouse": text})
        with pytest.raises(ValueError, match="is no saved forecaster, or it is damaged"):
            FrameForecaster.load(path, VOCABULARY)
    path.write_bytes(whole.replace(b"forecaster/unit", b"forecaster/Unit", 1))
    with pytest.raises(ValueError, match="was saved by another version of Hothouse: fit again"):
        FrameForecaster.load(path, VOCABULARY)


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path):
    """The folder is not there: it says so, and the forecaster is as it was."""
    made = forecaster().fit(recorded(0.05))
    with pytest.raises(OSError, match="house cannot be written: "):
        made.save(tmp_path / "nowhere" / "house")
    made.predict()


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


@pytest.mark.parametrize("metrics", [None, {}, ["air_temp_c"], {"air_temp_c": 1}, {"air_temp_c": "°C"}])
def test_what_is_no_vocabulary_is_one_sentence(metrics):
    """It is said at once, with what is one."""
    with pytest.raises(ValueError, match=r"metrics are a vocabulary, {name: Metric}: give VOCABULARY of edge"):
        FrameForecaster(metrics, **PLACE)


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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"timezone": "Mars/Base"}, "'Mars/Base' is not a time zone: give an IANA name such as Europe/Amsterdam"),
        ({"timezone": None}, "None is not a time zone: give an IANA name"),
        ({"latitude": "52 N"}, "latitude 52 N is not within -90 to 90: give degrees, north and east positive"),
        ({"timezone": ""}, "'' is not a time zone: give an IANA name"),
        ({"latitude": 152.0}, "latitude 152.0 is not within -90 to 90: give degrees, north and east positive"),
        ({"longitude": float("nan")}, "longitude nan is not within -180 to 180"),
        ({"step": "7min"}, "step 7min is not possible: give 5min, 10min, 15min or 30min"),
        ({"step": "often"}, "step 'often' is not a duration: write it as 30min, 1h or 24h"),
        ({"horizons": ["1h", "90s"]}, "horizon 90s is not possible: give whole minutes up to 24h"),
        ({"horizons": [pd.NaT]}, "horizon NaT is not possible: give whole minutes up to 24h"),
        ({"horizons": ["3D"]}, "horizon 3D is not possible: give whole minutes up to 24h"),
        ({"horizons": "1h"}, "horizons are a list of durations: give one or more"),
        ({"horizons": pd.Timedelta("1h")}, "horizons are a list of durations: give one or more"),
        ({"horizons": 60}, "horizons are a list of durations: give one or more"),
        ({"targets": 5}, "targets are a list of metrics: give one or more"),
        ({"targets": {"rh_pct", "co2_ppm"}}, "targets are a list of metrics: give one or more"),
        ({"horizons": []}, "horizons are a list of durations: give one or more"),
        ({"horizons": ["20min"], "step": "15min"}, "the horizon 20min is no multiple of the step of 15min: give one"),
        ({"targets": "rh_pct"}, "targets are a list of metrics: give one or more, each once"),
        ({"targets": ["rh_pct", "rh_pct"]}, "targets are a list of metrics: give one or more, each once"),
        (
            {"targets": ["air_temp"]},
            "is no metric of the vocabulary (did you mean 'air_temp_c'?): give one of its names",
        ),
        ({"targets": ["humour"]}, "the target 'humour' is no metric of the vocabulary: give one of its names"),
        ({"targets": ["wind_dir_deg"]}, "the target 'wind_dir_deg' is a direction, which cannot be forecast"),
    ],
)
def test_an_option_that_cannot_be_is_one_sentence(options, says):
    """It is said when the forecaster is made."""
    with pytest.raises(ValueError, match=re.escape(says)):
        forecaster(**options)


AT = pd.date_range("2022-02-01", periods=4, freq="15min")


@pytest.mark.parametrize(
    ("options", "columns", "says"),
    [
        (
            {"step": "5min"},
            {"rh_pct": 70.0},
            "rows come every 15 min, but step is 5min: leave step out, or give 15min",
        ),
        ({"targets": ["co2_ppm"]}, {"rh_pct": 70.0}, "no zone has a value of co2_ppm, which the targets need"),
        ({"targets": ["vpd_kpa"]}, {"rh_pct": 70.0}, "no zone has a value of air_temp_c, which the targets need"),
        ({"horizons": ["20min"]}, {"rh_pct": 70.0}, "the horizon 20min is no multiple of the step of 15min: give one"),
        ({}, {"out_temp_c": 7.0}, "the rows have no value to forecast: give a column air_temp_c, rh_pct or co2_ppm"),
    ],
)
def test_rows_that_do_not_fit_the_options_are_one_sentence(options, columns, says):
    """It is said when the first rows come."""
    with pytest.raises(ValueError, match=re.escape(says)):
        forecaster(**options).fit(pd.DataFrame(columns, AT))


@pytest.mark.parametrize(("every", "step"), [("60min", "30min"), ("7min", "5min")])
def test_a_step_may_be_named_that_is_the_one_by_default(every, step):
    """No longer one fills rows that come every hour, or every 7 minutes."""
    frame = pd.DataFrame({"rh_pct": 70.0}, pd.date_range("2022-02-01", periods=4, freq=every))
    named, left_out = (forecaster(**options).fit(frame) for options in ({"step": step}, {}))
    assert named.spec == left_out.spec


def test_values_that_are_too_large_to_be_forecast_are_one_sentence():
    """They would be forecast as 60,000; a counter may have counted further."""
    own = {
        **VOCABULARY, "light_lx": Metric("light_lx", "light", "lx", 0, 150_000),
        "water_l": Metric("water_l", "water", "l", 0, 1e6, kind="counter"),
    }  # fmt: skip
    frame = pd.DataFrame({"light_lx": [500.0, 80_000.0, 700.0, np.nan], "water_l": np.arange(4) + 9e5}, AT)
    with pytest.raises(ValueError, match="light_lx of zone goes to 80,000 lx, forecasts to 60,000 only: give a metric"):
        FrameForecaster(own, **PLACE, targets=["light_lx"]).fit(frame)
    assert FrameForecaster(own, **PLACE, targets=["water_l"]).fit(frame).predict().p50.between(0, 2).all()
    assert len(FrameForecaster(own, **PLACE, targets=["light_lx"]).fit(frame.where(frame < 1e4)).predict())


def test_what_comes_too_early_or_too_late_is_one_sentence(week):
    """Before the first rows nothing can be asked; afterwards rows only go forward, and zones keep their names. What is
    refused leaves the forecasts as they were.
    """
    made, frame = forecaster(), week["CVA"].iloc[:20]
    for ask in (made.predict, lambda: made.update(frame), lambda: made.spec, lambda: made.zones,
                lambda: made.save("nowhere")):  # fmt: skip
        with pytest.raises(ValueError, match=r"has learned nothing yet: call fit\(frame\) first"):
            ask()
    before = made.fit({"CVA": frame}).predict()
    says = (
        "the frame of CVA begins at 2022-02-01 04:45:00+01:00, but rows up to 2022-02-01 04:45:00+01:00 are learned"
        " already: update with later rows only, those of all zones in one call"
    )
    with pytest.raises(ValueError, match=re.escape(says)):
        made.update({"CVA": week["CVA"].iloc[19:22]})
    with pytest.raises(ValueError, match="the zones so far are CVA, the new rows are of zone: name them as in fit"):
        made.update(week["CVA"].iloc[20:22])
    with pytest.raises(ValueError, match="has a column 'mood', which is no metric"):
        made.update({"CVA": week["CVA"].iloc[20:22].assign(mood=1)})
    with pytest.raises(ValueError, match="looks like a share"):
        made.fit({"CVA": frame.assign(rh_pct=0.7)})
    pd.testing.assert_frame_equal(made.predict(), before, check_exact=True)


def test_what_is_not_plausible_in_later_rows_counts_as_missing(week):
    """A sensor that sends -99 for an hour stops nothing."""
    day = week["CVA"].index[96]
    rows = cut(week, day, day + pd.Timedelta("1h"))["CVA"]
    broken, gone = (
        forecaster().fit(cut(week, until=day)["CVA"]).update(rows.assign(rh_pct=value)) for value in (-99.0, np.nan)
    )
    pd.testing.assert_frame_equal(broken.predict(), gone.predict(), check_exact=True)


def test_a_missing_library_is_one_sentence(monkeypatch):
    """Without LightGBM it says at once what to install, not when trees are grown after five days."""
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "lightgbm":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"without LightGBM: pip install '\.\[library\]' in Hothouse's folder"):
        forecaster()
