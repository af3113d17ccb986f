"""An object store between which and its client things go wrong, as drawn from a seed, or as a test says."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from services.errors import HothouseError, StorageAwayError, StorageRefusedError
from services.store.storage.object_server import Body, Objects, ObjectServer
from services.store.storage.storage import Entry, Stored

__all__ = ["FAULTS", "FaultyServer"]

FAULTS = ("lost", "answer lost", "twice", "lagging", "busy", "expired")
"""A request that never arrives; one that is done and not answered; a put that arrives again later; a list of before;
503 with Retry-After; and a login that expires.
"""


class FaultyServer:
    """``inner``, but for ``faults``; ``chance`` of one at each request. ``next`` are those of the next requests."""

    def __init__(
        self, inner: ObjectServer, seed: int = 0, chance: float = 0.3, faults: Collection[str] = FAULTS
    ) -> None:  # fmt: skip
        self._inner, self._rng, self.chance, self._faults = inner, random.Random(seed), chance, list(faults)
        self.url, self.next, self.happened = inner.url, list[str](), list[str]()
        self._late: list[Callable[[], object]] = []  # puts that will arrive once more
        self._before: dict[str, Objects] = {}  # lists as they were
        self._expired, self._fresh = False, 0

    def get(self, key: str, start: int = 0, length: int | None = None) -> Stored:
        self._pass(self._fault(("lost", "busy", "expired")))
        return self._inner.get(key, start, length)

    def head(self, key: str) -> Entry | None:
        self._pass(self._fault(("lost", "busy", "expired")))
        return self._inner.head(key)

    def put(self, key: str, body: Body, version: str | None) -> str:
        sent = body if isinstance(body, bytes) else Path(body).read_bytes()
        fault = self._fault(("lost", "answer lost", "twice", "busy", "expired"))
        self._pass(fault)
        made = self._inner.put(key, sent, version)
        if fault == "twice":
            self._late.append(lambda: self._inner.put(key, sent, version))
        if fault == "answer lost":
            raise StorageAwayError(f"{self.url} does not answer")
        return made

    def list_folder(self, folder: str) -> Objects:
        fault = self._fault(("lagging", "lost", "busy", "expired"))
        self._pass(fault)
        found = self._before.get(folder, ((), {})) if fault == "lagging" else self._inner.list_folder(folder)
        self._before[folder] = self._inner.list_folder(folder)
        return found

    def delete(self, key: str) -> None:
        fault = self._fault(("lost", "answer lost", "busy", "expired"))
        self._pass(fault)
        self._inner.delete(key)
        if fault == "answer lost":
            raise StorageAwayError(f"{self.url} does not answer")

    def renew(self) -> None:
        self._expired, self._fresh = False, 2  # a new login lasts for more than a request

    def _fault(self, possible: Collection[str]) -> str:
        if self._late and self._rng.random() < 0.5:
            with suppress(HothouseError):  # its condition does not hold any more
                self._late.pop(self._rng.randrange(len(self._late)))()
        if self.next:
            fault = self.next.pop(0)
        else:
            fault = self._rng.choice(self._faults) if self._faults and self._rng.random() < self.chance else ""
        fault = fault if fault in possible else ""
        if fault:
            self.happened.append(fault)
        return fault

    def _pass(self, fault: str) -> None:
        """Raise what a fault makes of a request before it arrives."""
        self._expired |= fault == "expired" and not self._fresh
        self._fresh = max(self._fresh - 1, 0)
        if self._expired:
            raise StorageRefusedError(f"{self.url} refuses what it is asked: ExpiredToken")
        if fault == "lost":
            raise StorageAwayError(f"{self.url} does not answer")
        if fault == "busy":
            raise StorageAwayError(f"{self.url} is too busy", pause_s=1.0)
