"""A backtest's network is trained through Ray Data and Ray Train."""

import numpy as np
import pytest

from models.network.training import TrainingConfig
from models.spec import Place
from services.backtest import ray_training as cluster
from services.backtest import retraining as network
from services.backtest.prequential import spec_of
from services.backtest.ray_training import training_on_ray
from services.backtest.retraining import Networks
from services.backtest.table import read_table
from tests.services.backtest.short_recordings import made_up

pytestmark = [pytest.mark.ray, pytest.mark.long]


def test_the_network_of_a_backtest_trains_on_ray(tmp_path, monkeypatch):
    """The challenger of a Ray Train run answers every origin of the week that follows."""
    small = TrainingConfig(epochs=1, hidden=8, max_windows=500)
    monkeypatch.setattr(network, "CONFIG", small)
    monkeypatch.setattr(cluster, "CONFIG", small)
    table = read_table(made_up(tmp_path / "r", days=8, step_min=30))
    with training_on_ray() as on_ray:
        networks = Networks(table, spec_of(table), Place(), on_ray.train)
        networks.retrain(6 * 48)
    _, frozen = networks.answer(np.arange(6 * 48 + 1, 7 * 48))
    assert frozen is not None
    assert np.isfinite(frozen).all()
