"""What each of several workers trains on, also where the sensors of all of its zones are dead; without Ray."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import numpy as np
import pytest
import ray.train
import ray.train.torch
import torch
from safetensors import SafetensorError
from torch import nn

from models.families import TooLittleError
from models.features.windows import WindowSet
from models.network import progress as progress_module
from models.network.progress import PROGRESS_FILE
from models.network.quantile import QuantileNetwork, to_tensors
from models.network.training import FitResult, TrainingConfig, fit, pinball
from services.errors import TooLittleHistoryError
from services.learn.training import kept_runs, trainer
from services.learn.training.kept_runs import KeptRuns
from services.learn.training.trainer import TrainPlan
from services.store.storage import MemoryServer, ObjectStorage, StorageAddress
from tests.models.worlds import PLACE, SPEC, START_MS, rows, window_set
from tests.services.learn.training.progresses import progress

SETTINGS = TrainingConfig(batch_size=32, max_windows=300)


def dead(zones: int = 1) -> WindowSet:
    """Zones whose rows have weather and lamps, and no value that is forecast."""
    values = rows(zones=zones)
    for target in ("air_temp_c", "rh_pct"):
        values[..., SPEC.channels.index(target)] = np.nan
    return WindowSet([f"d{i}" for i in range(zones)], START_MS, values, [PLACE] * zones, SPEC)


def shared(monkeypatch: pytest.MonkeyPatch, *dealt: WindowSet) -> list[tuple[WindowSet, Any, int | None]]:
    """What each worker trains on, and its steps, where these are the rows that they were dealt."""
    origins = [windows.origins(SPEC.steps_per_day) for windows in dealt]
    monkeypatch.setattr(trainer, "_rows_for", lambda plan, rank, world: (dealt[rank], origins[rank]))
    monkeypatch.setattr(trainer, "_origins_of_all", lambda mine, rank, world: [len(found) for found in origins])
    plan = cast(TrainPlan, None)
    return [trainer._examples(plan, SETTINGS, rank, len(dealt)) for rank in range(len(dealt))]


def test_the_first_worker_has_rows_that_can_be_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It scales the network for all, and says how many days there were: with dead sensors it changes rows with the
    worker that has most.
    """
    nothing, few, most = dead(), window_set(2), window_set(3)
    first, second, third = shared(monkeypatch, nothing, few, most)
    assert [windows for windows, _, _ in (first, second, third)] == [most, few, nothing]
    assert first[1].tolist() == most.origins(SPEC.steps_per_day).tolist()
    assert second[1].tolist() == few.origins(SPEC.steps_per_day).tolist()
    assert {steps for _, _, steps in (first, second, third)} == {-(-300 // 32)}


def test_a_worker_without_origins_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It steps with the others, on a row without a truth: its loss is none, and so is every gradient."""
    _, (windows, origins, steps) = shared(monkeypatch, window_set(3), dead(zones=2))
    assert (len(origins), steps) == (1, 10)
    truth = windows.truth(origins)
    assert np.isnan(truth).all()
    network = QuantileNetwork(SPEC, hidden=8)
    nn.init.normal_(network.head.weight)
    loss = pinball(network(*to_tensors(windows.inputs(origins))), torch.from_numpy(truth), network.residual)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0
    gradients = [parameter.grad for parameter in network.parameters()]
    assert all(gradient is not None and not gradient.any() for gradient in gradients)


def test_where_nobody_has_an_origin_there_is_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that has seen no truth would be none."""
    for windows, origins, steps in shared(monkeypatch, dead(), dead()):
        assert (len(origins), steps) == (0, 0)
        with pytest.raises(ValueError, match="no origin to train on"):
            fit(windows, origins, SETTINGS, steps_per_epoch=steps)


def test_rows_without_an_origin_are_too_little_history(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also as a worker says it: there a training waits for more, and has not failed."""

    class Trainer:
        """A worker that raises what its loop raised."""

        def __init__(self, *_: Any, **__: Any) -> None: ...

        def fit(self) -> NoReturn:
            cause = TooLittleError("there is no origin to train on: the history is too short")
            failed = ray.train.WorkerGroupError("a worker failed", {0: cause})
            raise failed

    monkeypatch.setattr(ray.train.torch, "TorchTrainer", Trainer)
    plan = TrainPlan(
        name="a", folder=str(tmp_path), spec=SPEC, config=SETTINGS, places={}, cut_ms=0,
        shares=[frozenset({"s/z"})], workers=0, use_gpu=False,
    )  # fmt: skip
    with pytest.raises(TooLittleHistoryError, match=r"^there is no origin to train on: the history is too short$"):
        trainer.train(cast(Any, None), plan)


def test_one_worker_alone_has_its_own_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no group that it could ask."""
    ((windows, origins, steps),) = shared(monkeypatch, window_set(3))
    assert origins.tolist() == windows.origins(SPEC.steps_per_day).tolist()
    assert steps is None


def test_a_training_that_keeps_nothing_leaves_a_bucket_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what another of its name has kept there is taken up or replaced, nor are old ones removed."""

    class Trainer:
        """Trains one epoch."""

        def __init__(self, _: Any, train_loop_config: dict[str, TrainPlan], **__: Any) -> None:
            self.plan = train_loop_config["plan"]

        def fit(self) -> Any:
            found = trainer._resume(self.plan)
            trainer._keep(progress(2), self.plan, 0)
            return SimpleNamespace(return_value=FitResult({}, resumed=found is not None))

    storage, where = ObjectStorage(MemoryServer()), StorageAddress(url="s3://bucket")
    monkeypatch.setattr(kept_runs, "open_storage", lambda address: storage)
    monkeypatch.setattr(ray.train.torch, "TorchTrainer", Trainer)
    monkeypatch.setattr(ray.train, "report", lambda *_, **__: None)
    there = KeptRuns(tmp_path, where)
    for name in "abcde":
        there.keep(name, progress(1))

    def content() -> dict[str, bytes]:
        return {name: storage.read(there.key(name, PROGRESS_FILE)).content for name in there.names()}

    before = content()
    plan = TrainPlan(
        name="a", folder=str(tmp_path), where=where, spec=SPEC, config=SETTINGS, places={}, cut_ms=0,
        shares=[frozenset({"s/z"})], workers=0, use_gpu=False, keeps=False,
    )  # fmt: skip
    assert not trainer.train(cast(Any, None), plan).resumed
    assert content() == before
    assert trainer.train(cast(Any, None), replace(plan, keeps=True)).resumed
    assert content() != before


@pytest.mark.parametrize("workers", [0, 1])
def test_a_disk_that_is_full_between_epochs_ends_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, workers: int
) -> None:
    """Where the storage is a folder, too: it is told, what was kept before holds, and a later epoch is kept again."""
    reported: list[dict[str, Any]] = []
    monkeypatch.setattr(ray.train, "report", lambda epoch, **_: reported.append(epoch))
    plan = TrainPlan(
        name="a", folder=str(tmp_path), spec=SPEC, config=SETTINGS, places={}, cut_ms=0,
        shares=[frozenset({"s/z"})], workers=workers, use_gpu=False,
    )  # fmt: skip

    def full(*_: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    def epochs() -> int:
        found = trainer._resume(plan)
        return len(found.history) if found else 0

    trainer._keep(progress(1), plan, 0)
    with monkeypatch.context() as patch:
        patch.setattr(progress_module, "save_file", full)
        trainer._keep(progress(2), plan, 0)
    assert "an epoch of a is not kept: Error while serializing: I/O error: No space left on device" in caplog.text
    assert epochs() == 1
    trainer._keep(progress(3), plan, 0)
    assert epochs() == 3
    assert [epoch["number"] for epoch in reported] == [0, 1, 2]
    assert [path.name for path in (tmp_path / "a").iterdir()] == [PROGRESS_FILE]
