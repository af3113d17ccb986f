"""A system's state in one file, made while it runs, and brought back where there is none.

The order makes it the state of a crash: first the snapshots, then what they are ahead of no more (tables, journals,
models), last the log. Whoever starts on it reads the log from the snapshots on, as after a crash. The file is a tar;
its last member, ``backup.json``, names every other one with its SHA-256, so that half a file is seen to be one.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge.log import Log, LogError
from edge.log.open_log import check_records
from services.errors import BackupError, NotStoredError
from services.store.files import leads_inside, write_atomically
from services.store.storage import Storage

__all__ = ["LOG", "RESTORING", "Backup", "Sources", "check_log_of", "read_backup", "restore", "write_backup"]

FORMAT, INDEX = 1, "backup.json"
STORAGE, DATA = "storage/", "data/"
RESTORING = "restoring"
"""Stands in the storage while a backup is brought back: nothing starts on half of it."""
LOG, _DATABASE = "log.sqlite", ".sqlite"
_CHECKED = ".restore-"
"""Begins the name of a folder in which copies of databases are checked."""
PASSES = 20
_PIECE = 1 << 20
_FIRST = "snapshots"
_OWN = frozenset({"owner", "installation", "mlflow", RESTORING})
"""Of this installation, or local: ``mlflow`` is among the files."""
_HINTS = frozenset({"_last_checkpoint"})
"""May name a checkpoint that came after the list; readers do without."""
_BESIDE_DATABASES = ("-wal", "-journal")
"""SQLite writes what it finds there into the database beside it, be it of another one that was moved away."""
_SNAPSHOT = re.compile(r"p(\d+)-(\d+)\.snapshot")

Progress = Callable[[int, int], None]
"""Is told how many members and bytes there are by now."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What is kept: the storage, files beside it by their name in the data folder, and SQLite databases likewise.

    ``files`` is asked once the databases are copied, which name some of them.
    """

    storage: Storage
    files: Callable[[], Mapping[str, Path]] = dict
    databases: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup says of itself; ``members`` are names with their SHA-256."""

    about: Mapping[str, Any]
    members: Mapping[str, str]


class _DamagedError(Exception):
    """A database is not what was written."""


class _Archive:
    """The tar that is written; a name that comes again takes the place of the one before."""

    def __init__(self, tar: tarfile.TarFile, progress: Progress) -> None:
        self.members: dict[str, str] = {}
        self._tar, self._progress, self._bytes = tar, progress, 0

    def add(self, name: str, content: bytes) -> None:
        self._add(name, io.BytesIO(content), len(content), hashlib.sha256(content).hexdigest())

    def add_file(self, name: str, path: Path) -> None:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            self._add(name, file, size, digest)

    def _add(self, name: str, file: Any, size: int, digest: str) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = size, 0o600
        self._tar.addfile(info, file)
        self.members[name] = digest
        self._bytes += size
        self._progress(len(self.members), self._bytes)


def write_backup(out: Path, sources: Sources, about: Mapping[str, Any], progress: Progress) -> Backup:
    """Write a backup to ``out``, readable by its owner only; whole or not at all. The system may run meanwhile.

    Raises :class:`BackupError` where the state changes faster than it is copied, ``OSError`` where a disk or the
    storage does not do it.
    """
    made = list[Backup]()

    def fill(beside: Path) -> None:
        beside.touch(mode=0o600)
        with tarfile.open(beside, "w") as tar:
            archive = _Archive(tar, progress)
            _copy(sources, archive, out.parent)
            made.append(Backup({"format": FORMAT, **about}, dict(archive.members)))
            archive.add(INDEX, json.dumps({**made[-1].about, "members": archive.members}).encode())

    write_atomically(out, fill)
    return made[-1]


def _copy(sources: Sources, archive: _Archive, beside: Path) -> None:
    storage, versions = sources.storage, dict[str, str]()
    _copy_folder(storage, _FIRST, archive, versions)
    snapshots = [key for key in versions if key.startswith(f"{_FIRST}/")]
    for name, path in sources.databases.items():  # the registry before the models that it names
        if name != LOG:
            _copy_database(name, path, archive, beside)
    top = storage.list_folder("")
    for name in top.names:
        if name not in _OWN:
            _copy_object(storage, name, archive, versions)
    for folder in top.folders:
        if folder not in _OWN | {_FIRST}:
            _copy_folder(storage, folder, archive, versions)
    for name, path in sources.files().items():
        with suppress(FileNotFoundError):  # of a model that was removed meanwhile
            archive.add_file(DATA + name, path)
    if LOG in sources.databases:
        _copy_database(LOG, sources.databases[LOG], archive, beside, lambda log: _check_log(log, snapshots))


def _copy_folder(storage: Storage, folder: str, archive: _Archive, versions: dict[str, str]) -> None:
    """All of a folder as of one list: where something has gone meanwhile, what took its place is copied, too."""
    for _ in range(PASSES):
        found = [_copy_object(storage, key, archive, versions) for key in _keys(storage, folder)]
        if all(found):
            return
    raise BackupError(f"{folder} changes faster than it can be copied", "Run the backup again, nearer to the storage.")


def _keys(storage: Storage, folder: str) -> Iterator[str]:
    """A table's log comes before its files: each file that the log names is there for hours after it was replaced.

    Names are listed once more after the folders beside them: parts in a folder become a file beside it meanwhile.
    """
    found = storage.list_folder(folder)
    first = [one for one in found.folders if one.startswith("_")]
    for one in first:
        yield from _keys(storage, f"{folder}/{one}")
    yield from (f"{folder}/{name}" for name in found.names if name not in _HINTS)
    others = [one for one in found.folders if one not in first]
    for one in others:
        yield from _keys(storage, f"{folder}/{one}")
    if others:
        yield from (f"{folder}/{name}" for name in storage.list_folder(folder).names if name not in _HINTS)


def _copy_object(storage: Storage, key: str, archive: _Archive, versions: dict[str, str]) -> bool:
    """Whether it was there."""
    if key in versions and (entry := storage.entry(key)) is not None and entry.version == versions[key]:
        return True
    try:
        stored = storage.read(key)
    except NotStoredError:
        return False
    archive.add(STORAGE + key, stored.content)
    versions[key] = stored.version
    return True


def _copy_database(
    name: str, path: Path, archive: _Archive, beside: Path, check: Callable[[sqlite3.Connection], None] | None = None
) -> None:
    """As of one moment, while others write: in one step, which holds up no writer of a log written ahead."""
    with tempfile.TemporaryDirectory(prefix=".backup-", dir=beside) as folder:
        copy = Path(folder) / name
        try:
            source = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=60)
            with closing(source), closing(sqlite3.connect(copy)) as target:
                source.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
                if check is not None:
                    check(target)
            _check_sound(copy)
        except _DamagedError as error:
            raise BackupError(
                f"the database {path} is damaged: {error}",
                "No file was written, and earlier backups stay as they are: keep the newest. Look at the disk.",
            ) from error
        except sqlite3.Error as error:  # held by another program for minutes, damaged, or another program's
            raise BackupError(
                f"the database {path} cannot be copied: {error}",
                "Close what else has it open, and run the backup again; a damaged one is to be brought back first.",
            ) from error
        archive.add_file(DATA + name, copy)


def _check_sound(database: Path) -> None:
    """That a copy hangs together, and of the log each record is as it was written. Raises :class:`_DamagedError`."""
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as db:
            said = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if said != "ok":
            raise _DamagedError(" ".join(said.removeprefix("*** in database main ***").split()))
        if database.name == LOG:
            check_records(database)
    except (sqlite3.DatabaseError, LogError) as error:
        raise _DamagedError(str(error)) from error


def _check_log(log: sqlite3.Connection, snapshots: list[str]) -> None:
    """The log has what comes after the newest snapshot of each partition."""
    heads = {number: (begin, end) for number, begin, end in
             log.execute("SELECT partition, begin_offset, end_offset FROM heads")}  # fmt: skip
    for partition, offset in _newest_offsets(snapshots).items():
        begin, end = heads.get(partition, (0, 0))
        if not begin <= offset <= end:
            raise BackupError(
                f"the log of partition {partition} has records {begin} to {end}, its snapshot goes on at {offset}",
                "Run the backup again; if it says this again, is the log that of this storage?",
            )


def _newest_offsets(keys: Iterable[str]) -> dict[int, int]:
    """Partition -> offset at which its newest snapshot goes on."""
    newest = dict[int, int]()
    for key in keys:
        if found := _SNAPSHOT.search(key):
            partition, offset = map(int, found.groups())
            newest[partition] = max(newest.get(partition, 0), offset)
    return newest


def check_log_of(backup: Backup, log: Log) -> None:
    """That a log which is not in the backup is the one of before, or goes on from it.

    Raises :class:`BackupError` for one that ends before a snapshot: nobody would read what comes to it.
    """
    for partition, offset in _newest_offsets(backup.members).items():
        if (end := log.end_offset(partition)) < offset:
            raise BackupError(
                f"partition {partition} of the log ends at {end}, its snapshot goes on at {offset}: it is another log",
                "Bring the topic back with its offsets, or name the one of before.",
            )


def read_backup(path: Path) -> Backup:
    """What a backup says of itself, after every byte of it was looked at. Raises :class:`BackupError`."""
    found, text = dict[str, str](), b""
    try:
        with tarfile.open(path, "r:") as tar:
            for member, file in _members(tar):
                if member == INDEX:
                    text = file.read()
                else:
                    found[member] = _digest(file)
        said = json.loads(text)
        members = said.pop("members")
    except (tarfile.TarError, ValueError, KeyError, EOFError) as error:
        raise BackupError(f"{path} is no whole backup: {error}", "Take another copy of it.") from error
    except OSError as error:
        raise BackupError(f"{path} cannot be read: {error.strerror or error}") from error
    if said.get("format") != FORMAT:
        raise BackupError(f"{path} has format {said.get('format')}, this version reads {FORMAT}", "Update Hothouse.")
    if wrong := [name for name in {*members, *found} if members.get(name) != found.get(name)]:
        raise BackupError(f"{path} is damaged: {sorted(wrong)[0]} is not what was written", "Take another copy of it.")
    return Backup(said, members)


def _members(tar: tarfile.TarFile) -> Iterator[tuple[str, Any]]:
    """Names and contents; refused are a name that could lead elsewhere, what is no file (links, devices), and a file
    with holes, of which a few bytes may stand for terabytes.
    """
    for info in tar:
        inside = info.name == INDEX or (info.name.startswith((STORAGE, DATA)) and leads_inside(info.name))
        if not info.isreg() or info.issparse() or not inside:
            raise tarfile.TarError(f"{info.name!r} is none of its parts")
        file = tar.extractfile(info)
        assert file is not None  # a regular file
        yield info.name, file


def _digest(file: Any) -> str:
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
    return digest.hexdigest()


def restore(
    path: Path, storage: Storage, data_dir: Path, progress: Progress,
    accept: Callable[[Backup], None] = lambda backup: None,
) -> Backup:  # fmt: skip
    """Bring a backup back into an empty storage and data folder, whose lock the caller holds; the log comes last.

    ``accept`` is told what the file says of itself, and raises what keeps it from being brought back here. Raises
    :class:`BackupError` for a file that is no whole backup, and where something is there already.
    """
    backup = read_backup(path)
    accept(backup)
    there = storage.list_folder("")
    has = {*there.folders, *there.names} - _OWN
    files = {LOG, *(name.removeprefix(DATA) for name in backup.members if name.startswith(DATA))}
    files |= {name + end for name in files for end in _BESIDE_DATABASES}
    if has := has | {name for name in files if (data_dir / name).exists()}:
        raise BackupError(
            f"there already, in {storage.url} or {data_dir}: {', '.join(sorted(has))}",
            "Restore into an empty data folder and storage: move away what is there.",
        )
    _check_databases(path, data_dir)
    storage.put(RESTORING, b"")
    done, size = set[str](), 0
    with tarfile.open(path, "r:") as tar:
        for name, file in _members(tar):
            if name == INDEX:
                continue
            if name.startswith(STORAGE):
                content = file.read()
                storage.put(name.removeprefix(STORAGE), content)
                size += len(content)
            else:
                size += _put_file(data_dir / name.removeprefix(DATA), file)
            done.add(name)
            progress(len(done), size)
    storage.delete(RESTORING)
    return backup


def _check_databases(path: Path, data_dir: Path) -> None:
    """Before anything is written: an earlier release may have copied a damaged one."""
    data_dir.mkdir(parents=True, exist_ok=True)
    for left in data_dir.glob(f"{_CHECKED}*"):  # by a restore that was killed
        shutil.rmtree(left)
    with tarfile.open(path, "r:") as tar, tempfile.TemporaryDirectory(prefix=_CHECKED, dir=data_dir) as folder:
        for name, file in _members(tar):
            if name.startswith(DATA) and name.endswith(_DATABASE):
                copy = Path(folder) / Path(name).name
                with copy.open("wb") as target:
                    shutil.copyfileobj(file, target, _PIECE)
                try:
                    _check_sound(copy)
                except _DamagedError as error:
                    raise BackupError(
                        f"in {path} the database {copy.name} is damaged: {error}",
                        "Nothing was written: bring an earlier backup back.",
                    ) from error


def _put_file(path: Path, file: Any) -> int:
    def fill(beside: Path) -> None:
        beside.touch(mode=0o600)
        with beside.open("wb") as target:
            while piece := file.read(_PIECE):
                target.write(piece)

    write_atomically(path, fill)
    return path.stat().st_size
