"""Step 6 of the way of a reading: small files of a day that is over become large ones."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future

from models.durations import DAY_MS, HOUR_MS
from services.errors import FirstError, HistoryError
from services.ingest.figures import Failures
from services.ingest.snapshots.stores import Stores

__all__ = ["DailyMerge"]


class DailyMerge:
    """Makes one file of a day's forecasts, and larger ones of the small files of rows and plans, on ``executor``, where
    it holds nobody up. One merge at a time; one thread calls its methods. ``check`` raises when a partition belongs to
    another writer by now.
    """

    def __init__(
        self, stores: Stores, partitions: Collection[int], check: Callable[[], None], executor: Executor,
        failures: Failures,
    ) -> None:  # fmt: skip
        self._stores, self._partitions, self._check = stores, list(partitions), check
        self._executor, self._failures = executor, failures
        # Not the newest alone: after one site with a clock that is ahead no day of the others would be new.
        self._begun = set[tuple[int, int]]()  # length and number of the days and hours in which a merge began
        self._has_failed = False
        self._running: Future[None] | None = None

    def begin(self, newest_ms: int) -> None:
        """Merge, if ``newest_ms`` is the first origin of a day, or of an hour after a merge that failed."""
        day, hour = ((length_ms, newest_ms // length_ms) for length_ms in (DAY_MS, HOUR_MS))
        if (hour if self._has_failed else day) not in self._begun and self._running is None:
            self._running = self._executor.submit(self._merge, newest_ms)
            self._begun |= {day, hour}

    def finish(self) -> None:
        """See whether a merge is over; a failure is told, and what failed is tried again within an hour."""
        if self._running is None or not self._running.done():
            return
        error = self._running.exception()
        self._running, self._has_failed = None, error is not None
        if error is None:
            self._failures.works("merge of files")
        else:
            self._failures.failed("merge of files", error)

    def _merge(self, newest_ms: int) -> None:
        """Each kind by itself: what keeps one from being merged is raised in the end."""
        yesterday_ms = newest_ms - DAY_MS  # rows and plans of it may still come: a file that grows is better small
        with FirstError(HistoryError, OSError) as first:
            with first.kept():
                self._stores.issued.merge_days(newest_ms, self._partitions, self._check)
            for rows in (self._stores.history, self._stores.plans):
                with first.kept():
                    rows.compact(yesterday_ms, self._partitions, self._check)
