"""A backup of a storage that changes while it is copied."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from services.cli.history.backup_commands import _files
from services.config import load_settings
from services.errors import BackupError, NotStoredError
from services.store.backup import RESTORING, Sources, restore, write_backup
from services.store.storage import FolderListing, FolderStorage, Storage, Stored
from tests.services.store.backups import bucket_of, folder_of, quiet


class Moving:
    """A storage in which a snapshot goes and another comes, so many times, each time it is asked for."""

    def __init__(self, storage: Storage, times: int) -> None:
        self._storage, self._left, self._number = storage, times, 0
        storage.put("snapshots/p0-0.snapshot", b"0")

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)

    def read(self, key: str) -> Stored:
        """Gone when it is read."""
        if key.startswith("snapshots/") and self._left:
            self._left -= 1
            self._storage.delete(f"snapshots/p0-{self._number}.snapshot")
            self._number += 1
            self._storage.put(f"snapshots/p0-{self._number}.snapshot", str(self._number).encode())
            raise NotStoredError(f"{key} is gone")
        return self._storage.read(key)


@pytest.mark.parametrize("of", [folder_of, bucket_of])
def test_what_goes_while_it_is_copied(tmp_path: Path, of: Callable[[Path], Storage]) -> None:
    """What took its place is copied; the table's log comes before the files that it names."""
    storage = Moving(of(tmp_path), 5)
    for key in ("history/t/part-1", "history/t/_delta_log/0.json", "history/t/_delta_log/_last_checkpoint", "top.json"):
        storage.put(key, key.encode())
    storage.put("owner/1", b"not this")
    made = write_backup(tmp_path / "b.tar", Sources(storage), {"log": "sqlite"}, quiet)
    assert list(made.members) == [
        "storage/snapshots/p0-5.snapshot", "storage/top.json", "storage/history/t/_delta_log/0.json",
        "storage/history/t/part-1",
    ]  # fmt: skip
    new = of(tmp_path / "new")
    restore(tmp_path / "b.tar", new, tmp_path / "data", quiet)
    assert new.read("snapshots/p0-5.snapshot").content == b"5"
    assert new.read("history/t/part-1").content == b"history/t/part-1"
    assert new.entry(RESTORING) is None


class Interrupted(FolderStorage):
    """Does something once, while the snapshots are copied."""

    def __init__(self, root: Path, work: Callable[[], object]) -> None:
        super().__init__(root)
        self._work = [work]

    def read(self, key: str) -> Stored:
        """Work, then read."""
        if key.startswith("snapshots/") and self._work:
            self._work.pop()()
        return super().read(key)


@pytest.mark.parametrize("before", [True, False], ids=["a day has a file already", "it has none"])
def test_a_day_that_is_merged_while_it_is_copied(tmp_path: Path, before: bool) -> None:
    """Parts that become the file of their day after its folder's neighbours were listed are in the backup."""

    class Merging(FolderStorage):
        def list_folder(self, folder: str) -> FolderListing:
            """Merge the day when its folder is asked for."""
            if folder.endswith("/2026-03-01") and (part := self.root / folder / "p0-1.parquet").exists():
                part.rename(self.root / "history/forecasts/2026-03-01-p0.parquet")
            return super().list_folder(folder)

    storage = Merging(tmp_path / "storage")
    storage.put("snapshots/p0-1.snapshot", b"")
    storage.put("history/forecasts/2026-03-01/p0-1.parquet", b"said")
    storage.put("history/forecasts/2026-02-28-p0.parquet", b"said before")
    if before:
        storage.put("history/forecasts/2026-03-01-p0.parquet", b"the day so far")
    write_backup(tmp_path / "b.tar", Sources(storage), {"log": "sqlite"}, quiet)
    new = FolderStorage(tmp_path / "new")
    restore(tmp_path / "b.tar", new, tmp_path / "data", quiet)
    said = {name: new.read(f"history/forecasts/{name}").content for name in new.list_folder("history/forecasts").names}
    assert said == {"2026-02-28-p0.parquet": b"said before", "2026-03-01-p0.parquet": b"said"}


def test_models_come_and_go_while_it_is_copied(tmp_path: Path) -> None:
    """What the copy of the registry names is there with its files; files that go end nothing."""
    settings = load_settings(data_dir=tmp_path)
    models, registry = settings.storage_folder / "mlflow", tmp_path / "mlflow.sqlite"
    for name in ("snapshots/p0-1.snapshot", "mlflow/old/candidate.json"):
        (settings.storage_folder / name).parent.mkdir(parents=True)
        (settings.storage_folder / name).touch()
    sqlite3.connect(registry).execute("CREATE TABLE versions (name)").connection.close()

    def work() -> None:
        shutil.rmtree(models / "old")
        (models / "new").mkdir()
        (models / "new" / "candidate.json").touch()

    storage = Interrupted(settings.storage_folder, work)
    sources = Sources(storage, partial(_files, settings), {"mlflow.sqlite": registry})
    made = write_backup(tmp_path / "b.tar", sources, {}, quiet)
    assert [name for name in made.members if "mlflow/" in name] == ["data/storage/mlflow/new/candidate.json"]
    gone = {"data/gone": tmp_path / "gone"}
    assert "data/gone" not in write_backup(tmp_path / "c.tar", Sources(storage, lambda: gone), {}, quiet).members


def test_ctrl_c_leaves_nothing_of_it(tmp_path: Path) -> None:
    """Half a backup, under a hidden name that no later one has, would fill the disk for ever."""

    def stop() -> None:
        raise KeyboardInterrupt

    (tmp_path / "storage" / "snapshots").mkdir(parents=True)
    (tmp_path / "storage" / "snapshots" / "p0-1.snapshot").touch()
    with pytest.raises(KeyboardInterrupt):
        write_backup(tmp_path / "out" / "b.tar", Sources(Interrupted(tmp_path / "storage", stop)), {}, quiet)
    assert list((tmp_path / "out").iterdir()) == []


def test_what_never_rests_is_told(tmp_path: Path) -> None:
    """No file is left where the state could not be copied."""
    storage = Moving(folder_of(tmp_path), 1000)
    with pytest.raises(BackupError, match="snapshots changes faster"):
        write_backup(tmp_path / "b.tar", Sources(storage), {}, quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["storage"]


def test_a_database_is_copied_while_it_is_written(tmp_path: Path) -> None:
    """What was committed is there, also what lies beside the file; what was not is not."""
    db = sqlite3.connect(tmp_path / "mlflow.sqlite", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE t (x)")
    db.execute("INSERT INTO t VALUES (1)")
    db.execute("BEGIN")
    db.execute("INSERT INTO t VALUES (2)")
    files = {"mlflow.sqlite": tmp_path / "mlflow.sqlite"}
    write_backup(tmp_path / "b.tar", Sources(folder_of(tmp_path), databases=files), {}, quiet)
    db.close()
    restore(tmp_path / "b.tar", folder_of(tmp_path / "new"), tmp_path / "new", quiet)
    assert sqlite3.connect(tmp_path / "new" / "mlflow.sqlite").execute("SELECT x FROM t").fetchall() == [(1,)]
