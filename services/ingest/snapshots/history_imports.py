"""Step 4 of the way of a reading: history that somebody imports into a running shard.

Each round does a little: rows of some days are added to the history, where there is none; then the learners of the
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
from services.errors import HistoryError
from services.ingest.figures import Failures
from services.ingest.partition import Partition
from services.ingest.snapshots.recovery import Recovery
from services.store.history import History
from services.store.imports.import_job import ImportJob, ImportNote, open_jobs, words

__all__ = ["HistoryImports"]

_log = logging.getLogger(__name__)

LOOK_S = 1.0
ROUND_S = 0.2
WHAT = "import"


class HistoryImports:
    """Follows the imports of a shard's partitions. One thread calls :meth:`work`; ``check`` raises when a partition
    belongs to another writer by now, ``save`` makes rows, plans and what is learned durable.
    """

    def __init__(
        self, storage: Path, of_partitions: int, history: History, recovery: Recovery, failures: Failures,
        check: Callable[[int], None], save: Callable[[], None], clock_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self._storage, self._of_partitions, self._history = storage, of_partitions, history
        self._recovery, self._failures, self._check, self._save = recovery, failures, check, save
        self._clock_s, self._look = clock_s, Periodic(LOOK_S, clock_s())
        self._jobs: dict[str, tuple[ImportJob, ImportNote]] = {}  # those that are not done
        self._done: set[str] = set()
        self._days: dict[str, list[pa.Table]] = {}
        self._growing: dict[int, dict[str, list[str]]] = {}  # partition -> job -> zones that will know their rows then

    @property
    def waits(self) -> bool:
        """Whether something can be done at once."""
        return any(note["state"] == "new" for _, note in self._jobs.values()) or bool(self._growing)

    def work(self, partitions: Mapping[int, Partition]) -> None:
        """Do a little of what there is to do. What fails is told, and tried again."""
        try:
            if self._look.due(self._clock_s()):
                self._find(partitions)
            self._work(partitions)
            self._failures.works(WHAT)
        except (HistoryError, OSError, ValueError) as error:
            self._failures.failed(WHAT, error)

    def _find(self, partitions: Mapping[int, Partition]) -> None:
        for job in open_jobs(self._storage):
            if job.id in self._jobs or job.id in self._done:
                continue
            note = job.note()
            if note["state"] == "done":
                self._done.add(job.id)
            elif partition_of(note["site"], self._of_partitions) in partitions:
                self._jobs[job.id] = job, note

    def _work(self, partitions: Mapping[int, Partition]) -> None:
        until_s = self._clock_s() + ROUND_S
        for job, note in list(self._jobs.values()):
            while note["state"] == "new" and self._clock_s() < until_s:
                self._add_day(job, note, partitions[self._number(note)])
        for number in list(self._growing):
            self._grow(number)
        self._begin(partitions)

    def _add_day(self, job: ImportJob, note: ImportNote, partition: Partition) -> None:
        """Add one day's rows; those not older than the site's newest live row are not the past."""
        days = self._days.setdefault(job.id, [])
        if not days:
            days += job.days()
        rows, newest = days[note["days"]], partition.latest.get(note["site"])
        if newest is not None:
            old = rows.filter(pa.array(rows["end_ms"].to_numpy() <= newest.end_ms))
            note["too_new"] += len(rows) - len(old)
            rows = old
        if len(rows):
            if self._history.pending:
                self._save()  # rows that wait for a flush are there, too
            found = self._history.add_missing(
                partition.number, note["site"], rows, lambda: self._check(partition.number)
            )
            for name, count in found._asdict().items():
                note[name] += count  # type: ignore[literal-required]
        note["days"] += 1
        if note["days"] == note["of_days"]:
            note["state"] = "added"
            del self._days[job.id]
        job.put(note, lambda: self._check(partition.number))

    def _begin(self, partitions: Mapping[int, Partition]) -> None:
        """Grow again the partitions in which zones are there whose rows were added; others wait until they come."""
        wanted: dict[int, dict[str, list[str]]] = {}
        for job, note in self._jobs.values():
            number = self._number(note)
            there = {zone for site, zone in partitions[number].rings.zones if site == note["site"]}
            zones = sorted(there & set(note["zones"]) - set(note["grown"]))
            if note["state"] == "added" and zones:
                wanted.setdefault(number, {})[job.id] = zones
        for number, jobs in wanted.items():
            if number not in self._growing and not self._recovery.is_growing(number):
                self._recovery.begin_beside(number, "rows were imported")
                self._growing[number] = jobs

    def _grow(self, number: int) -> None:
        growing = self._recovery.beside(number)
        assert growing is not None
        if not growing.grow():
            self._tell(number, int(100 * growing.share))
            return
        self._save()
        self._recovery.exchange(number)
        self._save()
        self._tell(number, 100)
        for name, zones in self._growing.pop(number).items():
            job, note = self._jobs[name]
            note["grown"] = sorted({*note["grown"], *zones})
            if note["grown"] == note["zones"]:
                note["state"] = "done"
                del self._jobs[name]
                self._done.add(name)
            job.put(note, lambda: self._check(number))
            if note["state"] == "done":
                job.forget_rows()
                _log.warning("import %s of %s is done: %s", name, note["site"], words(note))

    def _tell(self, number: int, pct: int) -> None:
        for name in self._growing[number]:
            job, note = self._jobs[name]
            if pct > note["grown_pct"]:
                note["grown_pct"] = pct
                job.put(note, lambda: self._check(number))

    def _number(self, note: ImportNote) -> int:
        return partition_of(note["site"], self._of_partitions)
