"""A table that is replaced while it is read: readers see the one before or the one after, never a piece of each."""

from __future__ import annotations

import io
import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from services.learn.training import dataset
from services.store.parquet import largest, read_table, schema_of
from services.store.storage import MemoryServer, ObjectStorage, StorageAddress
from services.store.storage.storage import Entry, Stored

KEY = "history/zones/demo/2022-03-01-p0-300s.parquet"


class Busy(MemoryServer):
    """Another table is there after each request: longer each time, as a day's rows are."""

    def get(self, key: str, start: int = 0, length: int | None = None) -> Stored:
        found = super().get(key, start, length)
        self.grow()
        return found

    def head(self, key: str) -> Entry | None:
        found = super().head(key)
        self.grow()
        return found

    def grow(self) -> None:
        rows = 1000 * next(self.sizes)
        columns = {"site": ["demo"] * rows, "zone": ["z1"] * rows, "end_ms": range(1, rows + 1), "a": [0.5] * rows}
        content = io.BytesIO()
        pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), content)
        self.put(KEY, content.getvalue(), None)

    sizes = itertools.count(1)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> ObjectStorage:
    server = Busy("s3://b")
    server.grow()
    made = ObjectStorage(server)
    monkeypatch.setattr(dataset, "open_storage", lambda _: made, raising=False)
    return made


def test_the_history_reads_one_table_or_the_other(storage: ObjectStorage) -> None:
    """Rows, columns and the newest row alike."""
    assert len(read_table(storage, KEY)) % 1000 == 0
    assert largest(storage, KEY, "end_ms") % 1000 == 0
    assert schema_of(storage, KEY).names == ["site", "zone", "end_ms", "a"]


def test_a_training_reads_one_table_or_the_other(storage: ObjectStorage) -> None:
    """While the system runs, the newest day is written again and again."""
    files, where = [storage.address(KEY)], StorageAddress(url="s3://b")
    assert dataset.oldest_ms(files, where) == 1
    newest = dataset.newest_ms(files, where)
    assert newest is not None
    assert newest % 1000 == 0
    assert dataset.describe(files, 0, 1000, where).rows == {"demo/z1": 1000}
    assert len(dataset.gather(files, ["a"], 0, 1000, ["demo/z1"], where).end_ms) == 1000
