"""A third kind of model is one file and one line: job, gate, registry, replicas and replay take it as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from models import artefact
from models.families import FAMILIES
from models.spec import Place
from services.errors import ModelFilesError, TrainingError
from services.forecast_spec import forecast_spec
from services.learn.experts import NETWORK, TREES, expert_for
from services.learn.promotion.registry import Registry
from services.learn.training.challenger import learn, train_again
from services.learn.training.job import Job
from services.learn.training.recipe import job_of
from services.serve.models.forecaster import warm_up
from services.serve.models.model_loading import load_model
from services.store.history import History
from tests.models.tiny_ridge import LINE, Ridge
from tests.services.learn.synthetic import START_MS, small_settings, write_history


@pytest.fixture(autouse=True)
def _one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else of the system is changed."""
    for kind, where in LINE.items():
        monkeypatch.setitem(FAMILIES, kind, where)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A training of a ridge on eight days of rows, by nothing but its kind."""
    settings = small_settings(tmp_path, kind="ridge")
    to_ms = write_history(settings, days=8)
    files = tuple(History(settings.storage_folder, (), settings.stream.step_s).files())
    return Job(
        name="one", storage=str(settings.storage_folder), spec=forecast_spec(settings), learn=settings.learn, places={},
        files=files, after_ms=START_MS, to_ms=to_ms, log_offsets={"0": 1}, champion="online", champion_folder="",
        use_gpu=False, workers=0, kind=settings.learn.kind,
    )  # fmt: skip


def test_it_is_trained_judged_registered_and_served(job: Job, empty_mlflow: bytes, tmp_path: Path) -> None:
    """It holds the network's place: gate and registry take it, a replica loads, warms and asks it."""
    candidate = learn(job)
    assert (candidate["kind"], candidate["params"]["measured_against"]) == ("ridge", "the climatology")
    assert "of persistence" in candidate["reason"]
    (tmp_path / "mlflow.sqlite").write_bytes(empty_mlflow)
    registry = Registry(f"sqlite:///{tmp_path / 'mlflow.sqlite'}", Path(job.storage), job.spec.hash)
    version = registry.register(candidate, created_ms=1)
    registry.promote(version)
    (row,) = registry.list()
    assert (row["version"], row["expert"], row["kind"], row["stage"]) == ("v1", "network", "ridge", "champion")
    model = load_model(str(registry.servable(version)), job.spec.hash)
    warm_up(model, job.spec)
    values = np.full((1, job.spec.lookback_steps, len(job.spec.channels)), 20, np.float32)
    baseline = np.full((1, len(job.spec.horizons_min), len(job.spec.targets), 3), 19, np.float32)
    assert model.predict(values, np.array([job.to_ms]), [Place()], baseline).shape == baseline.shape


def test_it_is_replayed_byte_for_byte(job: Job) -> None:
    """From its recorded recipe alone, also where it began as a challenger of another kind's champion."""
    first = learn(job)
    recipe = first["recipe"]
    assert train_again(job_of(recipe), recipe["rows"], recipe["started_from"]) == first["weights_sha256"]
    assert isinstance(artefact.load(Path(first["folder"])).model, Ridge)


def test_its_place_follows_from_what_it_takes() -> None:
    """Windows make it the network's rival, examples that of the trees."""
    assert expert_for("ridge") is NETWORK
    assert expert_for("trees") is TREES


def test_a_model_of_the_other_place_cannot_be_promoted(job: Job, empty_mlflow: bytes, tmp_path: Path) -> None:
    """However it came into the registry of trees: a shard could not ask it."""
    candidate = learn(job)
    (tmp_path / "mlflow.sqlite").write_bytes(empty_mlflow)
    registry = Registry(f"sqlite:///{tmp_path / 'mlflow.sqlite'}", Path(job.storage), job.spec.hash, TREES)
    version = registry.register(candidate, created_ms=1)
    with pytest.raises(ModelFilesError, match="of kind ridge takes windows, the trees takes examples"):
        registry.servable(version)


def test_a_kind_that_is_not_there_is_a_failed_training(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says which kinds there are; an artefact of it cannot be promoted, either."""
    monkeypatch.delitem(FAMILIES, "ridge")
    with pytest.raises(TrainingError, match="called 'ridge'; there are network, pretrained, trees"):
        learn(job)
