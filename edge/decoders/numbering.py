"""Step 2 of the way of a reading: names for samples of devices that give them none."""

from __future__ import annotations

import secrets

from edge.wire.reading import Sample

__all__ = ["Numbering"]

MOST_DEVICES = 10_000


class Numbering:
    """Gives samples ``boot`` and ``seq``, anew each time: a message that the broker sends again though it is in the
    log is another sample. That is one whose acknowledgement was lost, with the gateway or with its connection.

    >>> numbering = Numbering()
    >>> [numbering.sample("s", "z", "d", 7, {}).seq for _ in range(2)]
    [1, 2]
    """

    def __init__(self) -> None:
        self._boot = secrets.token_hex(8)
        self._seqs: dict[tuple[str, str, str], int] = {}
        self._base = 0

    def sample(self, site: str, zone: str, device: str, ts_ms: int, values: dict[str, float]) -> Sample:
        """The device's next sample."""
        who = site, zone, device
        if len(self._seqs) >= MOST_DEVICES and who not in self._seqs:  # somebody makes devices up: forget them all
            self._base, self._seqs = max(self._seqs.values()), {}
        seq = self._seqs[who] = self._seqs.get(who, self._base) + 1
        return Sample(site, zone, device, self._boot, seq, ts_ms, values)
