"""The backtest on frames: the same rows as of files, the same forecasts, and one sentence where they cannot be used."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from models.trees import tree_grower as trees
from services.backtest.frames import backtest, options_of, table_of_frames
from services.backtest.prequential import BacktestOptions
from services.backtest.table import read_table
from services.errors import ConfigError, HothouseError
from tests.services.backtest.short_recordings import made_up

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[3]
SHORT = {"warmup": "2d", "every": "1h", "timezone": "Europe/Amsterdam", "latitude": 52.0, "longitude": 4.5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four made-up days of two zones, as files."""
    return made_up(tmp_path_factory.mktemp("made") / "up", days=4, columns=("t_air_c", "rh_pct", "co2_ppm"))


@pytest.fixture(scope="module")
def zones(folder):
    """The same, as pandas reads them."""
    return {path.stem: pd.read_csv(path, parse_dates=["time"]) for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def found(folder):
    """The backtest of the files."""
    return backtest(folder, **SHORT)


def same_rows(one, other):
    """Both hold the same rows of the same zones, bit for bit."""
    assert (one.names, one.metrics, one.start_ms, one.step_ms, one.spans) == (
        other.names, other.metrics, other.start_ms, other.step_ms, other.spans,
    )  # fmt: skip
    np.testing.assert_array_equal(one.values, other.values)


def test_a_frame_a_zone_is_what_its_file_is(zones, found):
    """Forecasts and scores of frames are those of the files that hold the same, and the frames stay as they are."""
    before = {zone: frame.copy() for zone, frame in zones.items()}
    of_frames, of_files = backtest(zones, **SHORT), found
    pd.testing.assert_frame_equal(of_frames.predictions, of_files.predictions)
    pd.testing.assert_frame_equal(of_frames.scores, of_files.scores)
    assert len(of_frames.predictions) > 1000
    assert set(of_frames.scores.metric) == {"t_air_c", "rh_pct", "co2_ppm"}
    for zone, frame in zones.items():
        pd.testing.assert_frame_equal(frame, before[zone])


def test_one_frame_may_hold_all_zones_and_have_its_times_as_index(folder, zones):
    """A column `zone` tells them apart, in any order of rows."""
    whole = pd.concat([frame.assign(zone=zone) for zone, frame in zones.items()])
    shuffled = whole.sample(frac=1, random_state=1).set_index("time")
    for frame in (whole, shuffled):
        same_rows(table_of_frames(frame, {}), read_table(folder))


def test_zones_may_be_numbers_and_are_never_lost(zones):
    """Whichever way they are given; rows of no zone are not left out in silence."""
    numbered = dict(enumerate(zones.values(), 1))
    one = pd.concat([frame.assign(zone=number) for number, frame in numbered.items()], ignore_index=True)
    assert table_of_frames(numbered, {}).names == table_of_frames(one, {}).names == ("1", "2")
    with pytest.raises(HothouseError, match="the column 'zone' is empty in some rows"):
        table_of_frames(one.assign(zone=one["zone"].where(one["zone"] == 1)), {})
    of_one_name = pd.concat([one[one["zone"] == 1], one[one["zone"] == 2].assign(zone="1")])
    for given in (of_one_name, {1: numbered[1], "1": numbered[2]}):
        with pytest.raises(HothouseError, match="two zones are called '1', as a number and as text"):
            table_of_frames(given, {})


def test_times_without_their_year_are_refused(zones):
    """Where they have none pandas takes 1900; learners number steps from 1970 on, and would learn nothing."""
    old = {zone: frame.assign(time=frame.time.map(lambda at: at.replace(year=1900))) for zone, frame in zones.items()}
    with pytest.raises(HothouseError, match=r"the recording begins on 1900-.*, before 1970"):
        table_of_frames(old, {})


def test_columns_of_any_name_are_told_what_they_hold(folder, zones):
    """What a metric's column is called is the caller's business; the forecasts are named after it."""
    renamed = {zone: frame.rename(columns={"t_air_c": "Temperature left"}) for zone, frame in zones.items()}
    with pytest.raises(ConfigError, match="no frame has the column 'Temperature'") as caught:
        table_of_frames(renamed, {"Temperature": "air_temp_c"})
    assert "Temperature left" in caught.value.hint
    table = table_of_frames(renamed, {"Temperature left": "air_temp_c"})
    assert table.metrics["air_temp_c"] == "Temperature left"
    np.testing.assert_array_equal(table.values, read_table(folder).values)


def test_times_with_an_offset_are_utc(zones):
    """As in files: a recording of aware times has its days in UTC."""
    aware = {zone: frame.assign(time=frame.time.dt.tz_localize("Etc/GMT-2")) for zone, frame in zones.items()}
    naive, given = table_of_frames(zones, {}), table_of_frames(aware, {})
    assert (given.is_utc, given.start_ms) == (True, naive.start_ms - 2 * 3_600_000)
    np.testing.assert_array_equal(given.values, naive.values)


def test_scores_are_means_over_zones_of_means(zones, found):
    """A cell is what the predictions say beside the measurements, taken by hand from the frames that came in."""
    measured = pd.concat([f[["time", "t_air_c"]].assign(zone=zone) for zone, f in zones.items()])
    cell = found.predictions[found.predictions.metric == "t_air_c"]
    cell = cell[cell.target_time - cell.origin == pd.Timedelta("3h")]
    cell = cell.merge(measured, left_on=["zone", "target_time"], right_on=["zone", "time"])
    error = (cell.q50 - cell.t_air_c).abs().groupby(cell.zone).mean()
    (said,) = found.scores.query("metric == 't_air_c' and horizon_min == 180").itertuples()
    assert said.cases == len(cell)
    assert said.mae == pytest.approx(error.mean(), rel=1e-5)
    assert said.coverage == pytest.approx(cell.t_air_c.between(cell.q10, cell.q90).mean(), abs=0.02)
    assert said.skill == pytest.approx(1 - said.mae / said.base)


def test_a_recording_without_a_truth_after_its_warm_up_has_forecasts_and_no_score(zones):
    """There is nothing to compare: the table is empty, with its columns."""
    late = {zone: frame.copy() for zone, frame in zones.items()}
    for frame in late.values():
        frame.loc[frame.index > 2 * 96, ["t_air_c", "rh_pct", "co2_ppm"]] = np.nan
    found = backtest(late, **SHORT | {"until": "50h"})
    assert len(found.predictions)
    assert len(found.scores) == 0
    assert {"metric", "horizon_min", "mae", "skill"} <= set(found.scores.columns)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda zones: zones["a"], "has no column 'zone'"),
        (lambda zones: {}, "there is no zone"),
        (lambda zones: None, "a NoneType is no recording"),
        (lambda zones: list(zones.values()), "a list is no recording"),
        (lambda zones: {"a": zones["a"]["rh_pct"]}, "a Series is no recording"),
        (
            lambda zones: {"a": zones["a"].assign(time=[*zones["a"].time[:-1], pd.Timestamp("2202-02-01")])},
            "to 2202-02-01 00:00",
        ),
        (lambda zones: {"a": zones["a"].drop(columns="time")}, "its time column holds numbers, not times"),
        (lambda zones: {"a": zones["a"].set_index(["time", "rh_pct"])}, "has an index of several levels"),
        (lambda zones: {"a": zones["a"].assign(rh_pct=[object()] * len(zones["a"]))}, "the frame of a cannot be read"),
        (lambda zones: {"a": pd.concat([zones["a"], zones["a"][["rh_pct"]]], axis=1)}, "the frame of a cannot be read"),
        (lambda zones: {"a": zones["a"].iloc[:0]}, "a holds a header and no row"),
        (lambda zones: {"a": zones["a"][["time"]].assign(mood=1.0)}, "holds no value of a column that is understood"),
    ],
)
def test_a_frame_that_cannot_be_used_is_one_sentence(zones, change, says):
    """What is wrong is named, and of which zone."""
    with pytest.raises(HothouseError, match=re.escape(says)):
        backtest(change(zones), **SHORT)


def test_a_recording_shorter_than_the_warm_up_says_how_long_it_is(zones):
    """And what to do: a new user's recording is shorter than the two weeks that are waited for by default."""
    with pytest.raises(HothouseError, match="no zone is longer than the warm-up") as caught:
        backtest(zones, **SHORT | {"warmup": "14d"})
    assert "The longest has 4.0 days, and the warm-up 14: make that shorter" in caught.value.hint


def test_a_frame_in_another_unit_is_to_be_converted(zones):
    """A sentence about files names recording.toml; whoever gives frames is told what to do instead."""
    shares = zones["a"].assign(rh_pct=zones["a"]["rh_pct"] / 100)
    with pytest.raises(HothouseError, match="looks like a share") as caught:
        backtest({"a": shares}, **SHORT)
    assert "convert the column" in caught.value.hint


def test_options_are_what_people_write():
    """Durations with their unit; what is no duration, no time zone or half a place is one sentence."""
    made = options_of("30min", "14d", None, None, None, None, False)
    assert made == BacktestOptions()
    assert options_of("90min", "36h", "3d", None, None, None, True).every_ms == 5_400_000
    for wrong in ("often", "30", "0d", "-1h", "30s", ""):
        with pytest.raises(ConfigError, match=r"every .* is not a duration"):
            options_of(wrong, "14d", None, None, None, None, False)
    with pytest.raises(ConfigError, match="warmup 14 is not a duration"):
        options_of("30min", 14, None, None, None, None, False)
    with pytest.raises(ConfigError, match=r"^--every '7' is not a duration"):
        options_of("7", "14d", None, None, None, None, False, dashes="--")
    for wrong in ({"until": "1d"}, {"timezone": "Mars/Base"}, {"latitude": 52.0}, {"latitude": 95.0, "longitude": 4.0},
                  {"latitude": 52.0, "longitude": float("nan")}):  # fmt: skip
        given = {"until": None, "latitude": None, "longitude": None, "timezone": None} | wrong
        with pytest.raises(ConfigError):
            options_of("30min", "14d", network=False, **given)
    with pytest.raises(ConfigError, match="humour is not a metric"):
        backtest({}, columns={"t": "humour"})


def test_the_guide_runs(tmp_path, monkeypatch):
    """The Python of docs/recordings.md does what it says, on such files."""
    monkeypatch.setitem(trees.OPTIONS, "num_iterations", 2)
    made_up(tmp_path / "my_greenhouse", zones=("a",), days=15, step_min=30)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/recordings.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code, names)
    assert len(pd.read_parquet("predictions.parquet")) == len(names["found"].predictions) > 0
