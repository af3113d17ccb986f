"""Step 6 of the way of a reading: what a table of rows holds, for all who read it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from models.durations import DAY_MS
from services.store.storage import Storage
from services.store.tables.compaction import FILE_ROWS, between, zone_runs
from services.store.tables.delta_log import DeltaLog, TableFile, TableState
from services.store.tables.file_name import FileName
from services.store.tables.file_spans import FileSpans, one_then_several
from services.store.tables.read_files import read_files, rows_within

__all__ = ["TableReader", "TableSpec"]


@dataclass(frozen=True, slots=True)
class TableSpec:
    """What a table holds: where it is, its column of time (ms), which columns say that a row, or what it belongs to, is
    there already, and the order of rows in a file.
    """

    folder: str
    time: str
    identity: tuple[str, ...]
    order: tuple[str, ...]


class TableReader:
    """Reads a table of a storage, in any threads.

    Rows have the columns ``site`` and ``zone``, those that the spec names, and whatever else.
    """

    def __init__(self, storage: Storage, spec: TableSpec) -> None:
        self.storage, self.spec = storage, spec
        self._log = DeltaLog(storage, spec.folder, spec.time)
        self._spans = FileSpans(storage, spec.folder, spec.time)

    def files(
        self, start_ms: int | None = None, end_ms: int | None = None, sites: Collection[str] | None = None,
        zones: Collection[str] | None = None, step_s: int | None = None,
    ) -> list[str]:  # fmt: skip
        """The files, by their names in the storage, that may hold rows with ``start_ms < time <= end_ms``, sorted."""
        return [self._key(file) for file in self._chosen(self._log.state(), start_ms, end_ms, sites, zones, step_s)]

    def read(
        self, start_ms: int | None = None, end_ms: int | None = None, sites: Collection[str] | None = None,
        zones: Collection[str] | None = None, step_s: int | None = None, columns: Sequence[str] | None = None,
        partition: int | None = None,
    ) -> pa.Table | None:  # fmt: skip
        """Rows with ``start_ms < time <= end_ms``, in no certain order; ``None`` where there is no table.

        A column that a file does not have is null in its rows, and one that no file has is left out. Raises
        :class:`HistoryError` for a damaged file.
        """
        state = self._log.state()
        if state.schema is None:
            return None
        files = self._chosen(state, start_ms, end_ms, sites, zones, step_s, partition)
        names = state.schema.names if columns is None else [name for name in columns if name in state.schema.names]
        within = rows_within(self.spec.time, start_ms, end_ms, sites, zones)
        return read_files(self.storage, self._sizes(files), state.schema, names, within)

    def pieces(
        self, start_ms: int | None = None, end_ms: int | None = None, sites: Collection[str] | None = None,
        zones: Collection[str] | None = None, step_s: int | None = None, columns: Sequence[str] = (),
    ) -> Iterator[pa.Table]:  # fmt: skip
        """As :meth:`read`, of some files at a time, for who needs no more of them in memory."""
        state = self._log.state()
        within, some = rows_within(self.spec.time, start_ms, end_ms, sites, zones), list[TableFile]()
        for file in [*self._chosen(state, start_ms, end_ms, sites, zones, step_s), None]:
            if some and (file is None or sum(one.rows for one in some) + file.rows > FILE_ROWS):
                assert state.schema is not None  # as there is a file
                names = [name for name in columns if name in state.schema.names]
                yield read_files(self.storage, self._sizes(some), state.schema, names, within)
                some = []
            some += [] if file is None else [file]

    def zone_runs(
        self, counts: pa.Table, start_ms: int | None = None, end_ms: int | None = None, step_s: int | None = None,
        columns: Sequence[str] = (),
    ) -> Iterator[pa.Table]:  # fmt: skip
        """As :meth:`read`, of some zones at a time, in order, each with all its rows. ``counts`` says which zones,
        and how many rows they have, as :func:`zone_runs` takes it.
        """
        for low, high in zone_runs(counts):
            state, run = self._log.state(), counts.filter(between(low, high))
            assert state.schema is not None  # as there are rows
            sites, zones = (pc.unique(run[name]).to_pylist() for name in ("site", "zone"))
            names = [name for name in columns if name in state.schema.names]
            files = self._chosen(state, start_ms, end_ms, sites, step_s=step_s)
            wanted = rows_within(self.spec.time, start_ms, end_ms, sites)
            assert wanted is not None  # as sites are named
            within = wanted & between(low, high) & pc.field("zone").isin(zones)
            yield read_files(self.storage, self._sizes(files), state.schema, names, within)

    def sites(self, partition: int | None = None) -> list[str]:
        """The sites that have rows, sorted."""
        state = self._log.state()
        files = self._chosen(state, partition=partition)
        return sorted({site for span in self._spans.of(state, files) for site in span})

    def span_ms(self, step_s: int | None = None) -> tuple[int, int] | None:
        """The times of the oldest and the newest row; ``None`` without rows. The log alone is read."""
        files = self._chosen(self._log.state(), step_s=step_s)
        return (min(file.first_ms for file in files), max(file.last_ms for file in files)) if files else None

    def reach_ms(self, start_ms: int, end_ms: int, sites: Collection[str]) -> int | None:
        """The time of the newest row in the files that may hold rows of sites with ``start_ms < time <= end_ms``;
        ``None`` without such a file. The log alone is read.
        """
        return max((file.last_ms for file in self._chosen(self._log.state(), start_ms, end_ms, sites)), default=None)

    def covered_ms(self, from_ms: int, to_ms: int, step_s: int | None = None) -> int:
        """How much of a time files have rows of: pauses of more than a day do not count. The log alone is read, so that
        a pause within a month counts once the month's days are one file.
        """
        covered_ms, until_ms = 0, from_ms
        files = self._chosen(self._log.state(), from_ms, to_ms, step_s=step_s)
        for file in sorted(files, key=lambda one: one.first_ms):
            first_ms, last_ms = max(file.first_ms, from_ms), min(file.last_ms, to_ms)
            begin_ms = until_ms if first_ms - until_ms <= DAY_MS else first_ms
            covered_ms += max(last_ms - begin_ms, 0)
            until_ms = max(until_ms, last_ms)
        return covered_ms

    def steps_s(self) -> list[int]:
        """Of which lengths of steps there are rows, sorted. The log alone is read."""
        return sorted({FileName.of(path).step_s for path in self._log.state().files})

    def newest_ms(self, site: str, step_s: int | None = None) -> int:
        """The time of a site's newest row; 0 where it has none."""
        return self._newest_in(self._log.state(), site, step_s)

    def newest_of_sites_ms(self, step_s: int | None = None) -> dict[str, int]:
        """As :meth:`newest_ms`, of every site, by one look at the log; each file is read once, as by :meth:`sites`."""
        state, newest = self._log.state(), dict[str, int]()
        for span in self._spans.of(state, self._chosen(state, step_s=step_s)):
            newest |= {site: max(last_ms, newest.get(site, 0)) for site, (_, last_ms) in span.items()}
        return newest

    def oldest_ms(self, site: str, step_s: int | None = None) -> int:
        """The time of a site's oldest row; 0 where it has none."""
        state, oldest = self._log.state(), 2**53
        files = self._chosen(state, sites=[site], step_s=step_s)
        for some in one_then_several(sorted(files, key=lambda file: file.first_ms)):
            if some[0].first_ms >= oldest:
                break
            oldest = min([oldest, *(span[site][0] for span in self._spans.of(state, some) if site in span)])
        return oldest if oldest < 2**53 else 0

    def _newest_in(self, state: TableState, site: str, step_s: int | None) -> int:
        newest = 0
        files = self._chosen(state, sites=[site], step_s=step_s)
        for some in one_then_several(sorted(files, key=lambda file: -file.last_ms)):
            if some[0].last_ms <= newest:
                break
            newest = max([newest, *(span[site][1] for span in self._spans.of(state, some) if site in span)])
        return newest

    def _chosen(
        self, state: TableState, start_ms: int | None = None, end_ms: int | None = None,
        sites: Collection[str] | None = None, zones: Collection[str] | None = None, step_s: int | None = None,
        partition: int | None = None,
    ) -> list[TableFile]:  # fmt: skip
        """The files that may hold such rows, by path."""

        def holds(file: TableFile) -> bool:
            name = FileName.of(file.path)
            return (
                (start_ms is None or file.last_ms > start_ms)
                and (end_ms is None or file.first_ms <= end_ms)
                and (sites is None or any(file.sites[0] <= site <= file.sites[1] for site in sites))
                and (zones is None or any(file.zones[0] <= zone <= file.zones[1] for zone in zones))
                and step_s in (None, name.step_s)
                and partition in (None, name.partition)
            )

        return sorted(filter(holds, state.files.values()), key=lambda file: file.path)

    def _key(self, file: TableFile) -> str:
        return f"{self.spec.folder}/{file.path}"

    def _sizes(self, files: Sequence[TableFile]) -> dict[str, int]:
        return {self._key(file): file.size for file in files}
