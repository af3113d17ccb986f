"""A training that is under way is kept where its next machine finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.network.progress import ProgressError
from services.errors import StorageAwayError
from services.learn.training import kept_runs
from services.learn.training.kept_runs import KEPT_RUNS, KeptRuns
from services.store.storage import MemoryServer, ObjectStorage, StorageAddress
from tests.services.learn.training.progresses import progress


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> ObjectStorage:
    """What every address opens."""
    storage = ObjectStorage(MemoryServer())
    monkeypatch.setattr(kept_runs, "open_storage", lambda address: storage)
    return storage


def runs(folder: Path) -> KeptRuns:
    """Those of a machine."""
    return KeptRuns(folder, StorageAddress(url="s3://bucket"))


def test_another_machine_goes_on(tmp_path: Path, bucket: ObjectStorage) -> None:
    """From the newest epoch that was kept; a training of another name from its beginning."""
    first, second = runs(tmp_path / "a"), runs(tmp_path / "b")
    assert second.kept("one") is None
    for epochs in (1, 2):
        first.keep("one", progress(epochs))
    found = second.kept("one")
    assert found is not None
    assert found.history == progress(2).history
    assert found.state["weight"].tolist() == [0, 1]
    assert second.kept("two") is None


def test_a_bucket_that_is_away_stops_no_training(
    tmp_path: Path, bucket: ObjectStorage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told; what was kept before holds. Damaged progress is an error, not a beginning."""
    runs(tmp_path).keep("one", progress(1))

    def away(*_: object) -> str:
        raise StorageAwayError("the bucket is away")

    with monkeypatch.context() as patch:
        patch.setattr(bucket, "put", away)
        runs(tmp_path).keep("one", progress(2))
    assert "an epoch of one is not kept: the bucket is away" in caplog.text
    found = runs(tmp_path).kept("one")
    assert found is not None
    assert len(found.history) == 1
    bucket.put("train/one/progress.safetensors", b"nonsense")
    with pytest.raises(ProgressError):
        runs(tmp_path).kept("one")


def test_the_newest_trainings_stay(tmp_path: Path, bucket: ObjectStorage) -> None:
    """In the bucket as in the folder of the machine; the coming one is one of them."""
    for name in "abcde":
        runs(tmp_path).keep(name, progress(1))
        (tmp_path / name).mkdir()
    runs(tmp_path).forget_old("a")
    kept = ["a", *"abcde"[-(KEPT_RUNS - 1) :]]
    assert sorted(path.name for path in tmp_path.iterdir()) == kept
    assert [name for name in "abcde" if runs(tmp_path).kept(name)] == kept
