"""Who runs on a state in a bucket: owners write themselves down there, as in a folder's ``owner/``."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from services.errors import ChangedError, NotStoredError
from services.store.storage.storage import Storage

__all__ = ["BEAT_S", "OwnersInStorage"]

OWNERS = "owner"
BEAT_S = 5.0
"""Each sign of life is a list and a write, which are paid for. An owner is dead after 20 s without one."""


class OwnersInStorage:
    """Owners as objects (:class:`services.runtime.state_lock.OwnersPlace`). ``machine`` names this machine and boot.

    The kernel's lock on ``data_dir`` keeps others from the bucket only if they have the same data folder. A record
    replaces the one that this owner wrote before, and no other: one that hung, and arrives when the owner has left,
    changes nothing.
    """

    def __init__(self, storage: Storage, machine: str, data_dir: Path) -> None:
        self.name, self.beat_s, self._storage = storage.url, BEAT_S, storage
        self._machine = f"{machine}/{data_dir}"
        self._numbers, self._version = count(), ""
        self._unanswered = dict[bytes, int]()  # records that may be there, by number

    def machine(self) -> str:
        """As the contract says."""
        return self._machine

    def newest(self) -> int:
        """As the contract says."""
        return max(map(_epoch_of, self._storage.list_folder(OWNERS).names), default=0)

    def make(self, epoch: int, record: bytes) -> None:
        """As the contract says."""
        self._version = self._storage.put_new(_key(epoch), record)

    def write(self, epoch: int, record: bytes) -> None:
        """As the contract says."""
        number = next(self._numbers)
        self._unanswered[record] = number
        try:
            self._version = self._storage.swap(_key(epoch), record, self._version)
        except ChangedError:
            found = self._storage.read(_key(epoch))
            if self._unanswered.get(found.content, number) >= number:
                raise
            self._version = self._storage.swap(_key(epoch), record, found.version)
        self._unanswered = {said: at for said, at in self._unanswered.items() if at > number}

    def read(self, epoch: int) -> bytes:
        """As the contract says."""
        try:
            return self._storage.read(_key(epoch)).content
        except NotStoredError:
            return b""

    def remove_older(self, epoch: int) -> None:
        """As the contract says."""
        for name in self._storage.list_folder(OWNERS).names:
            if 0 < _epoch_of(name) < epoch:
                self._storage.delete(f"{OWNERS}/{name}")


def _key(epoch: int) -> str:
    return f"{OWNERS}/{epoch:012d}.json"


def _epoch_of(name: str) -> int:
    stem = name.removesuffix(".json")
    return int(stem) if stem.isdigit() else 0
