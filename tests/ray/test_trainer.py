"""Training on Ray: streamed rows, whole zones, equal weights from equal data, clear errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray

from services.config import Settings
from services.errors import TrainingError
from services.forecast_spec import forecast_spec, place_of
from services.learn.training import dataset
from services.store.history import ZONE_ROWS, History
from services.store.storage import StorageAddress, open_storage
from tests.ray.runtime import local_ray
from tests.s3 import s3_address
from tests.services.learn.synthetic import small_settings, write_history

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings with five days of history."""
    settings = small_settings(tmp_path_factory.mktemp("data"))
    write_history(settings, days=5)
    return settings


@pytest.fixture(scope="module")
def runtime() -> Iterator[None]:
    """A Ray runtime of two logical CPUs."""
    with local_ray():
        yield


@ray.remote(num_cpus=0, max_calls=1, max_retries=0)
def _train(
    settings: Settings, name: str, workers: int, shuffled: bool = False, learning_rate: float = 2e-3,
    epochs: int = 12, where: StorageAddress | None = None, folder: Path | None = None,
) -> Any:  # fmt: skip
    from models.network.training import TrainingConfig
    from services.learn.training.trainer import TrainPlan, train

    spec = forecast_spec(settings)
    files = History(settings.storage_folder, spec.channels, settings.stream.step_s).files()
    found = dataset.describe(files, 0, 2**53)
    rows = dataset.read(files[::-1] if shuffled else files, spec.channels, found)
    plan = TrainPlan(
        name=name, folder=str(folder or settings.storage_folder / "train"), where=where, spec=spec,
        config=TrainingConfig(epochs=epochs, max_windows=2000, learning_rate=learning_rate),
        places={zone: place_of(settings, zone.split("/")[0]) for zone in found.rows},
        cut_ms=found.to_ms, shares=dataset.share_out(found.rows, workers), workers=workers, use_gpu=False,
    )  # fmt: skip
    result = train(rows, plan)
    kept = sorted(map(str, (settings.storage_folder / "train").rglob("*.safetensors")))
    return result.state, [epoch.loss for epoch in result.history], kept


@pytest.mark.s3
@pytest.mark.parametrize("small_bytes", [dataset.SMALL_BYTES, 0], ids=["read in place", "read by tasks"])
def test_a_bucket_streams_what_a_folder_does(
    settings: Settings, runtime: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small_bytes: int
) -> None:
    """The same rows, bit for bit, where the tables are objects that each task fetches."""
    monkeypatch.setattr(dataset, "SMALL_BYTES", small_bytes)
    where, spec = s3_address(tmp_path), forecast_spec(settings)
    there = open_storage(where)
    folder = History(settings.storage_folder, spec.channels, settings.stream.step_s)
    root = settings.storage_folder
    for file in (root / ZONE_ROWS.folder).rglob("[!.]*.*"):
        there.put(str(file.relative_to(root)), file.read_bytes())
    found = []
    for history, address in ((folder, None), (History(there, spec.channels, settings.stream.step_s), where)):
        files = history.files()
        assert len(files) > 1
        newest = max(found_ms for found_ms in set(history.read()["end_ms"].to_pylist()))
        chosen = dataset.describe(files, 0, newest - 86_400_000, address)  # the last file has no row of it
        stream = dataset.read(files, spec.channels, chosen, address)
        rows = dataset.collect(stream.iter_batches(batch_format="pyarrow"), spec.channels, ["demo/z1", "demo/z2"])
        found.append((rows.end_ms.tolist(), rows.values.tobytes()))
    assert found[0] == found[1]
    assert found[0][0]


@pytest.mark.parametrize("small_bytes", [dataset.SMALL_BYTES, 0], ids=["read in place", "read by tasks"])
def test_stream_gives_every_row_once(
    settings: Settings, runtime: None, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    """What Ray Data streams is the history of the range, row for row and bit for bit."""
    monkeypatch.setattr(dataset, "SMALL_BYTES", small_bytes)
    spec = forecast_spec(settings)
    history = History(settings.storage_folder, spec.channels, settings.stream.step_s)
    whole = history.read()
    ends = sorted(set(whole["end_ms"].to_pylist()))
    after, to = ends[10], ends[-10]
    stream = dataset.read(history.files(), spec.channels, dataset.describe(history.files(), after, to))
    rows = dataset.collect(
        stream.iter_batches(batch_format="pyarrow", batch_size=100), spec.channels, ["demo/z1", "demo/z2"]
    )
    expected = history.read(after, to)
    assert rows.end_ms.tolist() == expected["end_ms"].to_pylist()
    columns = np.stack([expected[name].to_numpy() for name in spec.channels], axis=1)
    assert rows.values.tobytes() == columns.tobytes()


@pytest.mark.parametrize("small_bytes", [dataset.SMALL_BYTES, 0], ids=["read in place", "read by tasks"])
def test_a_file_may_lack_columns_of_another(
    runtime: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small_bytes: int
) -> None:
    """Rows of a release that did not know a channel yet: it is missing there, and only there."""
    monkeypatch.setattr(dataset, "SMALL_BYTES", small_bytes)
    keys = {"site": ["s"], "zone": ["z"]}
    old, new = {"air_temp_c": [18.0]}, {"air_temp_c": [19.0], "co2_ppm": [600.0]}
    files = [str(tmp_path / f"{number}.parquet") for number in range(2)]
    for number, (file, values) in enumerate(zip(files, (old, new), strict=True)):
        frame = pd.DataFrame({**keys, "end_ms": [number + 1], **values})
        frame.astype(dict.fromkeys(values, "float32")).to_parquet(file)
    channels = ("air_temp_c", "co2_ppm")
    stream = dataset.read(files, channels, dataset.describe(files, 0, 2))
    rows = dataset.collect(stream.iter_batches(batch_format="pyarrow"), channels, ["s/z"])
    np.testing.assert_array_equal(rows.values, np.array([[18.0, np.nan], [19.0, 600.0]], np.float32))


@pytest.mark.long
def test_equal_history_gives_equal_weights(settings: Settings, runtime: None) -> None:
    """Two trainings on the same rows, read in another order, end in the same weights, bit for bit."""
    one, losses, _ = ray.get(_train.remote(settings, "one", workers=0))
    two, _, _ = ray.get(_train.remote(settings, "two", workers=0, shuffled=True))
    assert sorted(one) == sorted(two)
    assert all(one[name].tobytes() == two[name].tobytes() for name in one)
    assert losses[-1] < losses[0]


@pytest.mark.slow
@pytest.mark.long
def test_two_workers_share_the_zones_and_keep_a_checkpoint(settings: Settings, runtime: None) -> None:
    """Two Ray Train workers with a zone each train one network; the storage keeps one checkpoint of safetensors."""
    state, losses, kept = ray.get(_train.remote(settings, "shared", workers=2))
    assert losses[-1] < losses[0]
    assert all(np.isfinite(array).all() for array in state.values())
    assert sum("shared" in path for path in kept) == 1


@pytest.mark.slow
@pytest.mark.long
def test_a_worker_whose_sensors_are_dead_changes_nothing(runtime: None, tmp_path: Path) -> None:
    """The first of two workers has a zone without a value: scales, days and weights are those of a training in one
    process, which has nothing but the other zone to train on.
    """
    settings = small_settings(tmp_path)
    write_history(settings, days=5, dead=("z1",))
    shared, losses, _ = ray.get(_train.remote(settings, "shared", workers=2))
    alone, of_one, _ = ray.get(_train.remote(settings, "alone", workers=0))
    assert losses == pytest.approx(of_one, rel=1e-3)
    assert all(np.array_equal(shared[name], alone[name]) for name in ("spread", "residual", "trust"))
    assert all(np.allclose(shared[name], alone[name], rtol=1e-3, atol=1e-4) for name in alone)


@pytest.mark.s3
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_a_training_goes_on_from_a_bucket_on_another_machine(
    settings: Settings, runtime: None, tmp_path: Path, workers: int
) -> None:
    """Without the disk of the first: from the newest epoch in the bucket. Nothing of it is in a folder."""
    where = s3_address(tmp_path)
    first, losses = (
        ray.get(_train.remote(settings, "lost", workers, epochs=epochs, where=where, folder=tmp_path / machine))[1]
        for machine, epochs in (("a", 2), ("b", 5))
    )
    assert (len(first), len(losses)) == (2, 5)
    assert losses[:2] == first
    assert not list(tmp_path.rglob("*.safetensors"))


def test_failed_training_is_one_sentence(settings: Settings, runtime: None) -> None:
    """A training whose loop raises becomes a TrainingError that gives the loop's own reason."""
    with pytest.raises(ray.exceptions.RayTaskError) as raised:
        ray.get(_train.remote(settings, "bad", workers=0, learning_rate=float("nan")))
    assert isinstance(raised.value.cause, TrainingError)
    assert "learning rate: nan" in raised.value.cause.message


def test_old_training_folders_go(tmp_path: Path) -> None:
    """Only the newest folders of trainings stay, the coming one included, which is there where it goes on."""
    from services.learn.training.kept_runs import KEPT_RUNS, KeptRuns

    for name in "abcde":
        (tmp_path / name).mkdir()
    KeptRuns(tmp_path).forget_old("a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", *"abcde"[-(KEPT_RUNS - 1) :]]
    KeptRuns(tmp_path).forget_old("f")
    assert sorted(path.name for path in tmp_path.iterdir()) == list("abcde"[-(KEPT_RUNS - 1) :])
