"""Storages of every kind, for tests of what is kept in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from services.store.storage import FolderStorage, MemoryServer, ObjectStorage, Pauses, Storage, open_storage
from services.store.storage.cloud_server import CloudServer
from tests.contracts.faulty_proxy import FaultyProxy
from tests.contracts.faulty_server import FAULTS, FaultyServer
from tests.s3 import s3_address

__all__ = ["KINDS", "TABLE_KINDS", "FakeTime", "Open", "faulty", "faulty_s3", "opener"]

Open = Callable[[], Storage]
"""Gives the same storage, as a new process opens it."""

KINDS = ["folder", "memory", "faulty", *(pytest.param(kind, marks=pytest.mark.s3) for kind in ("s3", "s3 faulty"))]
"""Parameters of a fixture."""


TABLE_KINDS = [
    "folder", pytest.param("s3", marks=pytest.mark.s3), pytest.param("s3 faulty", marks=pytest.mark.s3),
]  # fmt: skip
"""Those that tables can lie in: other programs reach them, too."""


class FakeTime:
    """A clock on which sleeps take no time; it keeps how long each was."""

    def __init__(self) -> None:
        self.now_s, self.slept = 0.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds

    def pauses(self, total_s: float = 1e6) -> Pauses:
        return Pauses(total_s=total_s, sleep=self.sleep, clock_s=lambda: self.now_s)


def faulty(seed: int = 0, chance: float = 0.3) -> tuple[ObjectStorage, FaultyServer]:
    """A storage in memory, and what goes wrong on the way to it."""
    server = FaultyServer(MemoryServer(), seed, chance)
    return ObjectStorage(server, FakeTime().pauses()), server


def opener(kind: str, folder: Path, chance: float = 0.3, faults: Sequence[str] = FAULTS) -> Open:
    """Opens an empty storage of that kind; ``chance`` and ``faults`` are those of the faulty one in memory,
    and the chance that of the real one behind a proxy.
    """
    if kind == "folder":
        return lambda: FolderStorage(folder)
    if kind == "s3":
        address = s3_address(folder)
        return lambda: open_storage.__wrapped__(address)
    if kind == "s3 faulty":
        return faulty_s3(folder, chance)
    server, seeds = MemoryServer(), iter(range(1000))
    patient = Pauses(total_s=1e6, sleep=lambda _: None, clock_s=float)
    if kind == "memory":
        return lambda: ObjectStorage(server, patient)
    return lambda: ObjectStorage(FaultyServer(server, next(seeds), chance, tuple(faults)), patient)


def faulty_s3(folder: Path, chance: float = 0.3) -> Open:
    """The real S3 server, with a client that meets faults on the way there and does not wait before it asks again."""
    address = s3_address(folder)
    proxy = _proxy(address.endpoint)
    proxy.begin(chance=chance)
    proxy.held_s = (0.01, 0.1)
    pauses = Pauses(total_s=600, sleep=lambda _: time.sleep(0.001))
    return lambda: ObjectStorage(CloudServer(replace(address, endpoint=proxy.endpoint)), pauses)


@cache
def _proxy(endpoint: str) -> FaultyProxy:
    """One for all tests of a process, which run one after the other: they need not end it."""
    return FaultyProxy(endpoint).__enter__()
