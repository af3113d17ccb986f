"""Step 5 of the way of a reading: the samples of many log records, decoded and put into columns in one pass. Pure.

A record costs far more than a sample, and a gateway that keeps up writes records of one sample. So the windows take
the records of a whole read together. A *run* is a site's ``samples`` records between two other records of that site.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from edge.log import Record
from edge.payloads import PayloadColumns
from edge.samples import ENCODING, SampleColumns, decode_head
from services.ingest.grid import Grid
from services.ingest.heads import Heads
from services.ingest.open_rows import LOW_BITS, Names, OpenSamples

__all__ = ["Run", "RunSamples", "in_columns", "take_runs"]

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


class Run(NamedTuple):
    """Records ``first`` to ``stop`` of a batch, all of one site, whose names and grid these are."""

    names: Names
    grid: Grid
    first: int
    stop: int


class RunSamples(NamedTuple):
    """The ``n`` samples of a run's first ``records`` records.

    These are not all where the next one has a name that cannot be decoded (``error`` says why), or where the last one
    made names too many. Of the site's runs behind it nothing is taken.
    """

    records: int
    error: str
    starts: I64  # [records], index of each record's first sample
    samples: OpenSamples
    lengths: I64  # [n], how many values each sample has
    trusted_ms: I64  # [n], event time, or receive time where that is earlier
    keys: I64  # [n]
    newest_ms: int  # greatest of trusted_ms, where the run was taken whole
    end_ms: int | None  # of the row that all belong to, where that is one and the run was taken whole

    def places(self, samples: I64) -> list[tuple[int, int]]:
        """The record of each of these samples, and which of the record's samples it is."""
        record = np.searchsorted(self.starts, samples, "right") - 1
        return [*zip(record.tolist(), (samples - self.starts[record]).tolist(), strict=True)]


def take_runs(records: Sequence[Record], runs: Sequence[Run], heads: Heads) -> list[RunSamples]:
    """The samples of all runs, which cover ``records`` in their order; their names get numbers.

    Raises ``msgspec.DecodeError`` where a payload is torn, holds no sample or is of an older version, without saying
    which: see :func:`in_columns`.
    """
    if not runs:
        return []
    columns = PayloadColumns.of([record.payload for record in records])
    numbers = _Numbers(columns, heads)
    taken = [numbers.take(run) for run in runs]
    device, metric_set = numbers.columns()
    keys = OpenSamples(device, metric_set, columns.seq, columns.ts_ms, columns.values).keys()
    receive_ms = np.array([record.receive_ms for record in records])
    # A clock ahead must not make the others late.
    trusted_ms = np.minimum(columns.ts_ms, np.repeat(receive_ms, columns.counts))
    starts = np.concatenate([[0], np.cumsum(columns.counts)])
    begins = starts[[run.first for run in runs]]
    newest = np.maximum.reduceat(trusted_ms, begins).tolist()
    row_ends = _row_ends(columns.ts_ms, begins, [run.grid.only_step_ms for run in runs])
    first_sample = starts.tolist()  # of each record
    first_value = np.concatenate([[0], np.cumsum(columns.value_counts)]).tolist()
    made = []
    for at, (run, (count, error)) in enumerate(zip(runs, taken, strict=True)):
        stop = run.first + count
        part = slice(first_sample[run.first], first_sample[stop])
        values = columns.values[first_value[run.first] : first_value[stop]]
        samples = OpenSamples(device[part], metric_set[part], columns.seq[part], columns.ts_ms[part], values)
        made.append(RunSamples(
            count, error, starts[run.first : stop] - part.start, samples, numbers.lengths[part], trusted_ms[part],
            keys[part], newest[at], row_ends[at] if stop == run.stop else None,
        ))  # fmt: skip
    return made


def in_columns(record: Record) -> Record | None:
    """The record with its payload in columns, whatever version wrote it; ``None`` where it holds no sample.

    Raises ``msgspec.DecodeError`` on a torn one.
    """
    columns = SampleColumns.of(record.payload)
    if record.payload[:1] != bytes([ENCODING]):
        record = record._replace(payload=columns.payload())
    return record if len(columns) else None


def _row_ends(ts_ms: I64, begins: I64, steps_ms: Sequence[int | None]) -> list[int | None]:
    """The end of the row that all samples of a run belong to; ``None`` where they belong to several, or where a site's
    rows are not all as long.
    """
    step_ms = np.array([step or 1 for step in steps_ms])
    numbers = -(-ts_ms // np.repeat(step_ms, np.diff(begins, append=len(ts_ms))))
    low, high = np.minimum.reduceat(numbers, begins), np.maximum.reduceat(numbers, begins)
    one = (low == high).tolist()
    return [
        end if step and alike else None
        for end, step, alike in zip((low * step_ms).tolist(), steps_ms, one, strict=True)
    ]


class _Numbers:
    """Gives what payloads name the numbers of their sites' names.

    Raises ``msgspec.DecodeError``, before any name has a number, where a head cannot be decoded or does not fit.
    """

    def __init__(self, columns: PayloadColumns, heads: Heads) -> None:
        self._columns, self._heads = columns, heads
        self._ends = np.cumsum(columns.counts)
        self._high = columns.seq >> LOW_BITS
        self._any_high = bool(self._high.any())
        of, self._brings = heads.look_up(columns.heads)
        payload = np.repeat(np.arange(len(columns.counts)), columns.counts)
        self._device = heads.devices.places(of, columns.device, payload)
        self._metric_set = heads.metric_sets.places(of, columns.metric_set, payload)
        self.lengths = heads.lengths.all[self._metric_set]  # [n], how many values each sample has
        if (np.add.reduceat(self.lengths, self._ends - columns.counts) != columns.value_counts).any():
            raise msgspec.DecodeError("values do not fit the other columns")
        self._by_sample: list[tuple[slice, list[int], list[int]]] = []  # where numbers are those of a sample alone
        self._met: set[int] = set()  # ids of the names of sites that runs before this one belong to
        self._ended: set[int] = set()  # of those of which no more is taken

    def take(self, run: Run) -> tuple[int, str]:
        """Number a run; how many of its records could be, and what was wrong with the one behind them."""
        names, stop, error = run.names, run.first, ""
        if id(names) not in self._ended:
            known = not (self._any_high or names.too_many)
            if known and self._heads.number_known(self._new(run.first, run.stop), names):
                stop = run.stop
            elif (
                id(names) not in self._met
            ):  # new names may let old ones go, by what is open then: so one run at a time
                stop, error = self._one_by_one(run)
        self._met.add(id(names))
        if stop < run.stop:
            self._ended.add(id(names))
            self._heads.skip(self._new(stop, run.stop))
        return stop - run.first, error

    def _one_by_one(self, run: Run) -> tuple[int, str]:
        for at in range(run.first, run.stop):
            try:
                self._number(run.names, at)
            except msgspec.DecodeError as error:
                return at, str(error)
            if run.names.too_many:
                return at + 1, ""
        return run.stop, ""

    def columns(self) -> tuple[I32, I32]:
        """The number of each sample's device and metric set [n]."""
        device = self._heads.devices.numbers.all[self._device].astype(np.int32)
        metric_set = self._heads.metric_sets.numbers.all[self._metric_set].astype(np.int32)
        for part, devices, metric_sets in self._by_sample:
            device[part], metric_set[part] = devices, metric_sets
        return device, metric_set

    def _new(self, first: int, stop: int) -> slice:
        """The new heads that these payloads bring."""
        return slice(int(self._brings[first]), int(self._brings[stop]))

    def _number(self, names: Names, at: int) -> None:
        if not self._any_high:
            return self._heads.number(self._new(at, at + 1), names)
        # A head's devices have other numbers where the upper bits of a ``seq`` differ.
        head, columns = decode_head(self._columns.heads[at]), self._columns
        part = slice(int(self._ends[at] - columns.counts[at]), int(self._ends[at]))
        each = [head.devices[index] for index in columns.device[part].tolist()]
        if not self._high[part].any():
            names.of_devices(head.devices)  # in the order of the head, as where no record has such bits
        devices = names.of_devices(each, self._high[part].tolist())
        metric_sets = names.of_metric_sets(head.metric_sets)
        self._by_sample.append((part, devices, [metric_sets[index] for index in columns.metric_set[part].tolist()]))
        self._heads.skip(self._new(at, at + 1))
