"""Step 5 of the way of a reading: the samples of many log records, decoded and put into columns in one pass. Pure.

A record costs far more than a sample, and a gateway that keeps up writes records of one sample. So the windows take
the records of a whole read together. A *run* is a site's ``samples`` records between two other records of that site.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from edge.log import Record
from edge.wire.payloads import PayloadColumns
from edge.wire.samples import ENCODING, SampleColumns, decode_head
from services.ingest.windows.grid import Grid
from services.ingest.windows.headers import HeaderTable
from services.ingest.windows.open_rows import LOW_BITS, DeviceKey, Names, OpenSamples

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

    These are fewer than the run has if the next one has a name that cannot be decoded (``error`` says why), or if the
    last one made too many names. Nothing is taken from the site's later runs then.
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
        """Of each of these samples its record, and its place among the samples of that record."""
        record = np.searchsorted(self.starts, samples, "right") - 1
        return [*zip(record.tolist(), (samples - self.starts[record]).tolist(), strict=True)]


def take_runs(records: Sequence[Record], runs: Sequence[Run], heads: HeaderTable) -> list[RunSamples]:
    """The samples of all runs, which cover ``records`` in their order; their names get numbers.

    Raises ``msgspec.DecodeError`` if a payload is torn, holds no sample or is of an older version, without saying
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
    """The record with its payload in columns, whatever version wrote it; ``None`` if it holds no sample.

    Raises ``msgspec.DecodeError`` on a torn one.
    """
    columns = SampleColumns.of(record.payload)
    if record.payload[:1] != bytes([ENCODING]):
        record = record._replace(payload=columns.payload())
    return record if len(columns) else None


def _row_ends(ts_ms: I64, begins: I64, steps_ms: Sequence[int | None]) -> list[int | None]:
    """The end of the row that all samples of a run belong to; ``None`` if they belong to several, or if a site's
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

    def __init__(self, columns: PayloadColumns, heads: HeaderTable) -> None:
        self._columns, self._heads = columns, heads
        self._ends = np.cumsum(columns.counts)
        high = columns.seq >> LOW_BITS  # few devices have any; these bits count as part of the device
        self._high_at = np.flatnonzero(high)
        self._high = high[self._high_at]
        of, self._brings = heads.look_up(columns.heads)
        payload = np.repeat(np.arange(len(columns.counts)), columns.counts)
        self._high_payload = payload[self._high_at]
        self._high_device = np.zeros(len(self._high_at), np.int32)  # the numbers that these samples' devices get
        self._decoded: dict[bytes, tuple[bytes, ...]] = {}  # the devices of these samples' heads
        self._device = heads.devices.places(of, columns.device, payload)
        self._metric_set = heads.metric_sets.places(of, columns.metric_set, payload)
        self.lengths = heads.lengths.all[self._metric_set]  # [n], how many values each sample has
        if (np.add.reduceat(self.lengths, self._ends - columns.counts) != columns.value_counts).any():
            raise msgspec.DecodeError("values do not fit the other columns")
        self._met: set[int] = set()  # ids of the names of sites that runs before this one belong to
        self._ended: set[int] = set()  # of those of which no more is taken

    def take(self, run: Run) -> tuple[int, str]:
        """Number a run; how many of its records could be, and what was wrong with the one behind them."""
        names, stop, error = run.names, run.first, ""
        if id(names) not in self._ended:
            if not names.too_many and self._number_known(run):
                stop = run.stop
            elif id(names) not in self._met or names.has_room(self._most_new(run)):
                # New names may let old ones go, by what is open then: so the runs before it are taken first.
                stop, error = self._one_by_one(run)
        self._met.add(id(names))
        if stop < run.stop:
            self._ended.add(id(names))
            self._heads.skip(self._new(stop, run.stop))
        return stop - run.first, error

    def _number_known(self, run: Run) -> bool:
        """Number a run whose names all have numbers; false and nothing done where not."""
        high = self._high_of(run.first, run.stop)
        numbers = run.names.known_devices(self._high_devices(high)) if high.start < high.stop else []
        if numbers is None or not self._heads.number_known(self._new(run.first, run.stop), run.names):
            return False
        self._high_device[high] = numbers
        return True

    def _most_new(self, run: Run) -> int:
        """How many names of a run are new, at most."""
        high = self._high_of(run.first, run.stop)
        return self._heads.size(self._new(run.first, run.stop)) + len(self._high_at[high])

    def _one_by_one(self, run: Run) -> tuple[int, str]:
        if not len(self._high) and run.names.has_room(self._most_new(run)):
            with suppress(msgspec.DecodeError):  # which the loop finds again
                self._heads.number(self._new(run.first, run.stop), run.names)
                return run.stop, ""
        for at in range(run.first, run.stop):
            try:
                self._heads.number(self._new(at, at + 1), run.names)
                high = self._high_of(at, at + 1)
                if high.start < high.stop:
                    self._high_device[high] = run.names.of_devices(self._high_devices(high))
            except msgspec.DecodeError as error:
                return at, str(error)
            if run.names.too_many:
                return at + 1, ""
        return run.stop, ""

    def columns(self) -> tuple[I32, I32]:
        """The number of each sample's device and metric set [n]."""
        device = self._heads.devices.numbers.all[self._device].astype(np.int32)
        device[self._high_at] = self._high_device
        return device, self._heads.metric_sets.numbers.all[self._metric_set].astype(np.int32)

    def _new(self, first: int, stop: int) -> slice:
        """The new heads that these payloads bring."""
        return slice(int(self._brings[first]), int(self._brings[stop]))

    def _high_of(self, first: int, stop: int) -> slice:
        """Which of the samples whose ``seq`` has upper bits these payloads hold."""
        if not len(self._high):
            return slice(0, 0)
        begin, end = np.searchsorted(self._high_payload, [first, stop]).tolist()
        return slice(begin, end)

    def _high_devices(self, high: slice) -> list[DeviceKey]:
        """The device of each of these samples, with the upper bits of its ``seq``."""
        keys: list[DeviceKey] = []
        at = self._high_at[high]
        of = self._high_payload[high].tolist(), self._columns.device[at].tolist(), self._high[high].tolist()
        for payload, device, bits in zip(*of, strict=True):
            head = self._columns.heads[payload]
            if head not in self._decoded:
                self._decoded[head] = decode_head(head).devices
            keys.append((self._decoded[head][device], bits))
        return keys
