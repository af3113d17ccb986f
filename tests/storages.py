"""Storages of every kind, for tests of what is kept in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from services.store.storage import FolderStorage, MemoryServer, ObjectStorage, Pauses, Storage, open_storage
from tests.contracts.faulty_server import FAULTS, FaultyServer
from tests.s3 import s3_address

__all__ = ["KINDS", "TABLE_KINDS", "Open", "opener"]

Open = Callable[[], Storage]
"""Gives the same storage, as a new process opens it."""

KINDS = ["folder", "memory", "faulty", pytest.param("s3", marks=pytest.mark.s3)]
"""Parameters of a fixture."""


TABLE_KINDS = ["folder", pytest.param("s3", marks=pytest.mark.s3)]
"""Those that tables can lie in: other programs reach them, too."""


def opener(kind: str, folder: Path, chance: float = 0.3, faults: Sequence[str] = FAULTS) -> Open:
    """Opens an empty storage of that kind; ``chance`` and ``faults`` are those of the faulty one."""
    if kind == "folder":
        return lambda: FolderStorage(folder)
    if kind == "s3":
        address = s3_address(folder)
        return lambda: open_storage.__wrapped__(address)
    server, seeds = MemoryServer(), iter(range(1000))
    patient = Pauses(total_s=1e6, sleep=lambda _: None, clock_s=float)
    if kind == "memory":
        return lambda: ObjectStorage(server, patient)
    return lambda: ObjectStorage(FaultyServer(server, next(seeds), chance, tuple(faults)), patient)
