"""Step 4 of the way of a reading: what a shard has read and learned becomes durable.

The order makes a crash at any moment harmless: history first, rows and plans, then examples to train on, dead letters
and changes of alerts, then the snapshot that names the offset; what a replay writes again is the same. Snapshots are
written in another thread. Only behind one that is durable the offset is committed and old records leave the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any

from edge.log import Log, LogError
from services.config import Settings
from services.errors import SnapshotError
from services.ingest.figures import Failures
from services.ingest.partition import Partition
from services.ingest.retention import Retention
from services.ingest.snapshots.parts import LEARNED
from services.ingest.snapshots.recovery import Recovery
from services.ingest.snapshots.snapshot import Saved, Snapshots
from services.ingest.snapshots.snapshot_pace import Progress, SnapshotPace
from services.ingest.snapshots.stores import Stores
from services.store.deadletters import DeadLetters
from services.store.examples.shown_examples import ShownExamples
from services.store.plan_history import PlanHistory
from services.store.storage import storage_of

__all__ = ["Checkpoint"]


class _PartitionSaver:
    """Saves one partition; ``offset``, ``revision`` and ``alert_changes`` are those of its newest durable snapshot."""

    def __init__(self, partition: Partition, snapshots: Snapshots, dead_letters: DeadLetters) -> None:
        self.partition, self.snapshots, self.dead_letters = partition, snapshots, dead_letters
        self.offset, self.revision, self.alert_changes = partition.offset, -1, -1
        self.must_save = False  # it has changed otherwise than by reading on
        self.cost: Saved | None = None  # of the newest
        self.writing: Future[Saved] | None = None
        self._begun = (0, 0, 0)  # the same of what is being written

    @property
    def is_saved(self) -> bool:
        return self.partition.offset == self.offset and not self.must_save

    def keep_dead_letters(self) -> Counter[str]:
        """Make them durable; how many there were, by reason."""
        letters, self.partition.dead_letters = self.partition.dead_letters, []
        try:
            self.dead_letters.put(letters, self.snapshots.check)
        except BaseException:
            self.partition.dead_letters = letters
            raise
        return Counter(letter.reason for letter in letters)

    def keep_plans(self, plans: PlanHistory) -> None:
        plans.put(self.partition.number, self.partition.learner.plans.kept, self.snapshots.check)
        self.partition.learner.plans.kept = []

    def keep_examples(self, examples: ShownExamples) -> None:
        examples.put(self.partition.number, self.partition.learner.examples.kept, self.snapshots.check)
        self.partition.learner.examples.kept = []

    def begin(self, parts: Mapping[str, Any], executor: Executor) -> None:
        """Have a snapshot written; until :meth:`wait` has returned nothing may be learned or issued."""
        partition = self.partition
        # Ticks change alerts between rows: then nothing that is learned need be looked through.
        unchanged = LEARNED - {"alerts"} if self.revision == partition.learner.revision else frozenset[str]()
        unchanged |= {"alerts"} if self.alert_changes == partition.alerts.changes else frozenset()
        write = self.snapshots.begin(partition.offset, parts, not_copied=LEARNED, unchanged=unchanged)
        self._begun = partition.offset, partition.learner.revision, partition.alerts.changes
        self.writing = executor.submit(write)

    def wait(self) -> None:
        if self.writing is not None:
            self.writing.exception()  # the first to ask waits; finish() says how it went

    def finish(self) -> bool:
        """Whether a snapshot has become durable; raises what writing it raised."""
        if self.writing is None or not self.writing.done():
            return False
        written, self.writing = self.writing, None
        self.cost = written.result()
        self.offset, self.revision, self.alert_changes = self._begun
        self.must_save = False
        return True


class Checkpoint:
    """Saves the partitions of a shard, but for those that are still being recovered. One thread calls its methods.

    ``parts`` gives what a partition's snapshot holds (``services.ingest.snapshots.restore.snapshot_state``); files are
    written on ``executor``, one at a time. Seconds are of one monotonic clock.
    """

    def __init__(
        self, settings: Settings, log: Log, stores: Stores, recovery: Recovery,
        parts: Callable[[Partition], dict[str, Any]], keep_alerts: Callable[[Partition], None], executor: Executor,
        failures: Failures, now_s: float, failpoint: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._log, self._stores, self._recovery = log, stores, recovery
        self._parts, self._keep_alerts = parts, keep_alerts
        self._executor, self._failures, self._failpoint = executor, failures, failpoint
        self.dead_letters: Counter[str] = Counter()  # that were kept since the start, by reason
        self._retention = Retention(log, settings.log.keep_days if settings.log.kind == "sqlite" else 0)
        self._pace = SnapshotPace(settings.stream.snapshot_s, now_s)
        storage = storage_of(settings)
        self._savers = {
            number: _PartitionSaver(partition, recovery.snapshots[number], DeadLetters(storage, number))
            for number, partition in recovery.partitions.items()
        }

    def is_due(self, now_s: float, is_behind: bool, awaits_forecasts: bool) -> bool:
        """Whether it is time to save, and nothing is being saved; as in ``services.ingest.snapshots.snapshot_pace``."""
        unsaved = max((saver.partition.offset - saver.offset for saver in self._savers.values()), default=0)
        progress = Progress(unsaved, self._stores.history.pending_rows, is_behind, awaits_forecasts)
        return self._pace.is_due(now_s, progress) and not any(map(self.is_writing, self._savers))

    def is_writing(self, number: int) -> bool:
        """Whether a snapshot of a partition is being written, or :meth:`finish` has not seen yet that it is done."""
        return self._savers[number].writing is not None

    def must_save(self, number: int) -> None:
        """Save a partition the next time, also if it does not read on."""
        self._savers[number].must_save = True

    def check(self) -> None:
        """Raises ``FencedError`` when another writer has taken a partition over."""
        for saver in self._savers.values():
            saver.snapshots.check()

    def begin(self, now_s: float) -> None:
        """Write rows, plans, examples, dead letters and changes of alerts, and begin to write a snapshot of each
        partition that has read on.

        Raises what the history, the disk and :meth:`finish` raise; calling it again is safe.
        """
        self._pace.began(now_s)
        self._failpoint("before flush")
        self._stores.history.flush(lambda number: self._savers[number].snapshots.check())
        self._failpoint("flushed")
        for number, saver in self._savers.items():
            if saver.is_saved or saver.writing is not None or self._recovery.is_growing(number):
                continue
            saver.keep_plans(self._stores.plans)
            self._failpoint("plans kept")
            saver.keep_examples(self._stores.examples)
            self._failpoint("examples kept")
            self.dead_letters += saver.keep_dead_letters()
            self._failpoint("letters kept")
            self._keep_alerts(saver.partition)
            self._failpoint("alerts kept")
            saver.begin(self._parts(saver.partition), self._executor)
            self.finish()
        self._pace.works()
        if not any(map(self.is_writing, self._savers)):
            self._failures.works("storage")

    def wait(self, number: int | None = None) -> None:
        """Wait until a partition's snapshot, or every one, is written: what is learned stands still until then.

        Whether it could be written :meth:`finish` says.
        """
        for saver in self._savers.values() if number is None else (self._savers[number],):
            saver.wait()

    def finish(self) -> None:
        """Go on behind snapshots that are durable; raises what writing one raised, and it is written again later."""
        for number, saver in self._savers.items():
            try:
                if not saver.finish():
                    continue
            except BaseException as error:
                self._pace.failed()
                self._failures.failed("storage", error)
                raise
            self._failures.works("storage")
            self._failpoint("snapshot kept")
            self._commit(number, saver.offset)
            self._let_go(number)
            self._pace.cost([one.cost for one in self._savers.values() if one.cost is not None])

    def save_all(self, now_s: float) -> None:
        """Save every partition, whether it has read on or not, and return once that is durable."""
        self.wait()
        self.finish()
        for number in self._savers:
            self.must_save(number)
        self.begin(now_s)
        self.wait()
        self.finish()

    def close(self, now_s: float) -> None:
        """Save what was read."""
        self.wait()
        with suppress(OSError, SnapshotError):  # told in the failures; the next one has it all
            self.finish()
        self.begin(now_s)
        self.wait()
        self.finish()

    def _commit(self, number: int, offset: int) -> None:
        """Tell lag tools; nothing of ours reads it, so that it may fail."""
        try:
            self._log.commit(number, offset)
            self._failures.works("commit")
        except LogError as error:
            self._failures.failed("commit", error)

    def _let_go(self, number: int) -> None:
        """Old records leave the log; where they cannot, they wait for the next time."""
        try:
            snapshots = self._savers[number].snapshots
            self._retention.apply(number, lambda: snapshots.oldest_offset)
            self._failures.works("retention")
        except LogError as error:
            self._failures.failed("retention", error)
