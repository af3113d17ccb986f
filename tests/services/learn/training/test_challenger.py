"""A retraining around its training: what is compared with what, and what the candidate says of it; without Ray."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from models import artefact
from models.evaluation.forecast_errors import Errors, Predict, evaluate
from models.network.pretrained import PretrainedNetwork
from models.network.pretrained_family import FINE_TUNING_RATE
from models.network.quantile import QuantileNetwork
from models.network.training import FitResult, WindowSet
from models.pretraining.shipped import network_for
from services.config import LearnSettings
from services.errors import TooLittleHistoryError, TrainingError
from services.forecast_spec import forecast_spec
from services.learn.training import challenger, kept_model, trainer
from services.learn.training.dataset import DataRange
from services.learn.training.job import Job
from services.learn.training.network_options import training_config
from services.learn.training.recipe import job_of
from services.learn.training.trainer import TrainPlan
from services.messages import I64
from services.store.history import History
from services.store.rows import SiteStep
from services.store.storage import (
    MemoryServer,
    ObjectStorage,
    StorageAddress,
    forget_folder,
    keep_folder,
    kept_folder,
)
from tests.services.learn.synthetic import START_MS, small_settings, write_history

BUCKET = StorageAddress(url="s3://b")


class Table:
    """A Ray dataset's one method that is used, over a table in memory."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def iter_batches(self, **_: Any) -> list[pa.Table]:
        return [self.table]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[TrainPlan]:
    """Trainings that teach nothing, and streams that need no Ray; what the trainings were told."""
    told: list[TrainPlan] = []

    def train(rows: Any, plan: TrainPlan) -> FitResult:
        told.append(plan)
        return FitResult(plan.initial_state or QuantileNetwork(plan.spec).arrays(), [])

    def read(files: Any, channels: Any, found: DataRange, where: Any = None) -> Table:
        root = Path(files[0]).parents[3]
        return Table(History(root, channels, 900).read(found.from_ms - 1, found.to_ms))

    monkeypatch.setattr(trainer, "train", train)
    monkeypatch.setattr(challenger.dataset, "read", read)
    return told


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Five days of history, of which the newest is held back; the climatology serves."""
    settings = small_settings(tmp_path)
    newest = write_history(settings, days=5)
    spec = forecast_spec(settings)
    return Job(
        name="one", storage=str(settings.storage_folder), spec=spec, learn=settings.learn, places={},
        files=tuple(History(settings.storage_folder, spec.channels, settings.stream.step_s).files()), after_ms=START_MS,
        to_ms=newest,
        log_offsets={"0": 1}, champion="online", champion_folder="", use_gpu=False, workers=0,
    )  # fmt: skip


def after(job: Job, candidate: dict[str, Any], **changes: Any) -> Job:
    """The next retraining, with ``candidate`` as champion v1."""
    return replace(job, name="two", champion="v1", champion_folder=candidate["folder"], **changes)


@pytest.mark.parametrize("gone", [False, True], ids=["the same node", "another node"])
def test_a_job_that_was_killed_at_its_end_is_run_again(
    job: Job, plans: list[TrainPlan], monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """What it kept is nobody's yet, and makes room: also in a bucket, and where the weights are others by now."""
    server = MemoryServer()
    monkeypatch.setattr(kept_folder, "open_storage", lambda _: ObjectStorage(server))
    monkeypatch.setattr(kept_model, "keep_folder", lambda where, folder: keep_folder(BUCKET, folder))
    monkeypatch.setattr(kept_model, "forget_folder", lambda where, folder: forget_folder(BUCKET, folder))
    first = challenger.learn(job)
    if gone:
        shutil.rmtree(first["folder"])
    other = replace(job, learn=job.learn.model_copy(update={"seed": job.learn.seed + 1}))
    again = challenger.learn(other)
    assert again["folder"] == first["folder"]
    manifest = (Path(again["folder"]) / "manifest.json").read_bytes()
    assert json.loads(manifest)["seed"] == other.learn.seed
    assert server.objects[f"models/{job.name}/manifest.json"].content == manifest


def test_champion_lends_its_weights(job: Job, plans: list[TrainPlan]) -> None:
    """On the same cut the champion is the reference and the start; the climatology's candidate has neither note."""
    first = challenger.learn(job)
    assert plans[0].initial_state is None
    assert first["params"]["measured_against"] == "the climatology"
    second = challenger.learn(after(job, first))
    assert plans[1].initial_state is not None
    assert (second["params"]["measured_against"], second["params"]["warm_start"]) == ("v1", True)
    assert "of v1" in second["reason"]


def test_cut_that_moved_back_leaves_only_later_rows(
    job: Job, plans: list[TrainPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When more is held back than before, the start is cold and rows that the champion has seen are not compared."""
    first = challenger.learn(job)
    compared: list[int] = []

    def measured(predict: Predict, windows: WindowSet, origins: I64) -> Errors:
        compared.append(int(windows.times(origins).min()))
        return evaluate(predict, windows, origins)

    monkeypatch.setattr(challenger, "evaluate", measured)
    more = job.learn.model_copy(update={"held_back": 0.5})
    second = challenger.learn(after(job, first, learn=more))
    assert plans[1].initial_state is None
    assert plans[1].cut_ms < first["trained_on"]["to_ms"]
    assert "v1 has seen rows after the cut" in second["reason"]
    assert compared == [first["trained_on"]["to_ms"]] * 2


def test_champion_that_has_seen_all_refuses(job: Job, plans: list[TrainPlan]) -> None:
    """Where nothing is left to compare on, the challenger is refused and the reason names why."""
    little = replace(job, learn=job.learn.model_copy(update={"held_back": 0.05}))
    first = challenger.learn(little)
    to_ms = first["trained_on"]["to_ms"]
    second = challenger.learn(after(job, first, to_ms=to_ms))
    assert not second["passed"]
    assert "Only 0 rows could be compared" in second["reason"]
    assert "v1 has seen rows after the cut" in second["reason"]


def test_champion_that_cannot_be_loaded_is_in_the_reason(job: Job, plans: list[TrainPlan]) -> None:
    """The climatology stands in for a torn champion, and the candidate's reason says so."""
    first = challenger.learn(job)
    Path(first["folder"], "weights.safetensors").write_bytes(b"torn")
    second = challenger.learn(after(job, first))
    assert second["params"]["measured_against"] == "the climatology"
    assert "v1 could not be measured" in second["reason"]


def test_sensors_that_died_long_ago_are_no_short_history(tmp_path: Path, job: Job, plans: list[TrainPlan]) -> None:
    """Rows without a value that is forecast go on coming, as of the weather: that will not pass by waiting."""
    settings = small_settings(tmp_path)
    newest = write_history(settings, days=8, after_days=5, dead=("z1", "z2"))
    files = tuple(History(settings.storage_folder, job.spec.channels, settings.stream.step_s).files())
    words = "no sensor of air_temp_c, rh_pct has said anything sound since 2022-03-06T00:00:00Z: "
    with pytest.raises(TrainingError, match=words) as error:
        challenger.learn(replace(job, files=files, to_ms=newest))
    assert not isinstance(error.value, TooLittleHistoryError)


@pytest.fixture
def tuned(job: Job) -> Job:
    """The same for the kind that the package comes with."""
    return replace(job, kind="pretrained")


def test_a_first_fine_tuning_begins_with_the_weights_of_the_package(tuned: Job, plans: list[TrainPlan]) -> None:
    """In its sizes, in small steps, and nothing of it is drawn back for want of days; the next begins with that."""
    first = challenger.learn(tuned)
    package = network_for(tuned.spec)
    assert plans[0].initial_state is not None
    assert artefact.digest(plans[0].initial_state) == artefact.digest(package.arrays())
    assert (plans[0].kind, plans[0].options) == ("pretrained", package.options)
    assert (plans[0].config.learning_rate, plans[0].config.trust_days) == (tuned.learn.fine_tuning_rate, 0)
    assert (first["kind"], first["params"]["warm_start"]) == ("pretrained", True)
    assert artefact.load(Path(first["folder"])).kind == "pretrained"
    second = challenger.learn(after(tuned, first))
    assert (second["params"]["measured_against"], second["params"]["warm_start"]) == ("v1", True)
    assert "the package" not in second["reason"]


def test_a_fine_tuning_does_not_begin_with_a_champion_of_another_kind(
    job: Job, tuned: Job, plans: list[TrainPlan]
) -> None:
    """Its weights fit no pre-trained network; it is what is to be beaten all the same."""
    first = challenger.learn(job)
    second = challenger.learn(after(tuned, first))
    assert artefact.digest(plans[1].initial_state or {}) == artefact.digest(network_for(tuned.spec).arrays())
    assert second["params"]["measured_against"] == "v1"
    assert "v1 has another network: it began with the weights of the package." in second["reason"]


def test_a_fine_tuning_is_run_again_from_the_weights_of_the_package(
    tuned: Job, plans: list[TrainPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its recipe to the same bytes, and it keeps nothing; a version with other weights says so instead."""
    first = challenger.learn(tuned)
    recipe = first["recipe"]
    again = (job_of(recipe), recipe["rows"], recipe["started_from"])
    assert challenger.train_again(*again) == first["weights_sha256"]
    assert [plan.keeps for plan in plans] == [True, False]
    options = network_for(tuned.spec).options
    monkeypatch.setattr(challenger, "beginning_of", lambda kind, spec: PretrainedNetwork(spec, **options))
    with pytest.raises(TrainingError, match="began with the weights of the package, which are others in this version"):
        challenger.train_again(*again)


def test_a_run_that_went_on_from_what_was_kept_proves_nothing(
    tuned: Job, plans: list[TrainPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights are those that were there before; it says so."""
    recipe = challenger.learn(tuned)["recipe"]
    train = trainer.train
    monkeypatch.setattr(trainer, "train", lambda rows, plan: replace(train(rows, plan), resumed=True))
    with pytest.raises(TrainingError, match="proves nothing: it went on from a checkpoint"):
        challenger.train_again(job_of(recipe), recipe["rows"], recipe["started_from"])


def test_a_drifts_challenger_is_asked_on_rows_that_it_has_seen(
    job: Job, plans: list[TrainPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is held back, so it has no held-back error and passes nothing; but one that gives no numbers is refused."""
    drift = replace(job, all_rows=True, shadow=True)
    found = challenger.learn(drift)
    assert not any(whose for cells in found["held_back_mae"].values() for whose in cells.values())
    assert (found["evidence"], found["shadow"], found["passed"]) == ({}, True, False)
    monkeypatch.setattr(QuantileNetwork, "answer", lambda _, inputs: np.full_like(inputs.baseline, np.nan))
    with pytest.raises(TrainingError, match="gave no number"):
        challenger.learn(replace(drift, name="two"))


def test_a_fine_tuning_has_a_rate_of_its_own() -> None:
    """That of the settings is by default the one that was measured; networks keep theirs."""
    learn = LearnSettings()
    assert learn.fine_tuning_rate == FINE_TUNING_RATE
    assert training_config(learn).learning_rate == learn.learning_rate
    assert training_config(learn).trust_days > 0


def test_a_zone_of_half_a_day_is_no_workers_only_one(job: Job, plans: list[TrainPlan]) -> None:
    """It has nothing to train on before the cut: of three workers two take part, and one of them has it beside
    another.
    """
    history = History(Path(job.storage), job.spec.channels, job.spec.step_ms // 1000)
    values = np.full((1, len(job.spec.channels)), 20, np.float32)
    first_ms = START_MS + round(3.5 * 86_400_000)  # the fifth of five days is held back
    for end_ms in range(first_ms, job.to_ms + 1, job.spec.step_ms):
        history.add([SiteStep(0, "late", end_ms, ("z",), values, np.zeros_like(values))])
    history.flush()
    challenger.learn(replace(job, files=tuple(history.files()), workers=3))
    (plan,) = plans
    assert [sorted(share) for share in plan.shares] == [["demo/z1", "late/z"], ["demo/z2"]]


def test_a_submitted_champion_counts_as_trained_on_what_the_registry_says(job: Job, plans: list[TrainPlan]) -> None:
    """Whatever its manifest says: rows that it may have seen are not compared, and its weights are not begun with."""
    first = challenger.learn(job)
    assert first["trained_on"]["to_ms"] < job.to_ms
    second = challenger.learn(after(job, first, champion_to_ms=job.to_ms))
    assert plans[1].initial_state is None
    assert "v1 has seen rows after the cut" in second["reason"]
    assert "Only 0 rows could be compared" in second["reason"]
