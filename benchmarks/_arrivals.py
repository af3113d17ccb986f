"""Messages as they arrive, and the log records that a gateway makes of them, for ``benchmarks.ingest``."""

from __future__ import annotations

import gzip
import itertools
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from edge.clock import ReplayedClock
from edge.gateway.record_builder import Message, RecordBuilder
from edge.log import NewRecord, Origin, Record
from edge.wire.reading import Sample, encode_message
from edge.wire.samples import decode_samples, encode_samples
from edge.wire.topic import sample_topic
from models.durations import MINUTE_MS
from services.ingest.log_reader import READ_BYTES, READ_RECORDS

__all__ = ["START_MS", "Line", "grouped", "make_lines", "read_lines", "reads", "to_records"]

LINES = 20_000
LOG = "0" * 16
"""The id of the log that records come from, as long as a real one."""
START_MS = 1_646_092_800_000
EVERY_MS = 10_000
METRICS = ("air_temp_c", "rh_pct", "co2_ppm", "par_umol_m2_s", "soil_vwc_pct", "vent_lee_pct")
LOWS = (15.0, 60.0, 400.0, 0.0, 40.0, 0.0)


class Line(NamedTuple):
    """One message as it arrived."""

    receive_ms: int
    topic: str
    payload: bytes


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a file; a name that ends in .gz is unpacked, empty lines are left out."""
    if not path.is_file():
        sys.exit(f"{path} is not there")
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, 1):
            parts = line.rstrip(b"\r\n").split(b"\t", 2)
            if parts == [b""]:
                continue
            if len(parts) != 3 or not parts[0].isdigit():
                sys.exit(f"{path}, line {number}: expected receive_ms<TAB>topic<TAB>payload")
            yield Line(int(parts[0]), parts[1].decode(errors="replace"), parts[2])


def make_lines(zones: int, minutes: float, seed: int = 7, sites: int = 10, start_ms: int = START_MS) -> Iterator[Line]:
    """The workload; rounds are made one after another, so that any length fits into memory.

    Each device sends every 10 s at a moment of its own, so that sites are interleaved, and no two messages have one
    receive time. 3 % come 10 to 25 s after their time, 1 % a second time.
    """
    rng = random.Random(seed)
    devices = [
        (f"site-{z % sites}", f"zone-{z}", f"{kind}-{z}", f"{rng.getrandbits(64):016x}", rng.randrange(EVERY_MS))
        for z in range(zones)
        for kind in ("climate", "soil")
    ]
    waiting: list[Line] = []
    newest_ms, rounds = 0, int(minutes * MINUTE_MS / EVERY_MS)
    for seq in range(rounds):
        for site, zone, device, boot, phase_ms in devices:
            ts_ms = start_ms + seq * EVERY_MS + phase_ms
            values = {m: round(low + rng.random() * 10, 2) for m, low in zip(METRICS, LOWS, strict=True)}
            payload = encode_message([Sample(site, zone, device, boot, seq, ts_ms, values)])
            chance = rng.random()
            on_its_way_ms = rng.randrange(10_000, 25_000) if chance < 0.03 else rng.randrange(20, 500)
            line = Line(ts_ms + on_its_way_ms, sample_topic(site, zone, device), payload)
            waiting += [line, line] if 0.03 <= chance < 0.04 else [line]
        waiting.sort()
        until_ms = start_ms + (seq + 1) * EVERY_MS if seq + 1 < rounds else waiting[-1].receive_ms + 1
        come = [line for line in waiting if line.receive_ms < until_ms]
        del waiting[: len(come)]
        for line in come:
            newest_ms = max(newest_ms + 1, line.receive_ms)
            yield line._replace(receive_ms=newest_ms)


def to_records(
    lines: Iterable[Line], step_ms: int, idle_ms: int, lateness_ms: int, most: int | None = None
) -> Iterator[list[Record]]:
    """Records as a gateway would append them, all into one partition; messages of one receive time are one batch.

    It ends with ticks, until every row is closed. ``most``: end the samples once there are so many.
    """
    clock = ReplayedClock()
    builder: RecordBuilder | None = None
    placed = _Placed()
    source = iter(lines)
    while (most is None or builder is None or builder.samples < most) and (chunk := [*itertools.islice(source, LINES)]):
        records: list[Record] = []
        for receive_ms, batch in itertools.groupby(chunk, key=lambda line: line.receive_ms):
            clock.advance(receive_ms)
            builder = builder or RecordBuilder(clock, step_ms)
            records += [placed(new) for new in builder.take([Message(line.topic, line.payload) for line in batch])]
            if most is not None and builder.samples >= most:
                break
        yield records
    if builder is not None:
        end_ms = clock.now_ms() + 2 * step_ms + idle_ms + lateness_ms
        records = []
        while clock.now_ms() < end_ms:
            clock.advance(clock.now_ms() + step_ms // 10)
            records += [placed(new) for new in builder.take()]
        yield records


class _Placed:
    """Records as the log in a file gives them back: with the next offset, and an origin each."""

    def __init__(self) -> None:
        self._count = 0
        self._of_site: Counter[str] = Counter()

    def __call__(self, new: NewRecord) -> Record:
        origin = new.origin
        if origin is None:
            origin = Origin(LOG, self._of_site[new.site])
            self._of_site[new.site] += 1
        self._count += 1
        return Record(0, self._count - 1, new.site, new.kind, new.receive_ms, new.payload, new.topic, origin)


class _Open:
    """Samples of a site that are not a record yet, and ticks and refusals that wait behind the newest of them."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.receive_ms = 0
        self.behind: list[NewRecord] = []


def grouped(records: Iterable[Record], size: int, patience_ms: int) -> list[Record]:
    """The same samples in records of ``size``, each with the receive time of its newest sample, as from a gateway
    that takes so many of a site at once; one whose site then says nothing for ``patience_ms`` holds fewer.

    A site's samples keep their order, so that rows are the same, unless a device's clock is ahead of the receive time.
    Of the ticks within a record the newest is kept, behind it: a gateway that is behind sends no more.
    """
    made: list[Record] = []
    sites: dict[str, _Open] = {}
    placed = _Placed()

    def close(name: str, site: _Open, ticks: int) -> None:
        if site.samples:
            made.append(placed(NewRecord(name, "samples", site.receive_ms, encode_samples(site.samples))))
        for record in _with_newest_ticks(site.behind, ticks):
            made.append(placed(record._replace(receive_ms=max(record.receive_ms, site.receive_ms))))
        site.samples, site.behind = [], []

    for record in records:
        name = record.site
        site = sites.setdefault(name, _Open())
        ours = record.origin is None or record.origin.log == LOG
        new = NewRecord(
            name, record.kind, record.receive_ms, record.payload, record.topic, None if ours else record.origin
        )
        if ours and record.kind == "samples":
            for sample in decode_samples(record.payload):
                site.samples.append(sample)
                site.receive_ms = record.receive_ms
                if len(site.samples) == size:
                    close(name, site, 1)
        elif ours and record.kind in ("tick", "refused") and site.samples:
            site.behind.append(new)
            if record.receive_ms - site.receive_ms >= patience_ms:
                close(name, site, len(site.behind))
        else:
            close(name, site, 1)
            made.append(placed(new))
    for name, site in sites.items():
        close(name, site, len(site.behind))
    return made


def _with_newest_ticks(records: Sequence[NewRecord], count: int) -> list[NewRecord]:
    ticks = [record for record in records if record.kind == "tick"]
    return [record for record in records if record.kind != "tick"] + ticks[max(0, len(ticks) - count) :]


def reads(chunks: Iterable[list[Record]]) -> Iterator[list[Record]]:
    """The records as a shard that is behind reads them: by the size of those before, so many at a time."""
    limit = 1
    for records in chunks:
        at = 0
        while at < len(records):
            part = records[at : at + limit]
            at += len(part)
            yield part
            size = sum(len(record.payload) for record in part) // len(part)
            limit = max(1, min(READ_RECORDS, READ_BYTES // max(size, 1)))
