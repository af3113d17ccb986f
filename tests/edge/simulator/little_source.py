"""A source of a few samples, and what is to be published of it."""

from __future__ import annotations

from edge.wire.reading import Sample
from tests.edge.recordings.list_source import START_MS, ListSource


def source(instants: int = 20, devices: int = 3) -> ListSource:
    boot = "0011223344556677"
    return ListSource(
        [
            (ts, [Sample("s", "z", f"d{d}", boot, i, ts, {"rh_pct": 70.0}) for d in range(devices)])
            for i, ts in enumerate(range(START_MS, START_MS + instants * 60_000, 60_000))
        ]
    )


EXPECTED = [(s.device, s.seq, s.ts_ms) for _, instant in source().samples(2**53) for s in instant]
