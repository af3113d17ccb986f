"""Step 6 of the way of a reading: which sites the files of a table have, and from when to when.

For a file of one site the log says so. A file of several is read, once: files never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from services.store.storage import Storage
from services.store.tables.delta_log import TableFile, TableState
from services.store.tables.read_files import FETCHED_AT_ONCE, fetchers, read_files

__all__ = ["FileSpans", "SpanOfSites", "one_then_several"]

SpanOfSites = dict[str, tuple[int, int]]
"""The first and the last time of each site in a file; both ends count."""


class FileSpans:
    """The spans of a table's files: in ``folder`` of a storage, times in ms in ``time_column``. Any thread may ask."""

    def __init__(self, storage: Storage, folder: str, time_column: str) -> None:
        self._storage, self._folder, self._time = storage, folder, time_column
        self._known: dict[str, SpanOfSites] = {}

    def of(self, state: TableState, files: Sequence[TableFile]) -> list[SpanOfSites]:
        """The span of each file; those that are not known yet are read together. Raises :class:`HistoryError`."""
        known = self._known
        new = [file for file in files if file.path not in known and file.sites[0] != file.sites[1]]
        if new:
            read = fetchers().map(lambda file: self._read(state, file), new)
            kept = {path: span for path, span in known.items() if path in state.files}
            known = self._known = kept | dict(zip((file.path for file in new), read, strict=True))
        return [known.get(file.path) or {file.sites[0]: (file.first_ms, file.last_ms)} for file in files]

    def _read(self, state: TableState, file: TableFile) -> SpanOfSites:
        assert state.schema is not None
        sizes = {f"{self._folder}/{file.path}": file.size}
        rows = read_files(self._storage, sizes, state.schema, ["site", self._time], None)
        ends = pa.TableGroupBy(rows, "site").aggregate([(self._time, "min"), (self._time, "max")]).to_pydict()
        spans = zip(ends["site"], ends[f"{self._time}_min"], ends[f"{self._time}_max"], strict=True)
        return {site: (first, last) for site, first, last in spans}


def one_then_several(files: Sequence[TableFile]) -> Iterator[Sequence[TableFile]]:
    """The first, which often says it all; then as many as are fetched at once."""
    if files:
        yield files[:1]
    for begin in range(1, len(files), FETCHED_AT_ONCE):
        yield files[begin : begin + FETCHED_AT_ONCE]
