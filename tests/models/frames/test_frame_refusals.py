"""What the forecaster for DataFrames refuses, in one sentence each."""

import builtins
import re

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from edge.wire.vocabulary import VOCABULARY, Metric
from models.frames import FrameForecaster
from tests.models.frames.recording import PLACE, forecaster, recorded


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path):
    """Absent, damaged, of another vocabulary or another version: the sentence says which."""
    path = tmp_path / "house.safetensors"
    with pytest.raises(ValueError, match=r"there is no file .*: save a forecaster there first"):
        FrameForecaster.load(path, VOCABULARY)
    forecaster().fit(recorded(0.25, every=3)).save(path)
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


@pytest.mark.parametrize("metrics", [None, {}, ["air_temp_c"], {"air_temp_c": 1}, {"air_temp_c": "°C"}])
def test_what_is_no_vocabulary_is_one_sentence(metrics):
    """It is said at once, with what is one."""
    with pytest.raises(ValueError, match=r"metrics are a vocabulary, {name: Metric}: give VOCABULARY of edge"):
        FrameForecaster(metrics, **PLACE)


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


def test_what_comes_too_early_or_too_late_is_one_sentence():
    """Before the first rows nothing can be asked; afterwards rows only go forward, and zones keep their names. What is
    refused leaves the forecasts as they were.
    """
    day = recorded(1, every=3)["CVA"]
    made, frame = forecaster(), day.iloc[:20]
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
        made.update({"CVA": day.iloc[19:22]})
    with pytest.raises(ValueError, match="the zones so far are CVA, the new rows are of zone: name them as in fit"):
        made.update(day.iloc[20:22])
    with pytest.raises(ValueError, match="has a column 'mood', which is no metric"):
        made.update({"CVA": day.iloc[20:22].assign(mood=1)})
    with pytest.raises(ValueError, match="looks like a share"):
        made.fit({"CVA": frame.assign(rh_pct=0.7)})
    pd.testing.assert_frame_equal(made.predict(), before, check_exact=True)


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
