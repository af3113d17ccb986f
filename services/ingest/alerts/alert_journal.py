"""Step 9 of the way of a reading: every change of an alert, durable before anybody is told of it.

A log of records a partition, ``alerts/p{partition}/`` of the storage, which the partition's shard writes and deliveries
read in its order. A change is named by its alert's id and its number: one that is made again, after a crash, stays as
it was told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from services.errors import AlreadyStoredError, ChangedError
from services.messages import ShownAlert
from services.store.storage import Storage, always, stored_in
from services.store.storage.record_log import RecordLog

__all__ = ["AlertJournal", "JournalEntry", "JournalReader", "changes_in", "changes_of", "journal_name", "journals"]

KEEP = 20_000
"""Changes of a partition that are kept; a delivery that is further behind has lost some, and says so."""

PER_OBJECT = 200
"""Changes come one by one, and each writes its object anew: a small one."""

_ROOT = "alerts"
_TRIES = 4


class JournalEntry(NamedTuple):
    """A change; ``number`` counts those of a partition up."""

    number: int
    alert: ShownAlert


class _Kept(NamedTuple):
    offset: int
    alert: ShownAlert


class AlertJournal:
    """The journal of a partition, for its one writer."""

    def __init__(self, root: Storage | Path, partition: int, keep: int = KEEP) -> None:
        self._log = RecordLog(stored_in(root), f"{_ROOT}/{journal_name(partition)}", _Kept, keep, PER_OBJECT)
        self._names: set[tuple[str, int]] | None = None  # of all changes; None: to be looked up

    def put(self, changes: Sequence[tuple[int, ShownAlert]], check: Callable[[], None] = always) -> list[ShownAlert]:
        """Keep changes durably, each with the offset of its record; those that are new. Raises ``OSError``.

        ``check`` raises when the partition belongs to another writer by now.
        """
        new: dict[tuple[str, int], _Kept] = {}
        for left in range(_TRIES, 0, -1):
            if self._names is None:
                self._names = {_name(kept.alert) for kept in self._log.oldest_first()}
            new = {}
            for offset, alert in changes:
                if _name(alert) not in self._names:
                    new.setdefault(_name(alert), _Kept(offset, alert))
            if not new:
                return []
            names, self._names = self._names, None  # some may be kept, whatever is raised
            try:
                self._log.append(list(new.values()), check)
            except (AlreadyStoredError, ChangedError):  # by a writer that has the partition, or had it
                check()
                if left == 1:
                    raise
                continue
            self._names = names | new.keys() if len(names) < 2 * KEEP else None
            break
        return [kept.alert for kept in new.values()]

    def since(self, offset: int) -> list[tuple[int, ShownAlert]]:
        """The changes that came with records from ``offset`` on, in the order in which they were put."""
        return [(kept.offset, kept.alert) for kept in self._log.oldest_first() if kept.offset >= offset]

    def standing(self, offset: int) -> list[ShownAlert]:
        """The alerts that are not over and have not changed with records from ``offset`` on, oldest change first."""
        newest: dict[str, _Kept] = {}
        for kept in self._log.oldest_first():
            newest.pop(kept.alert["id"], None)  # it goes to the end
            newest[kept.alert["id"]] = kept
        return [one.alert for one in newest.values() if one.offset < offset and one.alert["state"] != "resolved"]


class JournalReader:
    """The journal of a partition, for who follows it; ``name`` is one of :func:`journals`."""

    def __init__(self, root: Storage | Path, name: str) -> None:
        self._log = _log_of(stored_in(root), name)

    def read(self, after: int, limit: int = 500) -> tuple[list[JournalEntry], int]:
        """The changes after number ``after``, oldest first, and how many are gone that came after it.

        Raises ``OSError``.
        """
        found, gone = self._log.read(after, limit)
        return [JournalEntry(number, kept.alert) for number, kept in found], gone

    def newest_number(self) -> int:
        """The number of the newest change, 0 where there is none; raises ``OSError``."""
        return self._log.span()[1]


def journal_name(partition: int) -> str:
    """The name of a partition's journal."""
    return f"p{partition}"


def journals(root: Storage | Path) -> list[str]:
    """The names of the journals of all partitions."""
    return list(stored_in(root).list_folder(_ROOT).folders)


def changes_in(root: Storage | Path, site: str, zone: str) -> tuple[list[ShownAlert], int | None]:
    """Every change of a zone's alerts that is kept, oldest first, and since when alerts of its site are: when the first
    one began, None where there is none. Raises ``OSError``.
    """
    of_site = [alert for alert in _all(root) if alert["site"] == site]
    first_ms = min((alert["began_ms"] for alert in of_site), default=None)
    return [alert for alert in of_site if alert["zone"] == zone], first_ms


def changes_of(root: Storage | Path, *ids: str) -> list[ShownAlert]:
    """Every change of some alerts that is kept, the oldest of each first; raises ``OSError``."""
    return sorted((alert for alert in _all(root) if alert["id"] in ids), key=lambda alert: alert["change"])


def _all(root: Storage | Path) -> list[ShownAlert]:
    storage = stored_in(root)
    return [kept.alert for name in journals(storage) for kept in _log_of(storage, name).oldest_first()]


def _log_of(storage: Storage, name: str) -> RecordLog[_Kept]:
    return RecordLog(storage, f"{_ROOT}/{name}", _Kept, per_object=PER_OBJECT)


def _name(alert: ShownAlert) -> tuple[str, int]:
    return alert["id"], alert["change"]
