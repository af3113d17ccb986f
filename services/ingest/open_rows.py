"""Step 5 of the way of a reading: the samples of steps that are still open, in columns, each id once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from edge.samples import SampleColumns, decode_device

__all__ = ["Names", "OpenRow", "OpenSamples"]

Bools = npt.NDArray[np.bool_]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

_LOW_BITS = 32
_LOW = (1 << _LOW_BITS) - 1
_CHUNKS = 64
_RECENT = 4096
_SPARE_NAMES = 2000


class Counted(NamedTuple):
    """What counts samples up: a device's boot, and the upper bits of its ``seq``, so that the lower fit into a key."""

    zone: str
    device: str
    boot: str
    high: int


class OpenSamples(NamedTuple):
    """``n`` samples; ``device`` and ``metric_set`` are numbers of a :class:`Names`."""

    device: I32  # [n]
    metric_set: I32  # [n]
    seq: I64  # [n]
    ts_ms: I64  # [n]
    values: F64  # sample after sample, as many of each as its metric set has names

    def keys(self, ranks: I64 | None = None) -> I64:
        """One number a sample id [n], in the order of ``seq`` within a device; of devices in the order of ``ranks``."""
        keys: I64 = (self.device.astype(np.int64) if ranks is None else ranks[self.device]) << _LOW_BITS
        return keys | self.seq & _LOW

    def cut(self, part: slice, lengths: I64) -> OpenSamples:
        """Those of a slice; ``lengths`` [n] says how many values each has."""
        first = int(lengths[: part.start].sum())
        values = self.values[first : first + int(lengths[part].sum())]
        return OpenSamples(self.device[part], self.metric_set[part], self.seq[part], self.ts_ms[part], values)

    def chosen(self, which: Bools, lengths: I64) -> OpenSamples:
        """Only those; ``lengths`` [n] says how many values each has."""
        device, metric_set, seq, ts_ms, values = self
        return OpenSamples(
            device[which], metric_set[which], seq[which], ts_ms[which], values[np.repeat(which, lengths)]
        )


class Names:
    """Numbers for the devices and metric sets of a site's open samples; no row depends on which number is whose."""

    def __init__(self, devices: Iterable[Sequence[Any]] = (), metric_sets: Iterable[Sequence[str]] = ()) -> None:
        self.devices = [Counted(*device) for device in devices]
        self.metric_sets = [tuple(names) for names in metric_sets]
        self._devices = {(msgspec.msgpack.encode(d[:3]), d.high): n for n, d in enumerate(self.devices)}
        self._metric_sets = {names: n for n, names in enumerate(self.metric_sets)}
        self._room = 2 * (len(self.devices) + len(self.metric_sets)) + _SPARE_NAMES
        self._ranks: I64 = np.empty(0, np.int64)

    def number(self, columns: SampleColumns) -> OpenSamples:
        """The same samples, by our numbers; raises ``msgspec.DecodeError`` on a name that cannot be decoded."""
        high = columns.seq >> _LOW_BITS
        if high.any():
            pairs = [(columns.devices[d], h) for d, h in zip(columns.device.tolist(), high.tolist(), strict=True)]
            device = self._numbers(pairs)
        else:
            device = self._numbers([*zip(columns.devices, repeat(0))])[columns.device]
        known = [self._metric_sets.get(names, -1) for names in columns.metric_sets]
        for at, names in enumerate(columns.metric_sets):
            if known[at] < 0:
                known[at] = self._metric_sets[names] = len(self.metric_sets)
                self.metric_sets.append(names)
        metric_set = np.array(known, np.int32)[columns.metric_set]
        return OpenSamples(device, metric_set, columns.seq, columns.ts_ms, columns.values)

    @property
    def ranks(self) -> I64:
        """The place of each device's name in their order."""
        if len(self._ranks) < len(self.devices):
            self._ranks = np.empty(len(self.devices), np.int64)
            self._ranks[sorted(range(len(self.devices)), key=self.devices.__getitem__)] = range(len(self.devices))
        return self._ranks

    def compacted(self, rows: Mapping[int, OpenRow]) -> tuple[Names, dict[int, OpenRow]] | None:
        """Names and rows without the names that no row needs any more; ``None`` while those are few."""
        if len(self.devices) + len(self.metric_sets) <= self._room:
            return None
        samples = {end: row.samples() for end, row in rows.items()}
        devices = np.unique(np.concatenate([np.empty(0, np.int32), *(s.device for s in samples.values())]))
        sets = np.unique(np.concatenate([np.empty(0, np.int32), *(s.metric_set for s in samples.values())]))
        names = Names([self.devices[n] for n in devices], [self.metric_sets[n] for n in sets])
        return names, {
            end: OpenRow.of(s._replace(
                device=np.searchsorted(devices, s.device).astype(np.int32),
                metric_set=np.searchsorted(sets, s.metric_set).astype(np.int32),
            ))
            for end, s in samples.items()
        }  # fmt: skip

    def state(self) -> dict[str, Any]:
        """The arguments that make it again."""
        return {"devices": self.devices, "metric_sets": self.metric_sets}

    def lengths(self, metric_set: I32) -> I64:
        """How many values each sample has."""
        lengths: I64 = np.array([len(names) for names in self.metric_sets] or [0], np.int64)[metric_set]
        return lengths

    def _numbers(self, pairs: Sequence[tuple[bytes, int]]) -> I32:
        numbers = np.fromiter(map(self._devices.get, pairs, repeat(-1)), np.int32, len(pairs))
        for at in np.flatnonzero(numbers < 0).tolist():
            if pairs[at] not in self._devices:
                counted = Counted(*decode_device(pairs[at][0]), pairs[at][1])
                self._devices[pairs[at]] = len(self.devices)
                self.devices.append(counted)
            numbers[at] = self._devices[pairs[at]]
        return numbers


class OpenRow:
    """A step's samples in the order in which they came."""

    def __init__(self) -> None:
        self._chunks: list[OpenSamples] = []
        self._recent: set[int] = set()  # keys; what is no longer recent stands in a sorted array, a tenth of the size
        self._settled: I64 = np.empty(0, np.int64)

    @classmethod
    def of(cls, samples: OpenSamples) -> OpenRow:
        """A row that holds these."""
        row = cls()
        row._chunks, row._settled = [samples], np.sort(samples.keys())
        return row

    def new(self, keys: I64) -> Bools | None:
        """Which keys are neither here nor earlier among ``keys``; ``None`` when all are, as they nearly always are."""
        listed = keys.tolist()
        settled = self._in_settled(keys)
        known = self._recent.intersection(listed)
        repeated = len(set(listed)) < len(listed)
        if settled is None and not known and not repeated:
            return None
        new = np.ones(len(keys), bool) if settled is None else ~settled
        for key in known:
            new[keys == key] = False
        if repeated:
            first = np.zeros(len(keys), bool)
            first[np.unique(keys, return_index=True)[1]] = True
            new &= first
        return new

    def add(self, samples: OpenSamples, keys: I64) -> None:
        """Take samples that are all new."""
        self._chunks.append(samples)
        if len(self._chunks) == _CHUNKS:
            self._chunks = [self.samples()]
        self._recent.update(keys.tolist())
        if len(self._recent) > max(_RECENT, len(self._settled) // 8):
            recent = np.fromiter(self._recent, np.int64, len(self._recent))
            # Two runs that are sorted, or nearly: the stable sort merges them.
            self._settled = np.sort(np.concatenate([self._settled, np.sort(recent)]), kind="stable")
            self._recent.clear()

    def samples(self) -> OpenSamples:
        """All of them."""
        if len(self._chunks) == 1:
            return self._chunks[0]
        return OpenSamples(*(np.concatenate(column) for column in zip(*self._chunks, strict=True)))

    def _in_settled(self, keys: I64) -> Bools | None:
        if not len(self._settled):
            return None
        at = np.minimum(np.searchsorted(self._settled, keys), len(self._settled) - 1)
        found: Bools = self._settled[at] == keys
        return found if found.any() else None
