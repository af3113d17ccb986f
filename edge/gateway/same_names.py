"""Step 2 of the way of a reading: devices that give several readings one name.

``boot`` and ``seq`` name a reading, and step 5 takes what has the name of another for its copy. Of a device that sends
one ``seq`` for ever a single reading counts in each row, and nobody would notice. So it is with one that begins again
at 1 under its old ``boot``.
"""

from __future__ import annotations

from edge.wire.reading import Refusal, Sample

__all__ = ["MOST_TOPICS", "SameNames"]

MOST_TOPICS = 10_000
_HOUR_MS = 3_600_000
_MEANS = (
    "a reading with the name of another is taken for its copy; count seq up with each reading, and send a new boot at "
    "each start"
)


class SameNames:
    """Looks at one sample after another, and tells of a device once an hour.

    >>> same = SameNames()
    >>> [same.look("t", Sample("s", "z", "d", "9f3c62d1", 1, ts, {}), 0) is None for ts in (10, 10, 20, 30)]
    [True, True, False, True]
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int, str]] = {}  # topic -> seq, ts_ms and boot of its newest sample
        self._told: dict[str, int] = {}  # topic -> the hour in which it was told

    def look(self, topic: str, sample: Sample, now_ms: int) -> Refusal | None:
        """What is to be said of a sample, which counts as it is."""
        last, self._last[topic] = self._last.get(topic), (sample.seq, sample.ts_ms, sample.boot)
        if last is None:
            if len(self._last) > MOST_TOPICS:  # somebody makes topics up
                self._last.clear()
                self._told.clear()
            return None
        seq, ts_ms, boot = last
        if boot != sample.boot or sample.seq > seq or ts_ms == sample.ts_ms:
            return None
        if sample.seq < seq and sample.ts_ms < ts_ms:  # what the device kept, or a broker sends again
            return None
        hour = now_ms // _HOUR_MS
        if self._told.get(topic) == hour:
            return None
        self._told[topic] = hour
        what = "was sent before, with another ts" if sample.seq == seq else f"comes after seq {seq}, with a later ts"
        return Refusal("malformed", topic[:256], f"seq {sample.seq} {what}: {_MEANS}", whole=False)
