"""What a search for settings is judged on, and what the settings of a training are."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from models.network.quantile import QuantileNetwork
from models.network.training import TrainingConfig, fit
from services.config import LearnSettings
from services.errors import TrainingError
from services.forecast_spec import forecast_spec
from services.learn.training import tuning
from services.learn.training.job import Job
from services.learn.training.network_options import NETWORK, TUNABLE, network_options, training_config
from services.learn.training.recipe import job_of, recipe_of
from services.learn.training.tuning import read_windows, score, tail_of
from tests.services.learn.synthetic import small_settings, write_history


def test_default_settings_train_as_the_trainings_own_defaults() -> None:
    """Settings that nobody has set change no training; each of them reaches it where somebody has."""
    assert training_config(LearnSettings()) == TrainingConfig()
    given = {"learning_rate": 1e-3, "weight_decay": 0.1, "hidden": 32, "mixes": 3, "dropout": 0.1, "silence": 0.0}
    assert set(given) == set(TUNABLE)
    learn = LearnSettings(**given)
    config = asdict(training_config(learn))
    assert {name: config[name] for name in given} == given
    assert network_options(learn) == {name: given[name] for name in NETWORK}


def test_a_recipe_names_every_setting_that_is_searched_for(tmp_path: Path) -> None:
    """A training is run again with the settings of then, also with those that a search has found; a recipe of before
    there were such settings means their defaults.
    """
    settings = small_settings(tmp_path, hidden=32, learning_rate=1e-3)
    job = Job(
        name="a", storage=str(tmp_path), spec=forecast_spec(settings), learn=settings.learn, places={}, files=(),
        after_ms=0, to_ms=1, log_offsets={}, champion="online", champion_folder="", use_gpu=False, workers=0,
    )  # fmt: skip
    recipe = recipe_of(job, {}, "")
    assert training_config(job_of(recipe).learn) == training_config(settings.learn)
    for name in TUNABLE:
        del recipe["job"]["learn"][name]
    old = job_of(recipe).learn
    assert (old.hidden, old.learning_rate) == (TrainingConfig().hidden, TrainingConfig().learning_rate)


def test_the_tail_chooses_with_one_half_and_proves_with_the_other(tmp_path: Path) -> None:
    """Trained on before the cut; chosen on rows before those that prove, and knowing none of theirs."""
    settings = small_settings(tmp_path)
    write_history(settings, days=8)
    windows = read_windows(settings, most_zones=1)
    assert windows.zone_ids == ("demo/z1",)
    tail = tail_of(windows, 0.25)
    times = [windows.times(part) for part in (tail.train, tail.choose, tail.prove)]
    assert times[0].max() < tail.cut_ms <= times[1].min()
    assert times[1].max() < tail.middle_ms <= times[2].min()
    network = QuantileNetwork(windows.spec)
    network.eval()
    assert score(network, windows, tail.choose, tail.middle_ms) == pytest.approx(1.0)  # a new one is the climatology
    state = fit(windows, tail.train, TrainingConfig(epochs=8, batch_size=64, trust_days=0), cut_ms=tail.cut_ms).state
    network.load_arrays(state)
    before = torch.get_rng_state()
    assert score(network, windows, tail.choose, tail.middle_ms) < 0.9
    assert torch.equal(before, torch.get_rng_state())
    windows.targets[:, windows.end_ms > tail.middle_ms] += 50
    with_others = score(network, windows, tail.choose, tail.middle_ms)
    assert with_others < 0.9
    assert np.isfinite(with_others)


def test_a_history_that_is_too_short_is_named(tmp_path: Path) -> None:
    """Without rows, or with too few for a tail, there is a sentence."""
    settings = small_settings(tmp_path)
    with pytest.raises(TrainingError, match="no history"):
        read_windows(settings, most_zones=5)
    write_history(settings, days=1)
    with pytest.raises(TrainingError, match="too short"):
        tail_of(read_windows(settings, most_zones=5), 0.2)


def test_both_halves_of_the_tail_have_rows_of_every_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Origins are in order of time, then zone: those that are drawn are not all of one zone."""
    monkeypatch.setattr(tuning, "SCORED_ORIGINS", 20)
    settings = small_settings(tmp_path)
    write_history(settings, days=4)
    windows = read_windows(settings, most_zones=2)
    tail = tail_of(windows, 0.25)
    for part in (tail.choose, tail.prove):
        assert len(part) == 20
        assert set((part // windows.length).tolist()) == {0, 1}
