"""Step 5 of the way of a reading: the samples of steps that are still open, in columns, each id once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import count, repeat
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from edge.wire.reading import Sample
from edge.wire.samples import MetricSet, decode_device

__all__ = ["LOW_BITS", "Names", "OpenRow", "OpenSamples"]

Bools = npt.NDArray[np.bool_]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

LOW_BITS = 32
"""So many bits of ``seq`` stand in a key; the bits above them count as part of the device."""

_LOW = (1 << LOW_BITS) - 1
_FIRST_ROOM = 64
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
        keys: I64 = (self.device.astype(np.int64) if ranks is None else ranks[self.device]) << LOW_BITS
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
        self._devices = {_key(msgspec.msgpack.encode(d[:3]), d.high): n for n, d in enumerate(self.devices)}
        self._metric_sets = {names: n for n, names in enumerate(self.metric_sets)}
        self.zones = {device.zone for device in self.devices}
        self._room = 2 * (len(self.devices) + len(self.metric_sets)) + _SPARE_NAMES
        self._ranks: I64 = np.empty(0, np.int64)

    def known_devices(self, encoded: Iterable[bytes], high: Iterable[int] = repeat(0)) -> list[int] | None:
        """The numbers of devices and of the upper bits of their ``seq``; ``None`` where one has no number yet."""
        numbers = [*map(self._devices.get, map(_key, encoded, high))]
        return None if None in numbers else numbers  # type: ignore[return-value]

    def known_metric_sets(self, metric_sets: Iterable[MetricSet]) -> list[int] | None:
        """The numbers of metric sets; ``None`` where one has no number yet."""
        numbers = [*map(self._metric_sets.get, metric_sets)]
        return None if None in numbers else numbers  # type: ignore[return-value]

    def of_devices(self, encoded: Sequence[bytes], high: Iterable[int] = repeat(0)) -> list[int]:
        """The numbers of devices, as :attr:`edge.wire.samples.Head.devices` has them, and of the upper bits of their
        ``seq``. Raises ``msgspec.DecodeError`` where one cannot be decoded; then none of them has got a number.
        """
        keys = [_key(device, bits) for device, bits in zip(encoded, high, strict=False)]
        new = dict.fromkeys(key for key in keys if key not in self._devices)
        pairs = [(key, 0) if isinstance(key, bytes) else key for key in new]
        counted = [Counted(*decode_device(device), bits) for device, bits in pairs]
        self._devices.update(zip(new, count(len(self.devices)), strict=False))
        self.devices += counted
        self.zones.update(device.zone for device in counted)
        return [self._devices[key] for key in keys]

    def of_metric_sets(self, metric_sets: Iterable[MetricSet]) -> list[int]:
        """The numbers of metric sets."""
        numbers = []
        for names in metric_sets:
            number = self._metric_sets.get(names)
            if number is None:
                self.metric_sets.append(names)
                number = self._metric_sets[names] = len(self.metric_sets) - 1
            numbers.append(number)
        return numbers

    @property
    def too_many(self) -> bool:
        """Whether there are so many that :meth:`compacted` may drop some."""
        return not self.has_room(0)

    def has_room(self, more: int) -> bool:
        """Whether they are not too many with so many more."""
        return len(self.devices) + len(self.metric_sets) + more <= self._room

    def samples(self, site: str, samples: OpenSamples, chosen: I64) -> list[Sample]:
        """Those of a site's samples at the indices ``chosen`` as objects."""
        ends = np.cumsum(self.lengths(samples.metric_set))
        made = []
        for at in chosen.tolist():
            metrics = self.metric_sets[samples.metric_set[at]]
            values = dict(zip(metrics, samples.values[ends[at] - len(metrics) : ends[at]].tolist(), strict=True))
            zone, device, boot, _ = self.devices[samples.device[at]]
            made.append(Sample(site, zone, device, boot, int(samples.seq[at]), int(samples.ts_ms[at]), values))
        return made

    def by_zone(self, samples: OpenSamples) -> Counter[str]:
        """How many of the samples each zone has."""
        counts = Counter[str]()
        of_device = np.bincount(samples.device)
        for device in np.flatnonzero(of_device).tolist():
            counts[self.devices[device].zone] += int(of_device[device])
        return counts

    @property
    def ranks(self) -> I64:
        """The place of each device's name in their order."""
        if len(self._ranks) < len(self.devices):
            self._ranks = np.empty(len(self.devices), np.int64)
            self._ranks[sorted(range(len(self.devices)), key=self.devices.__getitem__)] = range(len(self.devices))
        return self._ranks

    def compacted(self, rows: Mapping[int, OpenRow]) -> tuple[Names, dict[int, OpenRow]] | None:
        """Names and rows without the names that no row needs any more; ``None`` while those are few."""
        if not self.too_many:
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


def _key(device: bytes, high: int) -> bytes | tuple[bytes, int]:
    return (device, high) if high else device


class OpenRow:
    """A step's samples in the order in which they came, in columns with room to spare."""

    def __init__(self) -> None:
        self._room = _room(_FIRST_ROOM, _FIRST_ROOM)
        self._count = self._values = 0
        self._recent: set[int] = set()  # keys; what is no longer recent stands in a sorted array, a tenth of the size
        self._settled: I64 = np.empty(0, np.int64)

    @classmethod
    def of(cls, samples: OpenSamples) -> OpenRow:
        """A row that holds these."""
        row = cls()
        row._room, row._settled = samples, np.sort(samples.keys())
        row._count, row._values = len(samples.seq), len(samples.values)
        return row

    def new(self, keys: I64, listed: list[int]) -> Bools | None:
        """Which keys are neither here nor earlier among ``keys``; ``None`` when all are, as they nearly always are.

        ``listed`` are the keys as a list.
        """
        settled = self._in_settled(keys) if len(self._settled) else None
        recent = not self._recent.isdisjoint(listed)
        repeated = len(set(listed)) < len(listed)
        if settled is None and not recent and not repeated:
            return None
        new = np.ones(len(keys), bool) if settled is None else ~settled
        for key in self._recent.intersection(listed):
            new[keys == key] = False
        if repeated:
            first = np.zeros(len(keys), bool)
            first[np.unique(keys, return_index=True)[1]] = True
            new &= first
        return new

    def add(self, samples: OpenSamples, listed: list[int]) -> None:
        """Take samples that are all new; ``listed`` are their keys."""
        count, values = self._count + len(samples.seq), self._values + len(samples.values)
        if count > len(self._room.seq) or values > len(self._room.values):
            before, self._room = self.samples(), _room(max(count, 2 * self._count), max(values, 2 * self._values))
            self._count = self._values = 0
            self._append(before)
        self._append(samples)
        self._recent.update(listed)
        if len(self._recent) > max(_RECENT, len(self._settled) // 8):
            recent = np.fromiter(self._recent, np.int64, len(self._recent))
            # Two runs that are sorted, or nearly: the stable sort merges them.
            self._settled = np.sort(np.concatenate([self._settled, np.sort(recent)]), kind="stable")
            self._recent.clear()

    def samples(self) -> OpenSamples:
        """All of them; good until the next :meth:`add`."""
        device, metric_set, seq, ts_ms, values = self._room
        n = self._count
        return OpenSamples(device[:n], metric_set[:n], seq[:n], ts_ms[:n], values[: self._values])

    def _append(self, samples: OpenSamples) -> None:
        first, first_value = self._count, self._values
        count = self._count = first + len(samples.seq)
        self._values += len(samples.values)
        device, metric_set, seq, ts_ms, values = self._room
        device[first:count] = samples.device
        metric_set[first:count] = samples.metric_set
        seq[first:count] = samples.seq
        ts_ms[first:count] = samples.ts_ms
        values[first_value : self._values] = samples.values

    def _in_settled(self, keys: I64) -> Bools | None:
        at = np.minimum(np.searchsorted(self._settled, keys), len(self._settled) - 1)
        found: Bools = self._settled[at] == keys
        return found if found.any() else None


def _room(samples: int, values: int) -> OpenSamples:
    return OpenSamples(
        np.empty(samples, np.int32), np.empty(samples, np.int32), np.empty(samples, np.int64),
        np.empty(samples, np.int64), np.empty(values),
    )  # fmt: skip
