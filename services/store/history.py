"""Step 6 of the way of a reading: rows as Parquet, cut by UTC day of a row's end.

``history/zones/{site}/{YYYY-MM-DD}-p{partition}-{step}s.parquet`` and ``history/devices/...`` alike are a function of
the rows alone, whatever the number of flushes and crashes on the way. Rows stand in the order of their ends, so that
the newest, which are nearly all that comes, go behind what is there. Small files of past days become larger ones that
hold the same rows (:mod:`services.store.compaction`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from services.store.compaction import Span, compact, current, key_for, remove_retired
from services.store.parquet import day_of, largest, read_table, version_of, write_table
from services.store.rows import DeviceRows, SiteStep
from services.store.storage import Storage, always, stored_in

__all__ = ["History", "MissingAdded", "age_column", "folder_of", "zone_table"]

ROUNDING = 1e-4
"""Values that differ by less than this share, or than this where they are small, are the same: files are rounded."""


class MissingAdded(NamedTuple):
    """What became of rows that were to be added where there was none."""

    added: int
    there: int
    conflicts: int  # of those that were there: they say something else


def age_column(channel: str) -> str:
    """The column with the age in seconds of a channel's newest reading.

    >>> age_column("rh_pct")
    'rh_pct_age_s'
    """
    return f"{channel}_age_s"


class History:
    """Reads and writes the history of a storage; one writer a partition, any number of readers.

    ``channels`` are needed to write zone rows and to read an empty range. Only rows of ``step_s`` are read, as those
    before and after a change of the step make no series; all are written.
    """

    def __init__(self, storage: Storage | Path, channels: Sequence[str], step_s: int = 300) -> None:
        self.storage = stored_in(storage)
        self.step_s = step_s
        self.channels = tuple(channels)
        self._pending: list[SiteStep] = []
        self._switching = Lock()  # of the thread that flushes and the one that compacts

    def add(self, steps: Iterable[SiteStep]) -> None:
        """Take rows; they are durable after the next :meth:`flush`. The same row again changes nothing."""
        self._pending.extend(steps)

    @property
    def pending(self) -> int:
        """Steps that wait for a flush."""
        return len(self._pending)

    def flush(self, check: Callable[[int], None] = lambda partition: None) -> None:
        """Make every added row durable; raises :class:`HistoryError` and keeps them for the next flush if it cannot.

        ``check`` raises when the partition it is given belongs to another writer by now; no file of it is touched then.
        """
        by_file: dict[tuple[str, str, int, int], list[SiteStep]] = {}
        for step in self._pending:
            step_s = step.step_ms // 1000 or self.step_s
            by_file.setdefault((step.site, day_of(step.end_ms), step.partition, step_s), []).append(step)
        for (site, day, partition, step_s), steps in by_file.items():
            still_ours = partial(check, partition)
            still_ours()
            span = Span(partition, step_s, day, day)
            for kind, table, keys in (
                ("zones", zone_table(self.channels, steps), ("end_ms", "zone")),
                ("devices", _device_table(steps), ("end_ms", "zone", "device", "metric")),
            ):
                if len(table):
                    with self._switching:
                        key = key_for(self.storage, folder_of(kind, site), span)
                        _merge(self.storage, key, table, keys, still_ours)
        self._pending = []

    def add_missing(
        self, partition: int, site: str, rows: pa.Table, check: Callable[[], None] = always
    ) -> MissingAdded:
        """Make zone rows of one UTC day durable, where there is none of that zone and end: what is there stays.

        ``rows`` has the columns of :func:`zone_table`. For the partition's writer; rows that wait for a flush are
        looked at too. Raises as :meth:`flush`.
        """
        ends = rows["end_ms"].to_numpy()
        before = self.read(int(ends.min()) - 1, int(ends.max()), [site])
        there = {
            key: n for n, key in enumerate(zip(before["end_ms"].to_pylist(), before["zone"].to_pylist(), strict=True))
        }
        known = [there.get(key) for key in zip(rows["end_ms"].to_pylist(), rows["zone"].to_pylist(), strict=True)]
        new = rows.filter(pa.array([n is None for n in known], pa.bool_()))
        old = rows.filter(pa.array([n is not None for n in known], pa.bool_()))
        conflicts = _differing(
            old, before.take(pa.array([n for n in known if n is not None], pa.int64())), self.channels
        )
        if len(new):
            day = day_of(int(ends.min()))
            with self._switching:
                key = key_for(self.storage, folder_of("zones", site), Span(partition, self.step_s, day, day))
                _merge(self.storage, key, new, ("end_ms", "zone"), check)
        return MissingAdded(len(new), len(old), conflicts)

    def compact(
        self, before_ms: int, partitions: Collection[int], check: Callable[[], None] = always,
        wall_s: Callable[[], float] = time.time,
    ) -> int:  # fmt: skip
        """Make larger files of the small ones of days before that of ``before_ms``; returns how many it replaced.

        For the writer of the ``partitions``, in any thread; ``check`` raises when they belong to another one by now.
        Safe to be stopped anywhere and to be repeated. Raises :class:`HistoryError`.
        """
        replaced = 0
        kinds = ("zones", "devices")
        for folder in [folder_of(kind, site) for kind in kinds for site in self._sites(kind)]:
            replaced += compact(self.storage, folder, day_of(before_ms), partitions, check, self._switching)
            remove_retired(self.storage, folder, partitions, wall_s())
        return replaced

    def sites(self) -> list[str]:
        """The sites that have rows."""
        return self._sites("zones")

    def _sites(self, kind: str) -> list[str]:
        return list(self.storage.list_folder(f"history/{kind}").folders)

    def _spans(self, kind: str, site: str) -> list[Span]:
        return [span for span in current(self.storage, folder_of(kind, site)) if span.step_s == self.step_s]

    def newest_ms(self, site: str) -> int:
        """The end of a site's newest row, from the footers of its newest files alone; 0 where it has none."""
        spans = self._spans("zones", site)
        last = max((span.last for span in spans), default="")
        newest = [f"{folder_of('zones', site)}/{span.name}" for span in spans if span.last == last]
        return max((largest(self.storage, key, "end_ms") for key in newest), default=0)

    def first_day_ms(self, site: str) -> int:
        """The midnight (UTC) before a site's first row; 0 where it has none."""
        spans = self._spans("zones", site)
        first = min((span.first for span in spans), default="1970-01-01")
        return round(datetime.fromisoformat(first).replace(tzinfo=UTC).timestamp() * 1000)

    def files(
        self, start_ms: int | None = None, end_ms: int | None = None, sites: Sequence[str] | None = None,
        kind: str = "zones",
    ) -> list[str]:  # fmt: skip
        """Where the files (``kind`` zones or devices) are that may hold rows with ``start_ms < row end <= end_ms``,
        sorted: paths, or URLs.
        """
        return [self.storage.address(key) for key in self.keys(start_ms, end_ms, sites, kind)]

    def keys(
        self, start_ms: int | None = None, end_ms: int | None = None, sites: Sequence[str] | None = None,
        kind: str = "zones",
    ) -> list[str]:  # fmt: skip
        """The same, by their names in the storage."""
        first = "" if start_ms is None else day_of(start_ms)
        last = "9999-99-99" if end_ms is None else day_of(end_ms)
        chosen = []
        for site in self.sites() if sites is None else sorted(sites):
            there = [span.name for span in self._spans(kind, site) if first <= span.last and span.first <= last]
            chosen += [f"{folder_of(kind, site)}/{name}" for name in sorted(there)]
        return chosen

    def read(
        self, start_ms: int | None = None, end_ms: int | None = None, sites: Sequence[str] | None = None,
        kind: str = "zones",
    ) -> pa.Table:  # fmt: skip
        """Rows with ``start_ms < row end <= end_ms``, sorted by site, zone, (device, metric,) end."""
        tables = [read_table(self.storage, key) for key in self.keys(start_ms, end_ms, sites, kind)]
        if not tables:
            return (zone_table(self.channels, []) if kind == "zones" else _device_table([])).combine_chunks()
        table = pa.concat_tables(tables, promote_options="default").combine_chunks()
        ends = table["end_ms"].to_numpy()
        keep = np.ones(len(ends), bool)
        if start_ms is not None:
            keep &= ends > start_ms
        if end_ms is not None:
            keep &= ends <= end_ms
        table = table.filter(pa.array(keep))
        keys = [c for c in ("site", "zone", "device", "metric", "end_ms") if c in table.column_names]
        return table.sort_by([(key, "ascending") for key in keys])


def folder_of(kind: str, site: str) -> str:
    """Where the rows of a site lie."""
    return f"history/{kind}/{site}"


def zone_table(channels: Sequence[str], steps: Sequence[SiteStep]) -> pa.Table:
    """The zone rows of steps, as files of the history have them."""
    counts = [len(step.zones) for step in steps]
    width = len(channels)
    empty = np.empty((0, width), np.float32)
    values = np.concatenate([empty, *(step.values for step in steps)])
    ages = np.concatenate([empty, *(step.ages_s for step in steps)])
    columns = {
        "site": pa.array([s.site for s in steps for _ in s.zones], pa.string()),
        "zone": pa.array([zone for s in steps for zone in s.zones], pa.string()),
        "end_ms": pa.array(np.repeat(np.array([s.end_ms for s in steps], np.int64), counts)),
        "schema_version": pa.array(np.repeat(np.array([s.schema_version for s in steps], np.int32), counts)),
    }
    for index, channel in enumerate(channels):
        columns[channel] = pa.array(np.ascontiguousarray(values[:, index]))
    for index, channel in enumerate(channels):
        columns[age_column(channel)] = pa.array(np.ascontiguousarray(ages[:, index]))
    return pa.table(columns)


def _merge(storage: Storage, key: str, new: pa.Table, keys: tuple[str, ...], check: Callable[[], None]) -> None:
    """Add rows to a file; of rows with equal keys the newest stays. What was read is replaced, nothing newer."""
    version = version_of(storage, key)
    before = read_table(storage, key) if version else new.slice(0, 0)
    newest = pc.max(before["end_ms"]).as_py()
    new = _in_order(new, keys)
    if newest is None or newest < new["end_ms"][0].as_py():
        table = pa.concat_tables([before, new])
    else:
        table = _in_order(pa.concat_tables([before, new]), keys)
    write_table(storage, key, table, check, version)


def _differing(new: pa.Table, old: pa.Table, channels: Sequence[str]) -> int:
    """How many rows say something else than the old row beside them, of a channel that they know."""
    differs = np.zeros(len(new), bool)
    for name in channels:
        if name in old.column_names:
            said, there = new[name].to_numpy(), old[name].to_numpy()
            differs |= ~np.isnan(said) & ~(np.abs(said - there) <= ROUNDING * np.maximum(np.abs(there), 1))
    return int(differs.sum())


def _in_order(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Sorted by the keys; of rows with equal keys only the last."""
    places = table.append_column("_place", pa.array(np.arange(len(table))))
    order = pc.sort_indices(places, sort_keys=[(key, "ascending") for key in (*keys, "_place")])
    table = table.take(order).combine_chunks()
    after, until = table.slice(1), table.slice(0, max(len(table) - 1, 0))
    differs = np.zeros(len(until), bool)
    for key in keys:
        differs |= np.asarray(pc.not_equal(after[key], until[key]))
    return table.filter(pa.array(np.append(differs, len(table) > 0)[: len(table)]))


def _device_table(steps: Sequence[SiteStep]) -> pa.Table:
    tables = [DeviceRows.of(step.devices) for step in steps]
    counts = [len(table) for table in tables]

    def column(name: str, kind: Any) -> pa.Array:
        parts = [np.empty(0, object if kind is None else kind), *(getattr(table, name) for table in tables)]
        whole = np.concatenate(parts)
        return pa.array(whole, pa.string()) if kind is None else pa.array(whole.astype(kind))

    return pa.table({
        "site": pa.array(np.repeat(np.array([step.site for step in steps], object), counts), pa.string()),
        "zone": column("zone", None), "device": column("device", None), "metric": column("metric", None),
        "end_ms": pa.array(np.repeat(np.array([step.end_ms for step in steps], np.int64), counts)),
        "schema_version": pa.array(np.repeat(np.array([step.schema_version for step in steps], np.int32), counts)),
        "count": column("n", np.int32),
        **{name: column(name, np.float32) for name in ("mean", "min", "max", "last")},
    })  # fmt: skip
