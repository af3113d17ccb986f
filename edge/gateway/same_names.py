"""Step 2 of the way of a reading: devices that give several readings one name.

``boot`` and ``seq`` name a reading, and step 5 takes what has the name of another for its copy. Of a device that sends
one ``seq`` for ever a single reading counts in each row, and nobody would notice. So it is with one that begins again
at 1 under its old ``boot``.
"""

from __future__ import annotations

from dataclasses import dataclass

from edge.wire.reading import Refusal, Sample
from models.durations import HOUR_MS

__all__ = ["IN_A_ROW", "MOST_TOPICS", "SameNames"]

MOST_TOPICS = 10_000
IN_A_ROW = 3
"""A device is told of once so many readings of it are suspect in a row: a clock that was set back, and a network that
lets one reading overtake another, make a single one look so.
"""
_MEANS = (
    "a reading with the name of another is taken for its copy; count seq up with each reading, and send a new boot at "
    "each start"
)


@dataclass(slots=True)
class _Device:
    """The sample with the largest ``seq`` of this ``boot``, and what came since."""

    boot: str
    seq: int
    ts_ms: int
    suspect: int = 0  # samples since, each with a name that cannot be new


class SameNames:
    """Looks at one sample after another, and tells of a device once an hour.

    >>> same = SameNames()
    >>> said = [same.look("t", Sample("s", "z", "d", "9f3c62d1", 1, ts, {}), 0) for ts in (10, 10, 20, 30, 40, 50)]
    >>> [one is None for one in said]
    [True, True, True, True, False, True]
    """

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}  # by topic
        self._told: dict[str, int] = {}  # topic -> the hour in which it was told

    def look(self, topic: str, sample: Sample, now_ms: int) -> Refusal | None:
        """What is to be said of a sample, which counts as it is."""
        device = self._devices.get(topic)
        if device is None and len(self._devices) >= MOST_TOPICS:  # somebody makes topics up
            self._devices.clear()
            self._told.clear()
        if device is None or device.boot != sample.boot or sample.seq > device.seq:
            self._devices[topic] = _Device(sample.boot, sample.seq, sample.ts_ms)
            return None
        if sample.ts_ms == device.ts_ms or (sample.seq < device.seq and sample.ts_ms < device.ts_ms):
            return None  # a copy, or what the device kept
        device.suspect += 1
        hour = now_ms // HOUR_MS
        if device.suspect < IN_A_ROW or self._told.get(topic) == hour:
            return None
        self._told[topic] = hour
        self._devices[topic] = _Device(sample.boot, sample.seq, sample.ts_ms)  # one that begins again goes on from here
        again = sample.seq == device.seq
        what = "was sent before, with another ts" if again else f"comes after seq {device.seq}, with a later ts"
        return Refusal("malformed", topic[:256], f"seq {sample.seq} {what}: {_MEANS}", whole=False)
