"""Step 6 of the way of a reading: rows of a site that somebody imports, as files, and how far they have come.

``imports/{id}/`` of the storage holds ``rows.parquet`` (as files of the history have them, by end and zone) and
``job.json``. The id is made of the rows, so that the same import again is the same job, unless it left rows out.
Whoever imports writes the rows, then the note, which makes it a job; from then on the shard of the site's partition
alone writes ``job.json``. It goes on after any crash: what it has done once changes nothing when it is done again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.durations import DAY_MS
from services.errors import AlreadyStoredError, NotStoredError
from services.store.imports.import_days import ImportDays
from services.store.parquet import write_tables
from services.store.storage import Storage, always, stored_in

__all__ = [
    "ImportJob", "ImportNote", "ImportProgress", "forget_abandoned", "new_job", "open_jobs", "progress", "words",
]  # fmt: skip

ROW_GROUP = 20_000
"""Rows that a shard reads together, for one of the days that they are of."""
IMPORTS, ROWS, NOTE = "imports", "rows.parquet", "job.json"
ABANDONED_S = 86_400.0


class _Filled(TypedDict, total=False):
    """What the note of an import lacks that an earlier release has made."""

    filled: int  # rows that were there, and got values that nobody had read


class ImportNote(_Filled):
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
    """A folder of ``imports``."""

    def __init__(self, storage: Storage | Path, id: str) -> None:
        self._storage, self.id = stored_in(storage), id
        self._rows, self._note = f"{IMPORTS}/{id}/{ROWS}", f"{IMPORTS}/{id}/{NOTE}"

    def note(self) -> ImportNote:
        """How far it is. Raises ``OSError`` or ``ValueError`` when it cannot be read."""
        note: ImportNote = json.loads(self._storage.read(self._note).content)
        missing = ImportNote.__required_keys__ - (note if isinstance(note, dict) else {}).keys()
        if missing:
            where = self._storage.address(self._note)
            raise ValueError(f"{where} is none of this version: it lacks {', '.join(sorted(missing))}")
        return note

    def put(self, note: ImportNote, check: Callable[[], None] = always) -> None:
        """Keep how far it is. Raises ``OSError``, and what ``check`` raises (see :class:`Storage`)."""
        self._storage.put(self._note, json.dumps(note).encode(), check)

    def days(self) -> ImportDays:
        """The rows by UTC day, oldest first. Raises :class:`HistoryError`."""
        return ImportDays(self._storage, self._rows)

    def forget_rows(self) -> None:
        """The history has them."""
        self._storage.delete(self._rows)

    @property
    def has_rows(self) -> bool:
        """Whether its rows are still in the folder."""
        return self._storage.entry(self._rows) is not None


def new_job(storage: Storage | Path, site: str, rows: pa.Table) -> ImportJob:
    """A job of these rows, or the one that there is already of the same. If that one is done and has left rows out as
    too new, they may be the past by now: then it is another job. So it is if an earlier release left rows out for the
    sake of rows in which nothing was read.

    Raises ``OSError`` or :class:`HistoryError` when it cannot be written.
    """
    if not _are_sorted(rows):  # a sorted copy of years of rows would need as much memory again
        rows = rows.sort_by([("end_ms", "ascending"), ("zone", "ascending")])
    ends = rows["end_ms"].to_numpy()
    named = hashlib.sha256(site.encode())
    for column in rows.columns:
        for buffer in column.combine_chunks().buffers():
            named.update(buffer or b"-")
    there, name, again = stored_in(storage), named.hexdigest()[:16], 1
    id = name
    while _has_left_out(ImportJob(there, id)):
        again += 1
        id = f"{name}-{again}"
    folder = f"{IMPORTS}/{id}"
    if there.entry(f"{folder}/{NOTE}") is None:
        groups = (rows.slice(begin, ROW_GROUP).combine_chunks() for begin in range(0, len(rows), ROW_GROUP))
        write_tables(there, f"{folder}/{ROWS}", rows.schema, groups, group_rows=ROW_GROUP)
        note = ImportNote(
            site=site, zones=sorted(pc.unique(rows["zone"]).to_pylist()), rows=len(rows), first_ms=int(ends[0]),
            last_ms=int(ends[-1]), state="new", days=0, of_days=len(np.unique(ends // DAY_MS)),
            added=0, filled=0, there=0, conflicts=0, too_new=0, grown=[], grown_pct=0,
        )  # fmt: skip
        with suppress(AlreadyStoredError):  # the same job, begun twice at once, and further by now
            there.put_new(f"{folder}/{NOTE}", json.dumps(note).encode())
    return ImportJob(there, id)


def _are_sorted(rows: pa.Table) -> bool:
    """Whether rows are in the order of their ends, and of their zones' names at each."""
    ends, zones = rows["end_ms"].to_numpy(), np.asarray(rows["zone"].to_numpy(zero_copy_only=False), object)
    same_end = ends[1:] == ends[:-1]
    return bool(((ends[1:] > ends[:-1]) | (same_end & (zones[1:] >= zones[:-1]))).all())


def _has_left_out(job: ImportJob) -> bool:
    """Whether a job is done, and has left out rows that another one may not."""
    try:
        note = job.note()
    except (NotStoredError, ValueError):  # whoever waits for a job whose note is damaged is told
        return False
    return note["state"] == "done" and (note["too_new"] > 0 or ("filled" not in note and note["conflicts"] > 0))


def open_jobs(storage: Storage | Path, known: Collection[str] = ()) -> list[ImportJob]:
    """The jobs that there are but for those ``known``, done or not, sorted by id; rows without a note are none yet."""
    there = stored_in(storage)
    ids = [id for id in there.list_folder(IMPORTS).folders if id not in known]
    return [ImportJob(there, id) for id in ids if NOTE in there.list_folder(f"{IMPORTS}/{id}").names]


def forget_abandoned(storage: Storage | Path, now_s: float) -> None:
    """Remove what imports have left that were killed before they wrote their note, a day ago or earlier."""
    there = stored_in(storage)
    for id in there.list_folder(IMPORTS).folders:
        found = there.entries(f"{IMPORTS}/{id}")
        if NOTE not in found and all(now_s - entry.modified_s > ABANDONED_S for entry in found.values()):
            ImportJob(there, id).forget_rows()
            there.tidy(f"{IMPORTS}/{id}", age_s=ABANDONED_S, now_s=now_s)


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
    '3 rows added, 2 were there already; 1 row says something else than was read, which stays'
    """
    filled = f"{note['filled']} got values that nobody had read, " if note.get("filled") else ""
    said = f"{note['added']} rows added, {filled}{note['there']} were there already"
    if note["conflicts"]:
        verb = "row says" if note["conflicts"] == 1 else "rows say"
        said += f"; {note['conflicts']} {verb} something else than was read, which stays"
    if note["too_new"]:
        said += f"; {note['too_new']} are newer than the newest row that the system made, and are left out: "
        said += "import them again once it has made newer ones"
    return said
