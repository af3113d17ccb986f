"""Step 9 of the way of a reading: what every way of telling people about alerts has in common.

The journals of the partitions are the queue, and are on the storage. A way to tell has a place in each of them, which
is there, too (``alert-delivery/{name}.json``), and moves on only behind what was told. So nothing is lost over a
restart, an outage or a lost machine; what was in doubt is told again, under the same name (an alert's id and the number
of its change).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from edge.timing import Backoff
from models.alerts.alert_rule import SEVERITIES
from services.errors import NotStoredError, StartError
from services.ingest.alerts.alert_journal import JournalReader, journals
from services.messages import ShownAlert
from services.store.storage import Storage, stored_in

__all__ = ["Channel", "Deliverer", "DeliveryError", "damage_told", "is_at_least", "key_of", "places_key"]

_log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
A_LOOK = 200
"""Changes of a journal that are told before the place in it is written."""


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
    journal: str
    number: int
    alert: ShownAlert


class Deliverer:
    """Carries changes from the journals of ``root`` to a channel; call :meth:`look` often, from one thread.

    What was in a journal before the channel was first set up is not told. ``clock_s`` is monotonic. ``lost`` and
    ``waiting`` count changes, since it was made; ``error`` says what fails now.
    """

    def __init__(self, root: Storage | Path, channel: Channel, clock_s: Callable[[], float]) -> None:
        self._storage, self._channel, self._clock_s = stored_in(root), channel, clock_s
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._begun = self._stopped = False
        self.lost = self.waiting = 0
        self.error = ""
        self._key = places_key(channel.name)
        self._readers: dict[str, JournalReader] = {}
        self._places, self._are_kept = self._first_places()

    def _first_places(self) -> tuple[dict[str, int], bool]:
        try:
            with damage_told(self._storage, self._key):
                kept = json.loads(self._storage.read(self._key).content)
                return {str(name): int(at) for name, at in kept.items()}, True
        except NotStoredError:  # the channel is new
            places = {name: self._reader(name).newest_number() for name in journals(self._storage)}
            self._storage.put(self._key, _encoded(places))
            return places, True

    def look(self) -> None:
        """Tell what is new, unless a pause after a failure goes on."""
        if not self._backoff.is_over(self._clock_s()):
            return
        try:
            if not self._begun:
                self._channel.begin()
                self._begun = True
            while not self._stopped and self._tell():
                pass
            self.error = ""
            self._backoff.reset()
        except DeliveryError as error:
            self._begun = False
            self._failed(error)
        except OSError as error:  # the storage is away
            self._failed(error)

    def stop(self) -> None:
        """The look that goes on, if one does, begins no other call of the channel. For any thread."""
        self._stopped = True

    def _failed(self, error: Exception) -> None:
        if not self.error:
            _log.warning("%s: %s", self._channel.name, error)
        self.error = f"alerts by {self._channel.name}: {error}"
        self._backoff.failed(self._clock_s())

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
        if not self._are_kept:  # what was told is not to be forgotten before more is told
            self._keep_places()
        found = []
        for name in journals(self._storage):
            place = self._places.get(name, 0)
            entries, gone = self._reader(name).read(place, A_LOOK)
            if gone:
                _log.error("%d changes of alerts are gone from %s before %s had them", gone, name, self._channel.name)
                self.lost += gone
                self._places[name] = place + gone
                self._keep_places()
            found += [_Waiting(name, entry.number, entry.alert) for entry in entries]
        return found

    def _move_on(self, told: Sequence[_Waiting]) -> None:
        self.waiting -= len(told)
        if told:
            self._places |= {one.journal: one.number for one in told}
            self._keep_places()

    def _keep_places(self) -> None:
        self._are_kept = False
        self._storage.put(self._key, _encoded(self._places))
        self._are_kept = True

    def _reader(self, name: str) -> JournalReader:
        return self._readers.setdefault(name, JournalReader(self._storage, name))


def places_key(channel: str) -> str:
    """The object with a channel's places: a journal's name -> the number of the newest change that was told."""
    return f"alert-delivery/{channel}.json"


def _encoded(places: dict[str, int]) -> bytes:
    return json.dumps(places, sort_keys=True).encode()


@contextmanager
def damage_told(storage: Storage, key: str) -> Iterator[None]:
    """Around the reading of what a channel has kept; raises :class:`StartError` where it is damaged."""
    try:
        yield
    except (ValueError, TypeError, AttributeError) as error:
        raise StartError(
            f"{storage.address(key)} is damaged: {error}",
            "Bring it back from a backup, or remove it: what it holds of alerts that were told, or wait, is lost then.",
        ) from error


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
