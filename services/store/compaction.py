"""Step 6 of the way of a reading: small files of the history become fewer, larger ones.

A *span* is a file that holds a partition's rows of some days: one at first, ``2022-03-01-p0-300s.parquet``, several
after a compaction, ``2022-03-01-to-2022-03-09-p0-300s.parquet``. Plans, which have no step, are in
``2022-03-01-p0-plans.parquet``. A file whose days lie in another one's is retired:
readers do not list it any more, and a reader that listed it before may go on reading it until it is removed, a day
later. So the moment at which the new file has its name is the one at which readers change over, and none sees rows
twice or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from threading import Lock

import pyarrow as pa

from services.store.parquet import read_table, schema_of, write_tables
from services.store.storage import Storage, always

__all__ = ["GRACE_S", "Span", "compact", "current", "key_for", "remove_retired"]

LARGE_BYTES = 64_000_000
"""Files grow to about this; larger ones are left as they are."""
LEAST_FILES = 8
"""This many small files in a row become a larger one: a week's, as a rule, so that rows are not written every day."""
GRACE_S = 86_400.0
"""A retired file stays this long, for trainings and queries that listed it."""

_NAME = re.compile(r"(\d{4}-\d\d-\d\d)(?:-to-(\d{4}-\d\d-\d\d))?-p(\d+)-(?:(\d+)s|plans)\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The days, the first and the last of them, of a partition's rows of one step, or of its plans: step 0.

    >>> Span.of("2022-03-01-to-2022-03-09-p0-300s.parquet")
    Span(partition=0, step_s=300, first='2022-03-01', last='2022-03-09')
    """

    partition: int
    step_s: int
    first: str
    last: str

    @classmethod
    def of(cls, name: str) -> Span | None:
        """The span of a file of that name; ``None`` for any other."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        return cls(int(found[3]), int(found[4] or 0), found[1], found[2] or found[1])

    @property
    def name(self) -> str:
        """The file's."""
        days = self.first if self.first == self.last else f"{self.first}-to-{self.last}"
        return f"{days}-p{self.partition}-{f'{self.step_s}s' if self.step_s else 'plans'}.parquet"

    def holds(self, other: Span) -> bool:
        """Whether the other's days lie in this one's, which has more."""
        same = (self.partition, self.step_s) == (other.partition, other.step_s)
        return same and self != other and self.first <= other.first and other.last <= self.last


def current(storage: Storage, folder: str) -> list[Span]:
    """The spans in a site's folder that are not retired, sorted."""
    spans = _all(storage, folder)
    wide = [span for span in spans if span.first != span.last]
    return sorted(span for span in spans if not any(other.holds(span) for other in wide))


def key_for(storage: Storage, folder: str, day: Span) -> str:
    """Where a day's rows belong: in the larger file that has the day, else in one of its own."""
    wide = (span for span in current(storage, folder) if span.holds(day))
    return f"{folder}/{next(wide, day).name}"


def compact(
    storage: Storage, folder: str, before_day: str, partitions: Collection[int], check: Callable[[], None] = always,
    switching: Lock | None = None,
) -> int:  # fmt: skip
    """Make larger files of a site's small ones that end before a day; returns how many files were replaced.

    Rows keep their bytes and their order. Safe to be stopped anywhere and to be repeated. Another writer to the folder
    holds ``switching`` while it writes; files that it changed are left for the next time. ``check`` raises when the
    partitions belong to another writer by now. Raises :class:`HistoryError`.
    """
    replaced = 0
    ours = [span for span in current(storage, folder) if span.last < before_day and span.partition in partitions]
    for group in _groups(storage, folder, ours):
        keys = [f"{folder}/{span.name}" for span in group]
        whole = Span(group[0].partition, group[0].step_s, group[0].first, group[-1].last)
        was = _versions(storage, folder, group)
        with ExitStack() as held:

            def look(was: object = was, whole: Span = whole, group: Sequence[Span] = group) -> None:
                hidden = [span for span in current(storage, folder) if whole.holds(span) and span not in group]
                if hidden or _versions(storage, folder, group) != was:  # a day between the others has come meanwhile
                    raise _ChangedError

            def switch(look: Callable[[], None] = look, held: ExitStack = held) -> None:
                held.pop_all().close()  # of a try before this one
                check()
                if switching is not None:
                    held.enter_context(switching)
                look()

            with suppress(_ChangedError):
                tables = _Tables(storage, keys)
                write_tables(storage, f"{folder}/{whole.name}", schema_of(storage, keys[0]), tables, switch)
                # This process writes nothing into the new file before the lock is let go of. But another writer, of
                # a storage that nobody can lock, may have come between the look and the write.
                written = _versions(storage, folder, [whole])
                try:
                    look()
                except _ChangedError:
                    if _versions(storage, folder, [whole]) == written:
                        storage.delete(f"{folder}/{whole.name}")
                    raise
                replaced += len(keys)
    return replaced


def remove_retired(storage: Storage, folder: str, partitions: Collection[int], now_s: float) -> int:
    """Remove what was retired more than :data:`GRACE_S` ago, and files that a crash left half written; how many."""
    wide = [span for span in current(storage, folder) if span.first != span.last]
    there = storage.entries(folder) if wide else {}
    removed = 0
    for span in (span for span in _all(storage, folder) if span.partition in partitions):
        larger = next((there.get(other.name) for other in wide if other.holds(span)), None)
        newer = larger is not None and span.name in there and there[span.name].modified_s > larger.modified_s
        if larger is not None and not newer and now_s - larger.modified_s > GRACE_S:
            storage.delete(f"{folder}/{span.name}")
            removed += 1
    storage.tidy(folder, age_s=GRACE_S, now_s=now_s)
    return removed


class _Tables:
    """The rows of some spans; they may be gone over again."""

    def __init__(self, storage: Storage, keys: Sequence[str]) -> None:
        self._storage, self._keys = storage, keys

    def __iter__(self) -> Iterator[pa.Table]:
        return (read_table(self._storage, key) for key in self._keys)


def _all(storage: Storage, folder: str) -> list[Span]:
    return [span for span in map(Span.of, storage.list_folder(folder).names) if span is not None]


class _ChangedError(Exception):
    """Somebody wrote into a file that was being copied."""


def _groups(storage: Storage, folder: str, spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Runs of small neighbours with the same columns, none longer than makes one large file."""
    if len(spans) < LEAST_FILES:
        return
    there = storage.entries(folder)
    group: list[Span] = []
    size, columns = 0, None
    for span in spans:
        its_size, its_columns = there[span.name].size, schema_of(storage, f"{folder}/{span.name}")
        small = its_size <= LARGE_BYTES // 2
        joins = group and (span.partition, span.step_s) == (group[0].partition, group[0].step_s)
        if not (joins and small and its_columns == columns and size + its_size <= LARGE_BYTES):
            if len(group) >= LEAST_FILES:
                yield group
            group, size, columns = [], 0, its_columns
        if small:
            group, size = [*group, span], size + its_size
    if len(group) >= LEAST_FILES:
        yield group


def _versions(storage: Storage, folder: str, spans: Sequence[Span]) -> list[str | None]:
    """What changes when a file is replaced."""
    there = storage.entries(folder)
    return [there[span.name].version if span.name in there else None for span in spans]
