"""Disturbances of a publisher: copies, latecomers and nonsense among the samples, to test what is counted.

Each disturbance is one more message beside the true ones, so the true readings stay whole.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from edge.recordings.sample_source import new_boot
from edge.wire.reading import Sample, encode_message
from models.durations import DAY_MS, HOUR_MS

__all__ = ["KINDS", "Disturbance", "parse_rates"]

KINDS = ("duplicates", "late", "malformed", "future_ts", "out_of_range", "unknown_metric")
"""``duplicates`` and ``late`` are counted as such downstream; the others are reasons of a rejection."""

LATE_MS = 3 * HOUR_MS
"""How old a latecomer is unless said otherwise: far beyond any lateness, so its row has closed."""

FUTURE_MS = 30 * DAY_MS
"""How far ahead of its time a sample with a wrong clock is. A broker keeps it while a gateway is away, for hours of a
greenhouse that goes 600 times as fast. When it is received it must still lie ahead, or it would be a reading.
"""


def parse_rates(texts: list[str]) -> dict[str, float]:
    """Read ``KIND=RATE`` texts, a rate being messages a true sample; raises ``ValueError`` in one sentence.

    >>> parse_rates(["duplicates=0.01", "late=0.002"])
    {'duplicates': 0.01, 'late': 0.002}
    """
    rates = {}
    for text in texts:
        kind, _, rate = text.partition("=")
        try:
            rates[kind] = float(rate)
        except ValueError:
            rates[kind] = -1.0
        if kind not in KINDS or not 0 <= rates[kind] <= 1:
            raise ValueError(f"{text!r} is no disturbance: give KIND=RATE, KIND one of {', '.join(KINDS)}, RATE 0 to 1")
    return rates


class Disturbance:
    """Draws, for each true sample, what else its device sends; the same seed draws the same.

    A latecomer is ``late_ms`` old; there is none before twice that has passed since the first sample.
    """

    def __init__(self, rates: Mapping[str, float], seed: int | None = None, late_ms: int = LATE_MS) -> None:
        self._rates = rates
        self._late_ms = late_ms
        self._random = random.Random(seed)  # noqa: S311 (chance, not a secret)
        self._boot = new_boot(seed, "disturbance")
        self._seq = 0
        self._first_ms: int | None = None

    def after(self, sample: Sample) -> Iterator[tuple[str, bytes]]:
        """``(kind, payload)`` of what the sample's device sends after it, on the same topic."""
        if self._first_ms is None:
            self._first_ms = sample.ts_ms
        for kind in KINDS:
            rate = self._rates.get(kind, 0.0)
            if rate and self._random.random() < rate and not self._is_too_early(kind, sample.ts_ms):
                yield kind, self._payload(kind, sample)

    def _is_too_early(self, kind: str, ts_ms: int) -> bool:
        """A latecomer needs a row that was there and has closed."""
        assert self._first_ms is not None
        return kind == "late" and ts_ms - self._first_ms < 2 * self._late_ms

    def _payload(self, kind: str, sample: Sample) -> bytes:
        if kind == "duplicates":
            return encode_message([sample])
        if kind == "malformed":
            return encode_message([sample])[:-7]
        ts_ms, values = sample.ts_ms, sample.values
        if kind == "late":
            ts_ms -= self._late_ms
        elif kind == "future_ts":
            ts_ms += FUTURE_MS
        elif kind == "unknown_metric":
            values = {"unheard_of": 1.0}
        else:
            values = {"air_temp_c": 999.0}
        self._seq += 1
        stranger = Sample(sample.site, sample.zone, sample.device, self._boot, self._seq, ts_ms, values)
        return encode_message([stranger])
