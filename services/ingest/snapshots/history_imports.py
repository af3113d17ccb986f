"""Step 4 of the way of a reading: history that somebody imports into a running shard.

Each round does a little: rows of some days are added to the history, where nothing was read; then the learners of the
partition are grown again beside those that serve, in the order of time, and exchanged. An import is ``done`` once a
snapshot has what was learned. Whatever is killed meanwhile is begun again, and what was done changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa

from edge.log import partition_of
from edge.timing import Periodic
from models.durations import DAY_MS
from services.errors import HistoryError
from services.ingest.figures import Failures
from services.ingest.partition import Partition
from services.ingest.snapshots.recovery import Recovery
from services.ingest.snapshots.regrow import REGROW_DAYS
from services.store.history import History
from services.store.imports.import_days import ImportDays
from services.store.imports.import_job import ImportJob, ImportNote, open_jobs, words
from services.store.storage import Storage, stored_in

__all__ = ["HistoryImports"]

_log = logging.getLogger(__name__)

ROUND_S = 0.2
ROWS_TOGETHER = 100_000
"""About as many rows are added at once, where files have them together; they are in memory several times then."""
WHAT = "import"


class HistoryImports:
    """Follows the imports of a shard's partitions. One thread calls :meth:`work`; ``check`` raises when a partition
    belongs to another writer by now, ``save`` makes rows, plans and what is learned durable.
    """

    def __init__(
        self, storage: Storage | Path, of_partitions: int, history: History, recovery: Recovery, failures: Failures,
        check: Callable[[int], None], save: Callable[[], None], clock_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self._storage, self._of_partitions, self._history = stored_in(storage), of_partitions, history
        self._recovery, self._failures, self._check, self._save = recovery, failures, check, save
        self._clock_s, self._look = clock_s, Periodic(self._storage.poll_s, clock_s())
        self._jobs: dict[str, tuple[ImportJob, ImportNote]] = {}  # those that are not done
        self._done: set[str] = set()
        self._days: dict[str, ImportDays] = {}
        self._wrong = set[str]()  # what failed the last time
        self._looked_at = set[str]()  # the jobs that were new then
        self._growing: dict[int, dict[str, list[str]]] = {}  # partition -> job -> zones that will know their rows then

    @property
    def waits(self) -> bool:
        """Whether something can be done at once."""
        return any(note["state"] == "new" for _, note in self._jobs.values()) or bool(self._growing)

    def work(self, partitions: Mapping[int, Partition]) -> None:
        """Do a little of what there is to do. What fails is told, and tried again; one job holds up no other."""
        if self._look.due(self._clock_s()):
            self._each("imports", self._find_all, partitions)
        until_s = self._clock_s() + ROUND_S
        for job, note in list(self._jobs.values()):
            self._each(job.id, self._add_days, job, note, partitions, until_s)
        for number in list(self._growing):
            self._each(f"into partition {number}", self._grow, number)
        self._each("growing", self._begin, partitions)
        if not self._wrong:
            self._failures.works(WHAT)

    def _each(self, name: str, do: Callable[..., None], *arguments: object) -> None:
        try:
            do(*arguments)
            self._wrong.discard(name)
        except (HistoryError, OSError, ValueError, LookupError, TypeError) as error:
            # Besides the disk: a job of another version, or one that somebody has edited.
            self._wrong.add(name)
            self._failures.failed(WHAT, HistoryError(f"{name}: {type(error).__name__}: {error}"))

    def _find_all(self, partitions: Mapping[int, Partition]) -> None:
        found = open_jobs(self._storage, {*self._jobs, *self._done})
        self._wrong -= self._looked_at  # what is wrong still fails again; what is gone is not wrong any more
        self._looked_at = {job.id for job in found}
        for job in found:
            self._each(job.id, self._find, job, partitions)

    def _find(self, job: ImportJob, partitions: Mapping[int, Partition]) -> None:
        note = job.note()
        if note["state"] == "done":
            self._done.add(job.id)
            if self._number(note) in partitions:
                job.forget_rows()  # where a crash came between the note and this
        elif self._number(note) in partitions:
            self._jobs[job.id] = job, note

    def _add_days(
        self, job: ImportJob, note: ImportNote, partitions: Mapping[int, Partition], until_s: float
    ) -> None:  # fmt: skip
        while note["state"] == "new" and self._clock_s() < until_s:
            self._add_some(job, note, partitions[self._number(note)])

    def _add_some(self, job: ImportJob, note: ImportNote, partition: Partition) -> None:
        """Add a day's rows, or those of more; those not older than the site's newest live row are not the past."""
        days = self._days.get(job.id) or self._days.setdefault(job.id, job.days())
        rows, until = self._together(note["site"], days, note["days"])
        newest, changed = partition.learner.latest.get(note["site"]), note.copy()
        if newest is not None:
            old = rows.filter(pa.array(rows["end_ms"].to_numpy() <= newest.end_ms))
            changed["too_new"] += len(rows) - len(old)
            rows = old
        if len(rows):
            if self._history.pending:
                self._save()  # rows that wait for a flush are there, too
            found = self._history.add_missing(
                partition.number, note["site"], rows, lambda: self._check(partition.number)
            )
            for name, count in found._asdict().items():
                changed[name] = changed.get(name, 0) + count  # type: ignore[literal-required]
        changed["days"] = until
        if changed["days"] == note["of_days"]:
            oldest_ms = 0 if newest is None else newest.end_ms - REGROW_DAYS * DAY_MS
            # Rows that were there count too: days that were added, and not noted before a crash, were there afterwards.
            learns = changed["added"] + changed["there"] + changed.get("filled", 0) > 0 and note["last_ms"] > oldest_ms
            changed["state"] = "added" if learns else "done"
            del self._days[job.id]
        self._keep(job, note, changed, partition.number)

    def _together(self, site: str, days: ImportDays, index: int) -> tuple[pa.Table, int]:
        """The rows of a day, and of the days after it whose rows may be in the same files of the history, up to some
        number: a file that is written anew for each day is written thirty times. And the index of the next day.
        """
        rows, until = [days[index]], index + 1
        ends = rows[0]["end_ms"].to_numpy()
        reach_ms = self._history.rewritten_until_ms(site, int(ends.min()), int(ends.max()))
        while until < days.begun_until(index, reach_ms) and sum(map(len, rows)) < ROWS_TOGETHER:
            rows.append(days[until])
            until += 1
        return pa.concat_tables(rows), until

    def _begin(self, partitions: Mapping[int, Partition]) -> None:
        """Grow again the partitions in which zones are there whose rows were added; others wait until they come."""
        wanted: dict[int, dict[str, list[str]]] = {}
        for job, note in self._jobs.values():
            number = self._number(note)
            there = {zone for site, zone in partitions[number].learner.parts.rings.zones if site == note["site"]}
            zones = sorted(there & set(note["zones"]) - set(note["grown"]))
            if note["state"] == "added" and zones:
                wanted.setdefault(number, {})[job.id] = zones
        for number, jobs in wanted.items():
            if number not in self._growing and not self._recovery.is_growing(number):
                self._recovery.begin_beside(number, "rows were imported")
                self._growing[number] = jobs

    def _grow(self, number: int) -> None:
        growing = self._recovery.beside(number)
        if growing is not None:
            if not growing.grow():
                self._tell(number, int(100 * growing.share))
                return
            self._save()
            self._recovery.exchange(number)
        self._save()  # also where it failed the last time: then nothing grows any more
        self._tell(number, 100)
        for name, zones in list(self._growing[number].items()):
            job, note = self._jobs[name]
            changed = note.copy()
            changed["grown"] = sorted({*note["grown"], *zones})
            if changed["grown"] == note["zones"]:
                changed["state"] = "done"
            self._keep(job, note, changed, number)
            del self._growing[number][name]
        del self._growing[number]

    def _keep(self, job: ImportJob, note: ImportNote, changed: ImportNote, number: int) -> None:
        """Note how far a job is, first on the disk."""
        job.put(changed, lambda: self._check(number))
        note.update(changed)
        if note["state"] == "done":
            self._jobs.pop(job.id, None)
            self._done.add(job.id)
            job.forget_rows()
            _log.warning("import %s of %s is done: %s", job.id, note["site"], words(note))

    def _tell(self, number: int, pct: int) -> None:
        for name in self._growing[number]:
            job, note = self._jobs[name]
            if pct > note["grown_pct"]:
                self._keep(job, note, {**note, "grown_pct": pct}, number)

    def _number(self, note: ImportNote) -> int:
        return partition_of(note["site"], self._of_partitions)
