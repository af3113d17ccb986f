"""The plot shows what the forecast and the history say, in the site's time; what is unclear is one sentence."""

import re
import subprocess
import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.dates import date2num

from tests.models.frames.recording import forecaster, recorded

mpl.use("Agg")


@pytest.fixture(scope="module")
def house():
    """A day of three zones, and the forecaster that learned it."""
    frames = recorded(1, every=3)
    return forecaster().fit(frames), frames


@pytest.fixture(autouse=True)
def closed():
    """No figure stays open."""
    yield
    plt.close("all")


def test_it_draws_the_forecast_and_what_was_measured(house):
    """Median, band and history are where the frames have them; the axis is named and in local time."""
    made, frames = house
    forecast = made.predict()
    ax = made.plot(forecast, frames, zone="Koala", target="rh_pct")
    assert isinstance(ax, plt.Axes)
    measured, median = ax.get_lines()
    lines = forecast.loc[("Koala", "rh_pct")]
    np.testing.assert_array_equal(median.get_ydata(), lines.p50)
    np.testing.assert_allclose(date2num(median.get_xdata()), date2num(lines.index))
    np.testing.assert_array_equal(measured.get_ydata(), frames["Koala"].rh_pct.dropna())
    (band,) = ax.collections
    corners = band.get_paths()[0].vertices[:, 1]
    assert (corners.min(), corners.max()) == pytest.approx((lines.p10.min(), lines.p90.max()))
    assert (ax.get_ylabel(), ax.get_title("left")) == ("relative humidity (%)", "Koala")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["measured", "p10 to p90", "forecast (median)"]
    ax.figure.canvas.draw()
    assert str(ax.xaxis.get_major_formatter()._tz) == "Europe/Amsterdam"


def test_vpd_is_drawn_from_what_it_is_made_of(house):
    """No frame has a column of it: it comes from temperature and humidity. It goes into axes that are there."""
    made, frames = house
    _, ax = plt.subplots()
    assert made.plot(made.predict(), frames, zone="CVA", target="vpd_kpa", ax=ax) is ax
    measured, _ = ax.get_lines()
    temp, humidity = frames["CVA"].air_temp_c, frames["CVA"].rh_pct
    vpd = 0.6112 * np.exp(17.62 * temp / (243.12 + temp)) * (1 - humidity / 100)
    np.testing.assert_allclose(measured.get_ydata(), vpd, rtol=0.02)
    assert ax.get_ylabel() == "VPD (kPa)"


def test_the_last_two_days_are_drawn():
    """More would leave no room for the forecast; without a history there is the forecast alone."""
    frame = recorded(3, every=6)["CVA"][["co2_ppm"]]
    made = forecaster().fit(frame)
    measured, _ = made.plot(made.predict(), frame).get_lines()
    assert len(measured.get_ydata()) == 2 * 48
    alone = made.plot(made.predict())
    assert (len(alone.get_lines()), alone.get_title("left")) == (1, "")  # the only zone has no name to show


def test_what_is_unclear_is_one_sentence(house):
    """It says what to choose, and of what."""
    made, frames = house
    forecast = made.predict()
    for given, options, says in [
        ((forecast, None), {}, "the forecast has 3 zones (CVA, Koala, Reference): say which with zone="),
        ((forecast, None), {"zone": "CVA"}, "the forecast has 4 targets (air_temp_c, co2_ppm, rh_pct, vpd_kpa): say"),
        ((forecast, None), {"zone": "north"}, "the forecast has no zone 'north': it has CVA, Koala, Reference"),
        ((forecast, None), {"zone": "CVA", "target": "rain"}, "the forecast has no target 'rain': it has air_temp_c"),
        ((forecast, {"Koala": frames["Koala"]}), {"zone": "CVA", "target": "rh_pct"}, "the history has no zone 'CVA'"),
        ((forecast.drop(("CVA", "rh_pct")), None), {"zone": "CVA", "target": "rh_pct"}, "has no rh_pct of CVA: choose"),
        ((frames["CVA"], None), {}, "this is no forecast: give the frame that predict() returned"),
        ((forecast.loc["CVA"], None), {}, "predict() returned, and say what to draw with zone= and target="),
        ((forecast.p50, None), {}, "this is no forecast: give the frame that predict() returned"),
        ((None, None), {}, "this is no forecast: give the frame that predict() returned"),
        ((forecast[:0], None), {}, "the forecast has no row: no target was measured within the past day"),
    ]:
        with pytest.raises(ValueError, match=re.escape(says)):
            made.plot(*given, **options)


@pytest.mark.thorough
def test_without_matplotlib_it_says_what_to_install():
    """Forecasts need it not; who draws one reads one sentence."""
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import pandas as pd; from edge.wire.vocabulary import VOCABULARY; from models.frames import FrameForecaster\n"
        "made = FrameForecaster(VOCABULARY, timezone='UTC', latitude=52, longitude=4)\n"
        "made.fit(pd.DataFrame({'co2_ppm': 500}, pd.DatetimeIndex(['2022-02-01']))).plot(made.predict())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().endswith(
        "ImportError: a plot needs matplotlib: pip install '.[library]' in Hothouse's folder"
    )
