"""Makes records for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edge.log import NewRecord, Record
from edge.wire.reading import Sample
from edge.wire.samples import encode_samples
from services.ingest.windows.partition_windows import LONG_SILENCE_MS

T0 = 1_646_092_800_000  # 2022-03-01 00:00 UTC, on the grid
STEP = 300_000
BOOT = "9f3c62d1a07be845"


def sample(
    ts_ms: int, seq: int, zone: str = "z1", device: str = "climate", site: str = "demo", boot: str = BOOT,
    **values: float,
) -> Sample:  # fmt: skip
    """One sample; keyword arguments are its values."""
    return Sample(site, zone, device, boot, seq, ts_ms, values or {"air_temp_c": 20.0})


def record(offset: int, samples: Sequence[Sample], receive_ms: int | None = None) -> Record:
    """A samples record, received when its newest sample was made unless said otherwise."""
    received = max(s.ts_ms for s in samples) if receive_ms is None else receive_ms
    return Record(0, offset, samples[0].site, "samples", received, encode_samples(samples), "")


def tick(offset: int, receive_ms: int, site: str = "demo") -> Record:
    """A tick record."""
    return Record(0, offset, site, "tick", receive_ms, b"", "")


def long_silence(offset: int, begin_ms: int, site: str = "demo") -> list[Record]:
    """Ticks for so long that every row closes that ends some time before ``begin_ms``."""
    return [tick(offset + n, begin_ms + n * 60_000, site) for n in range(LONG_SILENCE_MS // 60_000 + 5)]


def new_records(batches: Iterable[Sequence[Sample]]) -> list[NewRecord]:
    """What an importer appends: each batch received when its newest sample was made."""
    return [NewRecord(b[0].site, "samples", max(s.ts_ms for s in b), encode_samples(b)) for b in batches]
