"""Step 9 of the way of a reading: what every way of telling people about alerts has in common.

The journals of the partitions are the queue, and are on disk. A way to tell has a place in each of them, which is on
disk, too, and moves on only behind what was told. So nothing is lost over a restart or an outage; what was in doubt is
told again, under the same name (an alert's id and the number of its change).
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from edge.timing import Backoff
from services.ingest.alerts.alert_journal import journals, newest_number, read_journal
from services.messages import ShownAlert

__all__ = ["Channel", "Deliverer", "DeliveryError", "is_at_least", "key_of"]

_log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
A_LOOK = 200
"""Changes of a journal that are told before the place in it is written."""

SEVERITIES = ("info", "warning", "critical")


class DeliveryError(Exception):
    """It could not be told now; ``done`` changes before it were."""

    def __init__(self, words: str, done: int = 0) -> None:
        super().__init__(words)
        self.done = done


class Channel(Protocol):
    """A way to tell people; one thread calls it."""

    name: str

    def begin(self) -> None:
        """Called before the first changes, and again after a failure until it works; raises :class:`DeliveryError`."""

    def deliver(self, alerts: Sequence[ShownAlert]) -> int:
        """Tell changes, oldest first; how many are done with from the first on. Also called without any.

        What is not done with comes again at the next look, with what is new. Raises :class:`DeliveryError` for what is
        to be tried again after a pause.
        """


class _Waiting(NamedTuple):
    path: Path
    number: int
    alert: ShownAlert


class Deliverer:
    """Carries changes from the journals of ``root`` to a channel; call :meth:`look` often, from one thread.

    What was in a journal before the channel was first set up is not told. ``clock_s`` is monotonic. ``delivered``,
    ``lost`` and ``waiting`` count changes, since it was made; ``error`` says what fails now.
    """

    def __init__(self, root: Path, channel: Channel, clock_s: Callable[[], float]) -> None:
        self._root, self._channel, self._clock_s = root, channel, clock_s
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._begun = False
        self.delivered = self.lost = self.waiting = 0
        self.error = ""
        root.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(root / f"alert-delivery-{channel.name}.sqlite", check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        with self._db:
            self._db.execute("CREATE TABLE IF NOT EXISTS places (journal TEXT PRIMARY KEY, number INTEGER)")
            if not self._db.execute("PRAGMA user_version").fetchone()[0]:  # the channel is new
                places = [(path.name, newest_number(path)) for path in journals(root)]
                self._db.executemany("INSERT OR REPLACE INTO places VALUES (?, ?)", places)
                self._db.execute("PRAGMA user_version = 1")

    def look(self) -> None:
        """Tell what is new, unless a pause after a failure goes on."""
        if not self._backoff.is_over(self._clock_s()):
            return
        try:
            if not self._begun:
                self._channel.begin()
                self._begun = True
            while self._tell():
                pass
            self.error = ""
            self._backoff.reset()
        except DeliveryError as error:
            if not self.error:
                _log.warning("%s: %s", self._channel.name, error)
            self.error = f"alerts by {self._channel.name}: {error}"
            self._begun = False
            self._backoff.failed(self._clock_s())

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def _tell(self) -> bool:
        """Tell some; whether there are more that can be told now."""
        waiting = self._read()
        self.waiting = len(waiting)
        try:
            done = self._channel.deliver([one.alert for one in waiting])
        except DeliveryError as error:
            self._move_on(waiting[: error.done])
            raise
        self._move_on(waiting[:done])
        return 0 < done == len(waiting)

    def _read(self) -> list[_Waiting]:
        found = []
        for path in journals(self._root):
            row = self._db.execute("SELECT number FROM places WHERE journal = ?", (path.name,)).fetchone()
            place = row[0] if row else 0
            entries, gone = read_journal(path, place, A_LOOK)
            if gone:
                _log.error("%d changes of alerts are gone from %s before %s had them", gone, path, self._channel.name)
                self.lost += gone
                self._put(path, place + gone)
            found += [_Waiting(path, entry.number, entry.alert) for entry in entries]
        return found

    def _move_on(self, told: Sequence[_Waiting]) -> None:
        for path, number in {one.path: one.number for one in told}.items():
            self._put(path, number)
        self.delivered += len(told)
        self.waiting -= len(told)

    def _put(self, path: Path, number: int) -> None:
        with self._db:
            self._db.execute("INSERT OR REPLACE INTO places VALUES (?, ?)", (path.name, number))


def key_of(alert: ShownAlert) -> str:
    """Names a change for ever.

    >>> key_of({"id": "6f0c", "change": 2})
    '6f0c-2'
    """
    return f"{alert['id']}-{alert['change']}"


def is_at_least(alert: ShownAlert, severity: str) -> bool:
    """Whether it is as severe as that, and somebody was told of it or is to be: no merely pending one."""
    is_told = alert["state"] != "pending" and alert["fired_ms"] is not None
    return is_told and SEVERITIES.index(alert["severity"]) >= SEVERITIES.index(severity)
