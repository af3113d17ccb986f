"""Frames are read as they are meant: times of any clock, and one sentence for what cannot be read."""

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from edge.wire import vocabulary
from edge.wire.vocabulary import VOCABULARY
from models.frames import frame_samples
from models.frames.frame_samples import check_units, read_frames
from models.frames.frame_times import utc_index

AMSTERDAM = "Europe/Amsterdam"
DAY = pd.date_range("2022-02-01", periods=96, freq="15min")


def hours(index, after_ms=None):
    """The hours since the first of November 2022, or before it, that times are in UTC."""
    utc_ms = utc_index(index, AMSTERDAM, after_ms, "the frame")
    return ((utc_ms - pd.Timestamp("2022-10-30").value // 10**6) / 3_600_000).tolist()


def test_times_with_an_offset_and_of_the_clock_are_the_same_instants():
    """What the site's clock showed is read with its offset, in winter and in summer."""
    for day, offset_h in (("2022-02-01", 1), ("2022-07-01", 2)):
        naive = pd.date_range(day, periods=3, freq="1h")
        aware = naive.tz_localize(f"Etc/GMT-{offset_h}")
        expected = naive.as_unit("ms").asi8 - offset_h * 3_600_000
        for index in (naive, naive.as_unit("s"), naive.as_unit("ns"), aware, aware.tz_convert("Asia/Tokyo")):
            np.testing.assert_array_equal(utc_index(index, AMSTERDAM, None, "it"), expected)


def test_the_hour_that_a_clock_shows_twice_is_told_apart_by_its_order():
    """In autumn 02:00 to 02:59 comes twice: the second time it is later than the row before, in one frame or two."""
    shown = pd.DatetimeIndex([f"2022-10-30 {t}" for t in ("01:30", "02:00", "02:30", "02:00", "02:30", "03:00")])
    assert hours(shown) == [-0.5, 0.0, 0.5, 1.0, 1.5, 2.0]
    first = utc_index(shown[:3], AMSTERDAM, None, "it")
    assert hours(shown[3:], int(first[-1])) == [1.0, 1.5, 2.0]
    assert hours(shown[[2, 5]]) == [0.5, 2.0]
    made_of_all = pd.date_range("2022-10-29", "2022-10-31", freq="5min", tz=AMSTERDAM)
    np.testing.assert_array_equal(
        utc_index(made_of_all.tz_localize(None), AMSTERDAM, None, "it"), made_of_all.as_unit("ms").asi8
    )


def test_numbers_of_any_kind_are_read():
    """Integers, booleans, nullable and single-precision columns; infinite values are missing."""
    columns = {
        "co2_ppm": np.arange(400, 496), "rain": DAY.hour > 12, "rh_pct": pd.array([70, None] * 48, dtype="Int64"),
        "air_temp_c": np.full(96, 20.5, np.float32), "out_temp_c": [np.inf, 3.0] * 48,
    }  # fmt: skip
    values = read_frames(pd.DataFrame(columns, DAY), VOCABULARY, AMSTERDAM)["zone"].values
    read = pd.DataFrame(values, columns=list(VOCABULARY))
    assert read["co2_ppm"].tolist() == list(range(400, 496))
    assert read["rain"].sum() == 11 * 4
    assert read["rh_pct"].count() == read["out_temp_c"].count() == 48
    assert read["air_temp_c"].unique() == [20.5]
    assert read["leaf_temp_c"].isna().all()


POLARS = type("DataFrame", (), {"__module__": "polars.dataframe.frame"})
"""Another library's frame of the same name."""
GOOD = pd.DataFrame({"air_temp_c": 20.0, "rh_pct": 70.0}, DAY)


def renamed(**names):
    return GOOD.rename(columns=names)


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        ([GOOD], "give a DataFrame of pandas, or one for each zone as {zone: frame}, not list"),
        ({"a": GOOD, "b": GOOD["rh_pct"]}, "or one for each zone as {zone: frame}, not Series"),
        ({}, "there is no row in what you gave: give at least one"),
        ({"a": GOOD.iloc[:0]}, "there is no row in what you gave: give at least one"),
        (GOOD.assign(zone=[None, *"a" * 95]), "the column 'zone' is empty in some rows: fill it in, or drop"),
        (pd.concat([GOOD.assign(zone=1, b=2).rename(columns={"b": "zone"})]), "the frame has two columns 'zone'"),
        (None, "give a DataFrame of pandas, or one for each zone as {zone: frame}, not None"),
        (POLARS(), "or one for each zone as {zone: frame}, not polars's DataFrame"),
        (GOOD.reset_index(), "holds numbers, not times: set a DatetimeIndex (frame.set_index('time')"),
        (GOOD.to_period("15min"), "holds periods: make them times with frame.to_timestamp()"),
        (pd.concat({"a": GOOD, "b": GOOD}), "(frame.rename_axis(['zone', 'time']).reset_index('zone'))"),
        (pd.concat({"a": GOOD}).swaplevel(), "(frame.rename_axis(['time', 'zone']).reset_index('zone'))"),
        (pd.concat({"a": pd.concat({"b": GOOD})}), "has several levels: leave the times alone in it"),
        (pd.concat({"a": GOOD, "b": GOOD}, axis=1), "{zone: frame[zone] for zone in frame.columns.levels[0]}"),
        (GOOD.set_index(DAY.astype(str)), "holds no times: set a DatetimeIndex (frame.index = pd.to_datetime("),
        (GOOD.set_index(DAY.where(DAY.hour > 2)), "the index of the frame of zone holds NaT: drop those rows with"),
        (renamed(air_temp_c="air_temp"), "has a column 'air_temp', which is no metric of the vocabulary (did you"),
        (renamed(air_temp_c="operator"), "has a column 'operator', which is no metric of the vocabulary: rename"),
        (renamed(air_temp_c="rh_pct"), "the frame of zone has two columns 'rh_pct': keep one, or their mean"),
        (GOOD.assign(rh_pct="wet"), "rh_pct of the frame of zone holds str, not numbers: convert it with pd"),
        (GOOD.assign(rh_pct="70,5"), "holds str, not numbers: pd.read_csv(..., decimal=',') reads its commas"),
        (GOOD.assign(rh_pct=DAY), "rh_pct of the frame of zone holds datetime64[us], not numbers"),
        (GOOD.assign(rh_pct=1j), "rh_pct of the frame of zone holds complex128, not numbers"),
        (pd.concat([GOOD, GOOD.iloc[-1:]]), "has two rows at 2022-02-01 23:45:00+01:00: keep one with frame[~frame"),
        (GOOD.iloc[::-1], "is not in the order of time at 2022-02-01 23:30:00+01:00: sort it with frame.sort_index()"),
        ({"a": GOOD, "b": GOOD.iloc[[2, 1]]}, "the frame of b is not in the order of time"),
        (GOOD.set_index(DAY.where(DAY.hour < 22, DAY + pd.Timedelta("800D"))), "jumps from 2022-02-01 21:45:00+01:00"),
        ({"a": GOOD, "b": GOOD.set_index(DAY + pd.Timedelta("3653D"))}, "the time of the zones jumps from 2022-02-01"),
        ({1: GOOD, "1": GOOD}, "two zones are called '1', as a number and as text: name them differently"),
        (pd.concat([GOOD.assign(zone=1), GOOD.assign(zone="1")]), "two zones are called '1', as a number and as text"),
        (GOOD.set_index(DAY.map(lambda at: at.replace(year=1900))), "at 1900-02-01 00:00:00+00:19:32, before 1970"),
        (GOOD.set_index(DAY + pd.Timedelta("54D")), "at 2022-03-27 02:00:00, which no clock in Europe/Amsterdam"),
    ],
)  # fmt: skip
def test_a_frame_that_cannot_be_read_is_one_sentence(frames, says):
    """It names what is wrong, and what to do."""
    with pytest.raises(ValueError, match=re.escape(says)) as told:
        read_frames(frames, VOCABULARY, AMSTERDAM)
    assert ":" in str(told.value)
    assert "\n" not in str(told.value)


def test_what_the_sentence_says_about_an_index_mends_it():
    """Each line of code that is named is followed here."""
    good = read_frames({"a": GOOD, "b": GOOD}, VOCABULARY, AMSTERDAM)
    several = pd.concat({"a": GOOD, "b": GOOD})
    wide = pd.concat({"a": GOOD, "b": GOOD}, axis=1)
    seconds = GOOD.set_index(DAY.tz_localize(AMSTERDAM).as_unit("s").asi8)
    for mended in (
        several.rename_axis(["zone", "time"]).reset_index("zone"),
        several.swaplevel().rename_axis(["time", "zone"]).reset_index("zone"),
        {zone: wide[zone] for zone in wide.columns.levels[0]},
        {zone: GOOD.to_period("15min").to_timestamp() for zone in "ab"},
        {zone: seconds.set_index(pd.to_datetime(seconds.index, unit="s", utc=True)) for zone in "ab"},
    ):
        found = read_frames(mended, VOCABULARY, AMSTERDAM)
        assert list(found) == ["a", "b"]
        for zone, samples in found.items():
            np.testing.assert_array_equal(samples.times_ms, good[zone].times_ms)
            np.testing.assert_array_equal(samples.values, good[zone].values)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"rh_pct": 0.7}, "rh_pct of north is never above 1.5, so it looks like a share: multiply it by 100"),
        ({"out_rh_pct": 0.7}, "out_rh_pct of north is never above 1.5, so it looks like a share"),
        ({"soil_vwc_pct": 0.35}, "soil_vwc_pct of north is never above 1.5, so it looks like a share"),
        ({"air_temp_c": 52.0}, "air_temp_c of north has a median of 52.0, so it looks like °F: convert it to °C"),
        ({"air_temp_c": 293.0}, "air_temp_c of north has a median of 293.0, so it looks like K: convert it to °C"),
        ({"co2_ppm": np.where(DAY.hour < 3, 0.06, 500)},
         "co2_ppm of north is outside of 150 to 5000 ppm in 12 of 96 values: convert it to ppm, or set to NaN"),
        ({"out_radiation_w_m2": 3e6}, "out_radiation_w_m2 of north is outside of -10 to 1500 W/m² in 96 of 96 values"),
    ],
)  # fmt: skip
def test_a_column_in_another_unit_is_one_sentence(columns, says):
    """It names the column, and what it should be in."""
    with pytest.raises(ValueError, match=re.escape(says)):
        check_units(read_frames({"north": GOOD.assign(**columns)}, VOCABULARY, AMSTERDAM), VOCABULARY)


def test_a_few_values_that_cannot_be_are_let_be():
    """A tenth may be wrong: sensors are; and vents are at 0 to 1 % by right."""
    frame = GOOD.assign(co2_ppm=np.where(DAY.hour < 2, -99.0, 500.0), vent_lee_pct=0.5)
    check_units(read_frames(frame, VOCABULARY, AMSTERDAM), VOCABULARY)


def test_without_pandas_it_says_what_to_install():
    """Who imports it where pandas is missing reads one sentence, and `models` itself is importable."""
    code = "import sys; sys.modules['pandas'] = None; import models.spec; import models.frames"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().endswith(
        "ImportError: models.frames needs pandas: pip install '.[library]' in Hothouse's folder"
    )


def test_it_needs_neither_torch_nor_ray_nor_matplotlib():
    """Forecasting frames imports none of what is large and not needed for it."""
    code = (
        "import sys, pandas as pd; from edge.wire.vocabulary import VOCABULARY;"
        "from models.frames import FrameForecaster;"
        "at = pd.date_range('2022-02-01', periods=20, freq='15min');"
        "made = FrameForecaster(VOCABULARY, timezone='UTC', latitude=52, longitude=4);"
        "made.fit(pd.DataFrame({'air_temp_c': 20.0}, at)).predict();"
        "print(sorted({'torch', 'ray', 'matplotlib', 'mlflow', 'services'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_looks_like_a_share_is_said_alike_for_streams_and_frames():
    """`models` does not import `edge`, so it stands in both."""
    assert (frame_samples._SHARES, frame_samples.SHARE_MOST, frame_samples.SHARE_LEAST) == (
        vocabulary.SHARES, vocabulary.SHARE_MOST, vocabulary.SHARE_LEAST,
    )  # fmt: skip
    assert frame_samples._TEMPERATURES == vocabulary.TEMPERATURES
