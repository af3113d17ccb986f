"""The network along a recording: trained on the past alone, judged, named, and the frozen one beside it."""

import numpy as np
import pytest

from models.network.training import TrainingConfig
from models.spec import Place
from services.backtest import retraining as network
from services.backtest.prequential import BacktestOptions, replay, spec_of
from services.backtest.retraining import Networks, train_here
from services.backtest.table import read_table, sun_longitude
from tests.services.backtest.short_recordings import DAY_MS, made_up


@pytest.fixture
def table(tmp_path):
    """Ten made-up days of two zones."""
    return read_table(made_up(tmp_path / "r", days=10, step_min=30))


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(network, "CONFIG", TrainingConfig(epochs=1, hidden=8))


def test_a_training_sees_nothing_after_its_end(table):
    """Origins and truths that a training and its gate are given lie before now, and the newest are held back."""
    seen = []

    def train(windows, origins, cut_ms, initial_state):
        seen.append((windows.times(origins).max(), cut_ms))
        assert np.isfinite(windows.truth(origins, cut_ms)).any(axis=(1, 2)).all()
        return train_here(windows, origins, cut_ms, initial_state)

    networks = Networks(table, spec_of(table), Place(), train)
    step = 6 * 48
    networks.retrain(step)
    (newest, cut_ms), = seen  # fmt: skip
    assert newest < cut_ms < table.end_ms[step]


def test_too_little_history_trains_nothing(table):
    """A day of rows gives no network and no answer."""
    networks = Networks(table, spec_of(table), Place(), train_here)
    networks.retrain(48)
    assert networks.version == ""
    assert networks.answer(np.array([60])) == (None, None)


def test_the_second_training_goes_on_from_the_champion(table, monkeypatch):
    """A champion's weights are where the next challenger starts; the frozen network stays the first one."""
    monkeypatch.setattr(network, "judge", lambda *_: type("Verdict", (), {"promote": True}))
    starts = []

    def train(windows, origins, cut_ms, initial_state):
        starts.append(initial_state)
        return train_here(windows, origins, cut_ms, initial_state)

    networks = Networks(table, spec_of(table), Place(), train)
    networks.retrain(5 * 48)
    before = networks.answer(np.array([9 * 48]))[1]
    networks.retrain(8 * 48)
    assert starts[0] is None
    assert starts[1] is not None
    assert networks.version == "v2"
    assert np.array_equal(before, networks.answer(np.array([9 * 48]))[1], equal_nan=True)


@pytest.mark.thorough
def test_a_forecast_names_the_network_that_it_asked(table, monkeypatch):
    """Before the first champion the version is the forecaster's alone, then both stand in it; two runs are equal."""
    monkeypatch.setattr(network, "judge", lambda *_: type("Verdict", (), {"promote": True}))
    options = BacktestOptions(warmup_ms=4 * DAY_MS, every_ms=3_600_000, network=True)
    forecasts, again = replay(table, options), replay(table, options)
    assert forecasts.quantiles.tobytes() == again.quantiles.tobytes()
    assert forecasts.version[0] == "online-1"
    assert forecasts.version[-1].startswith("online-1+v")
    assert np.isfinite(forecasts.frozen[-1]).all()


def test_the_sun_of_a_local_clock(table):
    """Taken for UTC, a clock an hour ahead has the sun an hour later: fifteen degrees further west.

    The clock is that of the first row, 25 March: how long the recording goes on changes nothing.
    """
    assert sun_longitude(table, "UTC", 4.5) == 4.5
    assert sun_longitude(table, None, 4.5) == 0.0
    assert sun_longitude(table, None, None) is None
    assert abs(sun_longitude(table, "Europe/Amsterdam", 4.5) - (4.5 - 15)) < 1e-9
