"""Step 5 of the way of a reading: what the heads of payloads name, as numbers in columns. Pure.

A device that sends a sample a message has the same head each time. So a head is decoded once, and what it names is
looked up for many payloads at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, count, repeat

import msgspec
import numpy as np
import numpy.typing as npt

from edge.wire.samples import SampleHeader, decode_head
from services.ingest.windows.open_rows import Names

__all__ = ["HeaderTable"]

I64 = npt.NDArray[np.int64]

_MOST, _MOST_BYTES = 100_000, 16 * 1024 * 1024
"""Entries kept, and bytes of encoded heads; when there are more, all are forgotten and met again."""


class _Column:
    """Numbers that grow at the end."""

    def __init__(self) -> None:
        self._room = np.empty(64, np.int64)
        self._size = 0

    def extend(self, numbers: Sequence[int]) -> None:
        before, self._size = self._size, self._size + len(numbers)
        if self._size > len(self._room):
            self._room = np.concatenate([self._room[:before], np.empty(self._size, np.int64)])
        self._room[before : self._size] = numbers

    @property
    def all(self) -> I64:
        return self._room[: self._size]


class _Items:
    """What heads name, devices or metric sets: head ``h`` has ``counts[h]`` of them, from place ``starts[h]`` on."""

    def __init__(self) -> None:
        self._starts, self._counts, self.numbers = _Column(), _Column(), _Column()
        self._size = 0

    def add(self, counts: Sequence[int]) -> None:
        """Add heads with this many items each, which get their numbers later."""
        starts = [*accumulate(counts, initial=self._size)]
        self._starts.extend(starts[:-1])
        self._counts.extend(counts)
        self._size = starts[-1]

    @property
    def behind(self) -> bool:
        """Whether heads were added whose items never got numbers."""
        return len(self.numbers.all) < self._size

    def places(self, heads: I64, index: I64, payload: I64) -> I64:
        """Where items stand: of each sample [n] the one at ``index`` among those of its ``payload``'s head.

        Raises ``msgspec.DecodeError`` if there is no such item.
        """
        if (index >= self._counts.all[heads][payload]).any():
            raise msgspec.DecodeError("columns do not fit each other")
        return index + self._starts.all[heads][payload]


class HeaderTable:
    """The heads of one partition's payloads. What they name has numbers of their site's names, so they are to be
    forgotten when any site begins with other names.

    For each batch: :meth:`look_up`; then each head that is new gets numbers or is skipped, in their order.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all heads."""
        self._known: dict[bytes, int] = {}
        self._bytes = 0  # of all that are known
        self._new: list[SampleHeader] = []  # heads of this batch that were not known
        self._skipped = False
        self.devices, self.metric_sets, self.lengths = _Items(), _Items(), _Column()

    def look_up(self, encoded: Sequence[bytes]) -> tuple[I64, I64]:
        """The head of each payload [p], and how many new heads the payloads before it bring [p + 1].

        Raises ``msgspec.DecodeError`` if one cannot be decoded.
        """
        if (
            self._skipped
            or self.devices.behind
            or len(self.lengths.all) > _MOST
            or len(self.devices.numbers.all) > _MOST
            or self._bytes > _MOST_BYTES
        ):
            self.forget()
        found = np.fromiter(map(self._known.get, encoded, repeat(-1)), np.int64, len(encoded))
        brings = np.zeros(len(encoded) + 1, np.int64)
        unknown = np.flatnonzero(found < 0).tolist()
        new: dict[bytes, int] = {}  # where each is met first
        for at in unknown:
            new.setdefault(encoded[at], at)
        self._new = [decode_head(head) for head in new]
        if new:
            self._known.update(zip(new, count(len(self._known))))
            self._bytes += sum(map(len, new))
            self.devices.add([len(head.devices) for head in self._new])
            self.metric_sets.add([len(head.metric_sets) for head in self._new])
            self.lengths.extend([len(names) for head in self._new for names in head.metric_sets])
            found[unknown] = [self._known[encoded[at]] for at in unknown]
            brings[np.array([*new.values()]) + 1] = 1
        return found, np.cumsum(brings)

    def size(self, new: slice) -> int:
        """How many devices and metric sets the next new heads name."""
        return sum(len(head.devices) + len(head.metric_sets) for head in self._new[new])

    def number_known(self, new: slice, names: Names) -> bool:
        """Number the next new heads, where ``names`` has all that they name; false and nothing done where not."""
        heads = self._new[new]
        devices = names.known_devices(chain.from_iterable([head.devices for head in heads]))
        metric_sets = names.known_metric_sets(chain.from_iterable([head.metric_sets for head in heads]))
        if devices is None or metric_sets is None:
            return False
        self.devices.numbers.extend(devices)
        self.metric_sets.numbers.extend(metric_sets)
        return True

    def number(self, new: slice, names: Names) -> None:
        """Number the next new heads; raises ``msgspec.DecodeError``, with nothing done, where a device is torn."""
        heads = self._new[new]
        self.devices.numbers.extend(names.of_devices([device for head in heads for device in head.devices]))
        metric_sets = names.of_metric_sets([metrics for head in heads for metrics in head.metric_sets])
        self.metric_sets.numbers.extend(metric_sets)

    def skip(self, new: slice) -> None:
        """Leave the next new heads without numbers; all are forgotten with the next batch."""
        for head in self._new[new]:
            self._skipped = True
            self.devices.numbers.extend([0] * len(head.devices))
            self.metric_sets.numbers.extend([0] * len(head.metric_sets))
