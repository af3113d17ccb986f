"""Rows of one table for tests: made, written and read, by processes that may end at any moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from services.store.history import ZONE_ROWS
from services.store.storage import Storage
from services.store.tables import row_table
from services.store.tables.delta_log import DeltaLog
from services.store.tables.row_table import RowTable

__all__ = ["DAY", "STEP", "T0", "CrashError", "crashing", "rows", "table", "there"]

T0, STEP, DAY = 1_646_092_800_000, 300_000, 86_400_000  # 2022-03-01 00:00 UTC


def table(storage: Storage) -> RowTable:
    return RowTable(storage, ZONE_ROWS)


def rows(*numbers: int, site: str = "demo", zones: tuple[str, ...] = ("z1", "z2"), **more: float) -> pa.Table:
    count = len(numbers) * len(zones)
    ends = np.repeat([T0 + n * STEP for n in numbers], len(zones))
    columns = {"air_temp_c": pa.array(np.repeat(np.array(numbers, np.float32), len(zones)))}
    columns |= {name: pa.array(np.full(count, value, np.float32)) for name, value in more.items()}
    names = {"site": pa.array([site] * count), "zone": pa.array(list(zones) * len(numbers))}
    return pa.table({**names, "end_ms": pa.array(ends, pa.int64()), **columns})


def there(storage: Storage, site: str = "demo", zone: str = "z1") -> list[int]:
    found = table(storage).read(sites=[site], zones=[zone])
    return [] if found is None else sorted((found["end_ms"].to_numpy() - T0) // STEP)


class CrashError(BaseException):
    """Stands for the end of the process: nothing cleans up after it."""


def crashing(patch: pytest.MonkeyPatch, moments: Iterator[bool], *more: tuple[Any, str]) -> None:
    """Each file that is written and each commit may be the last thing that a process does, before or after it; so may
    be ``more`` methods.
    """

    def around(act: Callable[..., Any]) -> Callable[..., Any]:
        def acted(*said: Any, **more: Any) -> Any:
            if next(moments):
                raise CrashError
            done = act(*said, **more)
            if next(moments):
                raise CrashError
            return done

        return acted

    for owner, name in ((row_table, "write_table"), (DeltaLog, "_commit"), *more):
        patch.setattr(owner, name, around(getattr(owner, name)))
