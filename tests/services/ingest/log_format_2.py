"""A log of the second payload encoding: how ``tests/data/log_format_2`` was made, and what comes of it.

In the root of a tree of that version: ``PYTHONPATH=. python PATH/OF/THIS/FILE FOLDER`` writes the log and what that
version's windows make of it. Two hours and a half of three sites on a made-up clock, through real gateways: ``north``
with every kind of event, ``south`` behind an uplink that was cut off, ``west`` with one device that is silent an hour.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from edge.clock import ReplayedClock
from edge.gateway.record_builder import Message, RecordBuilder
from edge.log import Log, NewRecord, Record
from edge.log.sqlite import SqliteLog
from edge.wire.envelope import encode_envelope
from edge.wire.events import Alias, Calibration, SettingsChange, encode_change
from edge.wire.reading import Sample, encode_message
from edge.wire.samples import ENCODING, encode_samples
from edge.wire.topic import sample_topic
from edge.wire.vocabulary import VOCABULARY
from services.ingest.windows.partition_windows import PartitionWindows
from services.store.rows import SiteStep

__all__ = ["PARTITIONS", "made_of"]

PARTITIONS = 3
STEP_MS, LATENESS_MS, IDLE_MS = 300_000, 30_000, 60_000
PRIMARY = {"south": {"air_temp_c": "climate"}}

T0 = 1_646_092_800_000  # 2022-03-01 00:00 UTC
MINUTE_MS, PASS_MS, MINUTES = 60_000, 30_000, 150
CUT_OFF, SILENT = range(40, 75), range(60, 125)  # minutes: south's uplink, west's device
Ranges = dict[str, tuple[float, float]]
CLIMATE: Ranges = {"air_temp_c": (18, 26), "rh_pct": (55, 101.5), "co2_ppm": (400, 900), "irrigation_l_m2": (0, 50)}
SECOND: Ranges = {"air_temp_c": (18, 26), "air_temp_c.2": (17, 27), "vent_lee_pct": (0, 100)}
WEATHER: Ranges = {"out_temp_c": (0, 9), "wind_dir_deg": (0, 360), "rain": (0, 1)}
DEVICES = [
    ("north", "z1", "climate", CLIMATE), ("north", "z1", "second", SECOND), ("north", "z2", "climate", CLIMATE),
    ("north", "_site", "weather", WEATHER), ("south", "z1", "climate", CLIMATE), ("south", "z1", "second", SECOND),
    ("west", "z1", "climate", CLIMATE),
]  # fmt: skip
BAD = [b"{", b'{"boot":"12345678","samples":[]}', b'{"boot":"1","ts":1,"seq":1,"values":{}}']


def made_of(log: Log, records_a_read: int) -> dict[str, Any]:
    """What this version makes of the log: a sha256 a row of a site, counts, and a sha256 of all dead letters, without
    their sentences, which versions may word anew.
    """
    rows: dict[str, str] = {}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    dead_letters = []
    for partition in range(log.partitions):
        windows = PartitionWindows(STEP_MS, LATENESS_MS, IDLE_MS, VOCABULARY, PRIMARY)
        for records in _reads(log, partition, records_a_read):
            closed = windows.feed(records)
            rows |= {f"{step.site} {step.end_ms}": _sha256(_lines(step)) for step in closed.steps}
            counts["samples"].update(accepted=closed.accepted, duplicates=closed.duplicates, late=closed.late)
            for name in ("rejected", "values_refused", "other_records"):
                counts[name].update(getattr(closed, name))
            dead_letters += [repr(tuple(letter._replace(detail=""))) for letter in closed.dead_letters]
    return {"rows": rows, "counts": counts, "letters": len(dead_letters), "letters_sha256": _sha256(dead_letters)}


def _reads(log: Log, partition: int, limit: int) -> Iterator[list[Record]]:
    offset = log.begin_offset(partition)
    while records := log.read(partition, offset, limit):
        offset = records[-1].offset + 1
        yield records


def _lines(step: SiteStep) -> Iterator[str]:
    """All of a row of a site, to the last bit; a vector mean to 9 digits, for it is as good as the machine's sine."""
    yield repr((step.partition, step.site, step.end_ms, step.step_ms, step.schema_version, step.zones))
    yield repr(step.values.tolist())
    yield repr(step.ages_s.tolist())
    for zone, device, metric, count, mean, *rest in step.devices:
        shown = f"{mean:.9g}" if metric == "wind_dir_deg" else repr(float(mean))
        yield repr((str(zone), str(device), str(metric), int(count), shown, *map(float, rest)))


def _sha256(lines: Sequence[str] | Iterator[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


class _Story:
    """Devices, a central gateway and the one of ``south``."""

    def __init__(self, folder: Path) -> None:
        self.rng = random.Random(2)
        self.clock = ReplayedClock(T0)
        self.log, self.buffer = SqliteLog(folder / "log.sqlite", PARTITIONS), SqliteLog(folder / "buffer.sqlite", 1)
        self.central, self.site = RecordBuilder(self.clock, STEP_MS), RecordBuilder(self.clock, STEP_MS)
        self.sent, self.seq = 0, 0
        self.waiting: list[tuple[int, Message]] = []  # receive time, message
        self.held: defaultdict[str, list[Sample]] = defaultdict(list)  # a device that sends several at once

    def run(self) -> None:
        for minute in range(MINUTES):
            self._events(minute)
            for site, zone, device, ranges in DEVICES:
                if minute < MINUTES - 20 and not (site == "west" and minute in SILENT):
                    self._publish(site, zone, device, ranges)
            for _ in range(MINUTE_MS // PASS_MS):
                self.clock.advance(self.clock.now_ms() + PASS_MS)
                self._pass(minute)
        self.log.close()
        self.buffer.close()

    def _publish(self, site: str, zone: str, device: str, ranges: Ranges) -> None:
        rng, now_ms, topic = self.rng, self.clock.now_ms(), sample_topic(site, zone, device)
        self.seq += 1
        values = {name: round(rng.uniform(*ends), 2) for name, ends in ranges.items() if rng.random() < 0.9}
        if rng.random() < 0.02:
            values |= {"air_temp_c": 99.0, "unheard_of": 1.0}
        boot = f"{device}-{site}-{self.clock.now_ms() > T0 + 90 * MINUTE_MS}"  # all start anew after 90 minutes
        ts_ms = now_ms + (120_000 if rng.random() < 0.01 else 0)
        self.held[topic].append(Sample(site, zone, device, boot, self.seq, ts_ms, values or {"rh_pct": 60.0}))
        if device == "second" and len(self.held[topic]) < 4:
            return
        payload = encode_message(self.held.pop(topic)) if rng.random() > 0.02 else rng.choice(BAD)
        after_ms = rng.randrange(10 * MINUTE_MS, 20 * MINUTE_MS) if rng.random() < 0.02 else rng.randrange(40_000)
        self.waiting += [(now_ms + after_ms, Message(topic, payload))] * (2 if rng.random() < 0.05 else 1)

    def _events(self, minute: int) -> None:
        documents = {
            50: ("z1/climate/event", encode_change(Calibration(2, "air_temp_c", offset=-0.5, scale=1.01))),
            60: ("z1/second/event", encode_change(Alias(3, "other"))),
            65: ("z1/climate/plan", b'{"heating":[[0,18.5]]}'),
            70: ("_site/weather/event", encode_change(SettingsChange(4, step_s=60, lateness_s=45))),
            80: ("z2/climate/event", b'{"crop":"lettuce"}'),
            85: ("z2/climate/event", b'{"type":"alias"}'),
            100: ("_site/weather/event", encode_change(SettingsChange(5, step_s=600))),
        }
        if minute in documents:
            topic, payload = documents[minute]
            self.waiting.append((self.clock.now_ms(), Message(f"hothouse/v1/north/{topic}", payload)))
        if minute in (30, 31):  # what the first version wrote, and a record that is torn
            old = [Sample("north", "z1", "climate", "boot-old", minute, self.clock.now_ms(), {"rh_pct": 61.5})]
            payload = msgspec.msgpack.encode(old) if minute == 30 else encode_samples(old)[:-3]
            self.log.append([NewRecord("north", "samples", self.clock.now_ms(), payload)])

    def _pass(self, minute: int) -> None:
        now_ms = self.clock.now_ms()
        due = [message for at_ms, message in self.waiting if at_ms <= now_ms]
        self.waiting = [one for one in self.waiting if one[0] > now_ms]
        self.buffer.append(self.site.take(message for message in due if "/south/" in message.topic))
        central = [message for message in due if "/south/" not in message.topic]
        if minute not in CUT_OFF:
            again = self.rng.choice([0, 0, 0, 2])  # records that were sent before, as after a lost connection
            for record in self.buffer.read(0, max(self.sent - again, 0), 1000):
                new = NewRecord(
                    record.site, record.kind, record.receive_ms, record.payload, record.topic, record.origin
                )
                central.append(Message(*encode_envelope(new)))
                self.sent = record.offset + 1
        self.log.append(self.central.take(central))


def main(folder: Path) -> None:
    """Write ``log.sqlite.xz`` and ``expected.json``."""
    assert ENCODING == 2, "run it with the version whose log it is"
    _Story(folder).run()
    log = SqliteLog(folder / "log.sqlite", PARTITIONS)
    (folder / "expected.json").write_text(json.dumps(made_of(log, 1), indent=1, sort_keys=True) + "\n")
    log.close()
    (folder / "log.sqlite.xz").write_bytes(lzma.compress((folder / "log.sqlite").read_bytes(), preset=9))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
