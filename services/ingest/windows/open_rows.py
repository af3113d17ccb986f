"""Step 5 of the way of a reading: the samples of steps that are still open, in columns, each id once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from edge.wire.reading import Sample
from edge.wire.samples import MetricSet, decode_device

__all__ = ["LOW_BITS", "DeviceKey", "Names", "OpenRow", "OpenSamples"]

Bools = npt.NDArray[np.bool_]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

LOW_BITS = 32
"""A key holds this many bits of ``seq``; the bits above them count as part of the device."""

_LOW = (1 << LOW_BITS) - 1
_DEVICE_BITS = 31  # of a key
_FIRST_ROOM = 64
_RECENT = 4096
_SPARE_NAMES = 2000


DeviceKey = bytes | tuple[bytes, int]
"""A device as :attr:`edge.wire.samples.SampleHeader.devices` has it, with the upper bits of ``seq`` where they are
not zero.
"""


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

    def keys(self) -> I64:
        """One number a sample id [n]. The device is in the lower bits: a set finds its place by these, and devices
        that began together have the same ``seq``.
        """
        keys: I64 = (self.seq & _LOW) << _DEVICE_BITS | self.device
        return keys

    def order(self, ranks: I64) -> I64:
        """The indices that put them in the order of ``ranks`` of devices, and of ``seq`` within a device."""
        order: I64 = np.argsort(ranks[self.device] << LOW_BITS | self.seq & _LOW, kind="stable")
        return order

    def cut(self, part: slice, lengths: I64) -> OpenSamples:
        """The samples of a slice; ``lengths`` [n] says how many values each has."""
        first = int(lengths[: part.start].sum())
        values = self.values[first : first + int(lengths[part].sum())]
        return OpenSamples(self.device[part], self.metric_set[part], self.seq[part], self.ts_ms[part], values)

    def chosen(self, which: Bools, lengths: I64) -> OpenSamples:
        """Only the chosen samples; ``lengths`` [n] says how many values each has."""
        device, metric_set, seq, ts_ms, values = self
        return OpenSamples(
            device[which], metric_set[which], seq[which], ts_ms[which], values[np.repeat(which, lengths)]
        )


class Names:
    """Numbers for the devices and metric sets of a site's open samples; no row depends on which number is whose."""

    def __init__(self, devices: Iterable[Sequence[Any]] = (), metric_sets: Iterable[Sequence[str]] = ()) -> None:
        self.devices = [Counted(*device) for device in devices]
        self.metric_sets = [tuple(names) for names in metric_sets]
        self._devices: dict[DeviceKey, int] = {_key(device): n for n, device in enumerate(self.devices)}
        self._metric_sets = {names: n for n, names in enumerate(self.metric_sets)}
        self.zones = {device.zone for device in self.devices}
        self._room = 2 * (len(self.devices) + len(self.metric_sets)) + _SPARE_NAMES
        self._ranks: I64 = np.empty(0, np.int64)

    def known_devices(self, keys: Iterable[DeviceKey]) -> list[int] | None:
        """The numbers of devices; ``None`` if one has no number yet."""
        numbers = [*map(self._devices.get, keys)]
        return None if None in numbers else numbers  # type: ignore[return-value]

    def known_metric_sets(self, metric_sets: Iterable[MetricSet]) -> list[int] | None:
        """The numbers of metric sets; ``None`` if one has no number yet."""
        numbers = [*map(self._metric_sets.get, metric_sets)]
        return None if None in numbers else numbers  # type: ignore[return-value]

    def of_devices(self, keys: Sequence[DeviceKey]) -> list[int]:
        """The numbers of devices; raises ``msgspec.DecodeError`` if one cannot be decoded, and none got a number."""
        new = dict.fromkeys(key for key in keys if key not in self._devices)
        counted = [Counted(*decode_device(device), high) for device, high in map(_parts, new)]
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
        """Whether there are enough for :meth:`compacted` to drop some."""
        return not self.has_room(0)

    def has_room(self, more: int) -> bool:
        """Whether there is room for this many more."""
        return len(self.devices) + len(self.metric_sets) + more <= self._room

    def samples(self, site: str, samples: OpenSamples, chosen: I64) -> list[Sample]:
        """The samples at the indices ``chosen``, as objects."""
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
        counts: dict[str, int] = {}
        of_device = np.bincount(samples.device)
        present = np.flatnonzero(of_device)
        for device, samples_of_it in zip(present.tolist(), of_device[present].tolist(), strict=True):
            zone = self.devices[device].zone
            counts[zone] = counts.get(zone, 0) + samples_of_it
        return Counter(counts)

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


def _key(device: Counted) -> DeviceKey:
    encoded = msgspec.msgpack.encode(device[:3])
    return (encoded, device.high) if device.high else encoded


def _parts(key: DeviceKey) -> tuple[bytes, int]:
    return (key, 0) if isinstance(key, bytes) else key


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

    def take(self, samples: OpenSamples, keys: I64, lengths: I64) -> Bools | None:
        """Take each sample whose key is neither here nor earlier among ``keys`` [n]; which those are [n], ``None`` when
        it is all, as it nearly always is. ``lengths`` [n] says how many values each has.
        """
        new = self._new(keys)
        self._append(samples if new is None else samples.chosen(new, lengths))
        if len(self._recent) > max(_RECENT, len(self._settled) // 8):
            recent = np.fromiter(self._recent, np.int64, len(self._recent))
            # Two runs that are sorted, or nearly: the stable sort merges them.
            self._settled = np.sort(np.concatenate([self._settled, np.sort(recent)]), kind="stable")
            self._recent.clear()
        return new

    def samples(self) -> OpenSamples:
        """All of them; good until the next :meth:`add`."""
        device, metric_set, seq, ts_ms, values = self._room
        n = self._count
        return OpenSamples(device[:n], metric_set[:n], seq[:n], ts_ms[:n], values[: self._values])

    def _new(self, keys: I64) -> Bools | None:
        """Which keys are new, ``None`` if all are; all are known from now on."""
        settled = self._in_settled(keys)
        listed = keys.tolist()
        known = () if self._recent.isdisjoint(listed) else self._recent.intersection(listed)
        more = len(self._recent) + len(listed) - len(known)
        self._recent.update(listed)
        repeated = len(self._recent) < more
        if settled is None and not known and not repeated:
            return None
        new = np.ones(len(keys), bool) if settled is None else ~settled
        for key in known:
            new[keys == key] = False
        if repeated:
            order = np.argsort(keys, kind="stable")
            rising = keys[order]
            new[order[1:][rising[1:] == rising[:-1]]] = False
        return new

    def _in_settled(self, keys: I64) -> Bools | None:
        if not len(self._settled):
            return None
        at = np.minimum(np.searchsorted(self._settled, keys), len(self._settled) - 1)
        found: Bools = self._settled[at] == keys
        return found if found.any() else None

    def _append(self, samples: OpenSamples) -> None:
        count, values = self._count + len(samples.seq), self._values + len(samples.values)
        if count > len(self._room.seq) or values > len(self._room.values):
            before, self._room = self.samples(), _room(2 * count, 2 * values)
            self._count = self._values = 0
            self._append(before)
        device, metric_set, seq, ts_ms, of_samples = self._room
        device[self._count : count] = samples.device
        metric_set[self._count : count] = samples.metric_set
        seq[self._count : count] = samples.seq
        ts_ms[self._count : count] = samples.ts_ms
        of_samples[self._values : values] = samples.values
        self._count, self._values = count, values


def _room(samples: int, values: int) -> OpenSamples:
    return OpenSamples(
        np.empty(samples, np.int32), np.empty(samples, np.int32), np.empty(samples, np.int64),
        np.empty(samples, np.int64), np.empty(values),
    )  # fmt: skip
