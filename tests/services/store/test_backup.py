"""A backup is made while a system writes, and what is brought back goes on as if nothing had happened."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from edge.log import NewRecord
from edge.log.memory import MemoryLog
from edge.log.sqlite import SqliteLog
from services.app import System
from services.cli import app
from services.config import load_settings
from services.errors import BackupError, StartError
from services.store import backup
from services.store.backup import RESTORING, Sources, check_log_of, read_backup, restore, write_backup
from services.store.storage import FolderStorage
from tests.services.ingest.data_folder import END, POWER_CUT, after
from tests.services.ingest.first_release import later, unpacked
from tests.services.store.backups import folder_of, quiet


def hothouse(*arguments: object) -> Result:
    """A command."""
    return CliRunner().invoke(app, [str(one) for one in arguments])


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
