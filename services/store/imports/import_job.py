"""Step 6 of the way of a reading: rows of a site that somebody imports, as files, and how far they have come.

``storage/imports/{id}/`` holds ``rows.parquet`` (as files of the history have them, by end and zone) and ``job.json``.
The id is made of the rows, so that the same import again is the same job. Whoever imports writes the folder whole; from
then on the shard of the site's partition alone writes ``job.json``. It goes on after any crash: what it has done once
changes nothing when it is done again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa

from services.store.files import always, sync_folder, write_atomically
from services.store.parquet import names, read_table, write_table

__all__ = ["ImportJob", "ImportNote", "ImportProgress", "new_job", "open_jobs", "progress", "words"]

DAY_MS = 86_400_000
ROWS, NOTE = "rows.parquet", "job.json"


class ImportNote(TypedDict):
    """How far an import is. ``new``: rows are being added; ``added``: learners are grown again; ``done``."""

    site: str
    zones: list[str]
    rows: int
    first_ms: int
    last_ms: int
    state: Literal["new", "added", "done"]
    days: int  # of rows, already added
    of_days: int
    added: int
    there: int  # rows that were there before
    conflicts: int  # of these, those that say something else: they stayed
    too_new: int  # rows not older than the site's newest live row: left out
    grown: list[str]  # zones whose learners know the rows
    grown_pct: int


class ImportProgress(NamedTuple):
    """One number for a bar: of 100 in all."""

    pct: float
    words: str


class ImportJob:
    """A folder of ``storage/imports``."""

    def __init__(self, folder: Path) -> None:
        self.id, self._folder = folder.name, folder

    def note(self) -> ImportNote:
        """How far it is. Raises ``OSError`` or ``ValueError`` when it cannot be read."""
        note: ImportNote = json.loads((self._folder / NOTE).read_text())
        missing = ImportNote.__annotations__.keys() - (note if isinstance(note, dict) else {}).keys()
        if missing:
            raise ValueError(f"{self._folder / NOTE} is none of this version: it lacks {', '.join(sorted(missing))}")
        return note

    def put(self, note: ImportNote, check: Callable[[], None] = always) -> None:
        """Keep how far it is. Raises ``OSError``, and what ``check`` raises (see ``write_atomically``)."""
        write_atomically(self._folder / NOTE, lambda tmp: _write(tmp, note), check)

    def days(self) -> list[pa.Table]:
        """The rows by UTC day, oldest first. Raises :class:`HistoryError`."""
        rows = read_table(self._folder / ROWS)
        ends = rows["end_ms"].to_numpy()
        day = ends // DAY_MS
        return [rows.filter(pa.array(day == one)) for one in np.unique(day)]

    def forget_rows(self) -> None:
        """The history has them."""
        (self._folder / ROWS).unlink(missing_ok=True)

    @property
    def has_rows(self) -> bool:
        """Whether its rows are still in the folder."""
        return (self._folder / ROWS).exists()


def new_job(storage: Path, site: str, rows: pa.Table) -> ImportJob:
    """A job of these rows, or the one that there is already of the same.

    Raises ``OSError`` or :class:`HistoryError` when it cannot be written.
    """
    rows = rows.sort_by([("end_ms", "ascending"), ("zone", "ascending")]).combine_chunks()
    ends = rows["end_ms"].to_numpy()
    named = hashlib.sha256(site.encode())
    for column in rows.columns:
        for buffer in column.combine_chunks().buffers():
            named.update(buffer or b"-")
    folder = storage / "imports" / named.hexdigest()[:16]
    if not folder.exists():
        made = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
        made.mkdir(parents=True)
        try:
            write_table(made / ROWS, rows)
            zones = sorted(set(rows["zone"].to_pylist()))
            _write(made / NOTE, ImportNote(
                site=site, zones=zones, rows=len(rows), first_ms=int(ends[0]), last_ms=int(ends[-1]), state="new",
                days=0, of_days=len(np.unique(ends // DAY_MS)),
                added=0, there=0, conflicts=0, too_new=0, grown=[], grown_pct=0,
            ))  # fmt: skip
            sync_folder(made)
            made.rename(folder)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        sync_folder(folder.parent)
    return ImportJob(folder)


def open_jobs(storage: Path) -> list[ImportJob]:
    """The jobs that there are, done or not, sorted by id."""
    return [ImportJob(storage / "imports" / name) for name in names(storage / "imports")]


def progress(note: ImportNote) -> ImportProgress:
    """How far an import is, for a bar: rows are a fifth of the work."""
    if note["state"] == "done":
        return ImportProgress(100, "done")
    if note["state"] == "new":
        return ImportProgress(20 * note["days"] / max(note["of_days"], 1), "adding rows")
    return ImportProgress(20 + 0.8 * note["grown_pct"], "learning again from the history")


def words(note: ImportNote) -> str:
    """One line for people.

    >>> note = ImportNote(site="demo", zones=["z1"], rows=5, first_ms=0, last_ms=1, state="done", days=1, of_days=1,
    ...                   added=3, there=2, conflicts=1, too_new=0, grown=["z1"], grown_pct=100)
    >>> words(note)
    '3 rows added, 2 were there already; 1 of these says something else and stays as it was'
    """
    said = f"{note['added']} rows added, {note['there']} were there already"
    if note["conflicts"]:
        one = note["conflicts"] == 1
        verb = "says something else and stays as it was" if one else "say something else and stay as they were"
        said += f"; {note['conflicts']} of these {verb}"
    if note["too_new"]:
        said += f"; {note['too_new']} are not older than the newest row that the system made, and are left out"
    return said


def _write(path: Path, note: ImportNote) -> None:
    with path.open("w") as file:
        file.write(json.dumps(note))
        file.flush()
        os.fsync(file.fileno())
