"""A backup is made while a system writes, and what is brought back goes on as if nothing had happened."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from edge.log import NewRecord
from edge.log.memory import MemoryLog
from edge.log.sqlite import SqliteLog
from services.app import System
from services.cli import app
from services.cli.history.backup_commands import _files
from services.config import load_settings
from services.errors import BackupError, NotStoredError, StartError
from services.store import backup
from services.store.backup import INDEX, RESTORING, Sources, check_log_of, read_backup, restore, write_backup
from services.store.storage import FolderListing, FolderStorage, MemoryServer, ObjectStorage, Storage, Stored
from tests.services.ingest.data_folder import END, POWER_CUT, after
from tests.services.ingest.test_data_folder import later, unpacked


def quiet(_count: int, _size: int) -> None:
    """Nobody looks at the progress."""


def hothouse(*arguments: object) -> Result:
    """A command."""
    return CliRunner().invoke(app, [str(one) for one in arguments])


def folder_of(root: Path) -> Storage:
    """The folder."""
    return FolderStorage(root / "storage")


def bucket_of(_root: Path) -> Storage:
    """The bucket."""
    return ObjectStorage(MemoryServer())


@pytest.fixture(scope="module")
def backed_up(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A data folder and its backup, which was made while a shard held it."""
    root = tmp_path_factory.mktemp("backed")
    shard, _, log = after(unpacked(root / "data"), range(POWER_CUT, END))
    (root / "data" / "keys.json").write_text('{"of": "keys"}')
    (root / "data" / "operator.key").write_text("a secret")
    try:
        made = hothouse("--data-dir", root / "data", "backup", root / "monday.tar")
    finally:
        shard.close()
        log.close()
    assert made.exit_code == 0, made.output
    return root / "data", root / "monday.tar"


def test_what_is_restored_forecasts_the_same(backed_up: tuple[Path, Path], tmp_path: Path) -> None:
    """Everything is deleted and brought back: what comes next is forecast as it would have been."""
    data, file = backed_up
    expected, _ = later(shutil.copytree(data, tmp_path / "undisturbed"))
    done = hothouse("--data-dir", tmp_path / "new", "restore", file)
    assert done.exit_code == 0, done.output
    assert later(tmp_path / "new") == (expected, "")
    assert expected
    assert (tmp_path / "new" / "keys.json").read_text() == '{"of": "keys"}'


def test_no_secret_is_in_it(backed_up: tuple[Path, Path]) -> None:
    """Neither the operator's key nor whose installation it is; and the file is its owner's alone."""
    _, file = backed_up
    names = set(read_backup(file).members)
    assert not {"data/operator.key", "data/ray.token", "storage/installation"} & names
    assert not [name for name in names if "/owner/" in name]
    assert file.stat().st_mode & 0o077 == 0
    assert b"a secret" not in file.read_bytes()


def test_it_goes_into_an_empty_place_only(backed_up: tuple[Path, Path], tmp_path: Path) -> None:
    """What is there is not written over, in one sentence; nor is a backup."""
    data, file = backed_up
    refused = hothouse("--data-dir", data, "restore", file)
    assert refused.exit_code == 1
    assert "log.sqlite" in refused.output
    assert "snapshots" in refused.output
    (tmp_path / "keys.json").write_text("made since")
    refused = hothouse("--data-dir", tmp_path, "restore", file)
    assert (refused.exit_code, "there already" in refused.output, "keys.json" in refused.output) == (1, True, True)
    assert (tmp_path / "keys.json").read_text() == "made since"
    assert not (tmp_path / "storage" / "snapshots").exists()
    again = hothouse("--data-dir", data, "backup", file)
    assert again.exit_code == 1
    assert "is there already" in again.output


def test_what_belongs_to_an_earlier_log_is_not_taken_for_the_restored_one(
    backed_up: tuple[Path, Path], tmp_path: Path
) -> None:
    """Where the log was moved away without its write-ahead log, SQLite would write that into the one brought back."""
    _, file = backed_up
    (tmp_path / "log.sqlite-wal").write_bytes(b"frames of another file")
    refused = hothouse("--data-dir", tmp_path, "restore", file)
    assert (refused.exit_code, "log.sqlite-wal" in refused.output) == (1, True), refused.output
    assert not (tmp_path / "log.sqlite").exists()


def test_an_empty_folder_has_no_backup(tmp_path: Path) -> None:
    """A wrong --data-dir is told, and leaves no file."""
    refused = hothouse("--data-dir", tmp_path / "none", "backup", tmp_path / "b.tar")
    assert refused.exit_code == 1
    assert "holds no state" in refused.output
    assert not (tmp_path / "b.tar").exists()


def test_settings_must_be_those_of_before(backed_up: tuple[Path, Path], tmp_path: Path) -> None:
    """With a log on Kafka what the file holds would not be found."""
    config = tmp_path / "hothouse.toml"
    config.write_text('[log]\nkind = "kafka"\n[kafka]\nservers = ["127.0.0.1:9"]\n')
    refused = hothouse("--config", config, "--data-dir", tmp_path / "new", "restore", backed_up[1])
    assert refused.exit_code == 1, refused.output
    assert "another log.kind" in refused.output


def damaged(file: Path, to: Path, change: Callable[[bytearray], bytearray]) -> Path:
    """A copy with other bytes."""
    to.write_bytes(change(bytearray(file.read_bytes())))
    return to


def flipped(content: bytearray) -> bytearray:
    """One byte of the first member's content."""
    content[700] ^= 1
    return content


@pytest.mark.parametrize(
    "change", [flipped, lambda content: content[: len(content) // 2], lambda _: bytearray(b"nothing")],
    ids=["a byte", "half of it", "no tar"],
)  # fmt: skip
def test_a_damaged_backup_writes_nothing(
    backed_up: tuple[Path, Path], tmp_path: Path, change: Callable[[bytearray], bytearray]
) -> None:
    """Every byte is looked at before the first is written."""
    file = damaged(backed_up[1], tmp_path / "b.tar", change)
    with pytest.raises(BackupError, match=r"damaged|no whole backup"):
        restore(file, FolderStorage(tmp_path / "storage"), tmp_path, quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar"]


def forged(to: Path, info: tarfile.TarInfo) -> Path:
    """A backup whose index fits, with a member that no backup has."""
    info.size = 1 if info.isreg() else 0
    members = {info.name: hashlib.sha256(b"x").hexdigest()}
    index = json.dumps({"format": 1, "made": "now", "log": "sqlite", "bucket": False, "members": members}).encode()
    about = tarfile.TarInfo(INDEX)
    about.size = len(index)
    with tarfile.open(to, "w") as tar:
        tar.addfile(info, io.BytesIO(b"x"))
        tar.addfile(about, io.BytesIO(index))
    return to


@pytest.mark.parametrize(
    "name",
    [
        "../escaped", "data/../../escaped", "{}/escaped", "storage/x/../../../escaped", "storage/{}/escaped",
        "data/{}/escaped", "storage/x//escaped", "data/./escaped", "storage/x/", "storage/",
    ],
)  # fmt: skip
def test_a_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    """A forged file is refused whole, and what is elsewhere stays as it was."""
    (tmp_path / "escaped").write_text("of before")
    file = forged(tmp_path / "b.tar", tarfile.TarInfo(name.format(tmp_path)))
    with pytest.raises(BackupError, match="is none of its parts"):
        restore(file, FolderStorage(tmp_path / "new" / "storage"), tmp_path / "new" / "data", quiet)
    assert (tmp_path / "escaped").read_text() == "of before"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: bytes) -> None:
    """What follows a link would be written where it leads."""
    info = tarfile.TarInfo("storage/x")
    info.type, info.linkname = kind, "/etc"
    with pytest.raises(BackupError, match="'storage/x' is none of its parts"):
        restore(forged(tmp_path / "b.tar", info), FolderStorage(tmp_path / "storage"), tmp_path / "data", quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar"]


def test_a_file_with_holes_is_refused(tmp_path: Path) -> None:
    """Of 512 bytes a tar can say that they are 8 TB of zeros; nothing is read of them, and nothing is written."""
    name, size = b"storage/rows", 8 * 1024**4
    head = bytearray(tarfile.TarInfo(name.decode()).tobuf(tarfile.GNU_FORMAT))
    head[156:157] = tarfile.GNUTYPE_SPARSE
    head[483:495] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)  # type: ignore[attr-defined]
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    (tmp_path / "b.tar").write_bytes(bytes(head) + bytes(1024))
    with tarfile.open(tmp_path / "b.tar") as tar:
        assert tar.getmembers()[0].size == size
    with pytest.raises(BackupError, match="'storage/rows' is none of its parts"):
        restore(tmp_path / "b.tar", FolderStorage(tmp_path / "storage"), tmp_path / "data", quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar"]


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


def test_a_full_disk_is_told_with_what_to_do(
    backed_up: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the backup is written, and where it is brought back."""
    data, file = backed_up

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(backup, "write_backup", full)
    monkeypatch.setattr(backup, "_put_file", full)
    made = hothouse("--data-dir", data, "backup", tmp_path / "b.tar")
    assert (made.exit_code, "No space left" in made.output, "has room" in made.output) == (1, True, True)
    back = hothouse("--data-dir", tmp_path / "new", "restore", file)
    assert (back.exit_code, "No space left" in back.output, "has room" in back.output) == (1, True, True)


def test_nothing_starts_on_half_of_it(tmp_path: Path) -> None:
    """A restore that was interrupted is told by `hothouse up`."""
    folder_of(tmp_path).put(RESTORING, b"")
    with pytest.raises(StartError, match="half of a backup"), System(load_settings(data_dir=tmp_path)):
        pytest.fail("it started")


def test_what_never_rests_is_told(tmp_path: Path) -> None:
    """No file is left where the state could not be copied."""
    storage = Moving(folder_of(tmp_path), 1000)
    with pytest.raises(BackupError, match="snapshots changes faster"):
        write_backup(tmp_path / "b.tar", Sources(storage), {}, quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["storage"]


def test_a_log_that_does_not_fit_is_told(tmp_path: Path) -> None:
    """A snapshot that is ahead of the log is of another one: nothing would be read again."""
    storage = folder_of(tmp_path)
    storage.put("snapshots/p0-7.snapshot", b"")
    log = SqliteLog(tmp_path / "log.sqlite", 1)
    log.append([])
    log.close()
    with pytest.raises(BackupError, match="has records 0 to 0, its snapshot goes on at 7"):
        write_backup(tmp_path / "b.tar", Sources(storage, databases={"log.sqlite": tmp_path / "log.sqlite"}), {}, quiet)


def log_with(folder: Path, damage: Callable[[bytearray], None]) -> Path:
    """A log of some hundred pages in which bytes were changed under SQLite."""
    log = SqliteLog(folder / "log.sqlite", 1)
    log.append([NewRecord("demo", "samples", n, b"payload %05d " % n * 20) for n in range(2000)])
    log.close()
    content = bytearray((folder / "log.sqlite").read_bytes())
    damage(content)
    (folder / "log.sqlite").write_bytes(content)
    return folder / "log.sqlite"


def lost_page(content: bytearray) -> None:
    """A page of zeros in the middle, as a disk may leave it."""
    middle = len(content) // 8192 * 4096
    content[middle : middle + 4096] = bytes(4096)


def other_payload(content: bytearray) -> None:
    """One bit of a record's payload, of which SQLite knows nothing."""
    content[content.index(b"payload 01234")] ^= 1


DAMAGES = [
    pytest.param(lost_page, "database .*log.sqlite is damaged: Page [0-9]+", id="a page"),
    pytest.param(other_payload, "log.sqlite is damaged: partition 0 is damaged at offset 1234", id="a bit"),
]


@pytest.mark.parametrize(("damage", "why"), DAMAGES)
def test_a_damaged_log_is_not_backed_up(tmp_path: Path, damage: Callable[[bytearray], None], why: str) -> None:
    """It would take the place of a good backup; nothing is written, and what was made before stays."""
    (tmp_path / "data").mkdir()
    log = log_with(tmp_path / "data", damage)
    (tmp_path / "sunday.tar").write_bytes(b"a good one")
    with pytest.raises(BackupError, match=why) as told:
        write_backup(tmp_path / "b.tar", Sources(folder_of(tmp_path), databases={"log.sqlite": log}), {}, quiet)
    assert "earlier backups stay" in told.value.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "sunday.tar"]


@pytest.mark.parametrize(("damage", "why"), DAMAGES)
def test_a_damaged_log_is_not_brought_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytearray], None], why: str
) -> None:
    """Releases before copied one without a word: that is seen before anything is written."""
    (tmp_path / "data").mkdir()
    log = log_with(tmp_path / "data", damage)
    with monkeypatch.context() as earlier:
        earlier.setattr(backup, "_check_sound", lambda _: None)
        write_backup(tmp_path / "b.tar", Sources(folder_of(tmp_path), databases={"log.sqlite": log}), {}, quiet)
    new = tmp_path / "new"
    with pytest.raises(BackupError, match=why) as told:
        restore(tmp_path / "b.tar", folder_of(new), new, quiet)
    assert "bring an earlier backup back" in told.value.hint
    assert list(new.iterdir()) == []


def test_what_a_killed_restore_left_is_removed_by_the_next(backed_up: tuple[Path, Path], tmp_path: Path) -> None:
    """A copy of the log would stay on the disk for ever."""
    (left := tmp_path / "data" / ".restore-killed").mkdir(parents=True)
    (left / "log.sqlite").write_bytes(b"half of it")
    restore(backed_up[1], folder_of(tmp_path / "data"), tmp_path / "data", quiet)
    assert not left.exists()
    assert (tmp_path / "data" / "log.sqlite").exists()


def test_a_log_that_is_not_in_it_must_be_the_one_of_before(tmp_path: Path) -> None:
    """A new topic would never be read: the snapshot waits for an offset that it does not have yet."""
    storage = folder_of(tmp_path)
    storage.put("snapshots/p0-7.snapshot", b"")
    made = write_backup(tmp_path / "b.tar", Sources(storage), {"log": "kafka"}, quiet)
    log = MemoryLog(1)
    log.append([NewRecord("demo", "tick", n, b"") for n in range(6)])
    with pytest.raises(BackupError, match="partition 0 of the log ends at 6, its snapshot goes on at 7"):
        check_log_of(made, log)
    log.append([NewRecord("demo", "tick", 6, b"")])
    check_log_of(made, log)


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


def test_a_database_that_cannot_be_copied_is_named(tmp_path: Path) -> None:
    """A file that is none, and one of another program, is said to be that; it is no fault of Hothouse."""
    log = tmp_path / "data" / "log.sqlite"
    log.parent.mkdir()
    log.write_bytes(b"no database" * 1000)
    said = [hothouse("--data-dir", log.parent, "backup", tmp_path / "b.tar")]
    log.unlink()
    with sqlite3.connect(log) as other:
        other.execute("CREATE TABLE other (a)")
    other.close()
    said.append(hothouse("--data-dir", log.parent, "backup", tmp_path / "b.tar"))
    for one, why in zip(said, ("file is not a database", "no such table: heads"), strict=True):
        assert one.exit_code == 1
        words = " ".join(one.output.split())
        assert f"the database {log} cannot be copied: {why}" in words
        assert "fault" not in words
    assert [path.name for path in tmp_path.iterdir()] == ["data"], "nothing of a backup is left"
