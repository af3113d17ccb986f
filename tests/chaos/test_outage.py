"""A site is cut off for 13 hours: what its gateway took meanwhile is counted once, as if nothing had happened.

The clock is simulated; gateway, buffer, uplink and windows are ours and real. The target is a log in memory, a real
Kafka, or a real Mosquitto with a central gateway behind it. The judge (judge.py) recomputes every row and dead letter
from what the site's gateway took; a run without the outage gives the same bytes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from edge.clock import ReplayedClock, WallClock
from edge.gateway import Gateway, GatewayOptions
from edge.gateway.record_builder import Message, RecordBuilder
from edge.gateway.uplink.forward import LogTarget, Target, Uplink
from edge.gateway.uplink.mqtt_target import MqttTarget
from edge.log import Log, LogError, NewRecord, Record, partition_of
from edge.log.kafka.kafka_log import KafkaLog
from edge.log.memory import MemoryLog
from edge.log.sqlite import SqliteLog
from edge.mqtt.broker import LocalBroker
from edge.wire.reading import Sample, encode_message
from edge.wire.samples import decode_samples
from edge.wire.topic import sample_topic
from edge.wire.vocabulary import VOCABULARY
from services.ingest.windows.partition_windows import PartitionWindows
from services.ingest.windows.seen_origins import SeenOrigins
from tests.broker.conftest import until
from tests.chaos.judge import Judge, Key, Row, differences, pairs
from tests.ci.record import balance
from tests.conftest import require_env, require_program
from tests.kafka_logs import kafka_logs
from tests.patience import patience_s
from tests.running import running

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

START_MS = 1_646_092_800_000
STEP_MS, LATENESS_MS, IDLE_MS = 60_000, 30_000, 60_000
OUTAGE_MS = START_MS + 600_000 + 5_000
"""Ten minutes after the start, and not on the grid."""
HOUR_MS = 3_600_000
SITE = "north"
NEIGHBOUR = next(f"n{n}" for n in range(99) if partition_of(f"n{n}", 2) == partition_of(SITE, 2))
"""A site of the same central partition, which is never cut off."""
PARTITIONS, BUFFER_PARTITIONS = 2, 3
METRICS = {"air_temp_c": (18, 26), "rh_pct": (55, 101.5), "wind_dir_deg": (0, 360), "irrigation_l_m2": (0, 50)}


def published(site: str, hours: float, seed: int) -> list[tuple[int, Message]]:
    """What the devices of a site send in 10 minutes, an outage of ``hours`` and 10 minutes more: (arrival, message).

    A sample every 10 s of each device, late by up to 8 s, some twice, some far too late, some nonsense.
    """
    rng, found = random.Random(seed), []
    devices = [("z1", "climate"), ("z1", "second"), ("z2", "climate"), ("z3", "climate"), ("_site", "weather")]
    end_ms = OUTAGE_MS + round(hours * HOUR_MS) + 600_000
    for number, (zone, device) in enumerate(devices):
        boot, topic = f"boot-{rng.getrandbits(40):010x}", sample_topic(site, zone, device)
        for seq, ts_ms in enumerate(range(START_MS + 1700 * number, end_ms, 10_000)):
            values = {name: round(rng.uniform(*bounds), 2) for name, bounds in METRICS.items() if rng.random() < 0.8}
            sample = Sample(site, zone, device, boot, seq, ts_ms, values or {"rh_pct": 50.0})
            payload = b"{" if rng.random() < 0.01 else encode_message([sample])
            delay_ms = rng.randrange(200_000, 400_000) if rng.random() < 0.01 else rng.randrange(8_000)
            for copy in range(1 + (rng.random() < 0.03)):
                found.append((ts_ms + delay_ms + 1500 * copy, Message(topic, payload)))
    return sorted(found, key=lambda arrival: arrival[0])


class Outage(Target):
    """A target that can be cut off; the batch that is under way then arrives in part, its answer does not."""

    tail_s = 0.0

    def __init__(self, target: Target) -> None:
        self.target, self.cut, self.part = target, False, 0
        self.tail_s = target.tail_s

    def send(self, records: Sequence[NewRecord]) -> None:
        """Hand on, or fail."""
        if not self.cut:
            return self.target.send(records)
        if self.part:
            self.target.send(records[: self.part])
            self.part = 0
        raise LogError("cut off")

    def check(self) -> None:
        """Ask what is behind."""
        self.target.check()

    def close(self) -> None:
        """Close what is behind."""
        self.target.close()


@dataclass
class World:
    """A site's gateway, its buffer and its uplink, and the central log with a neighbour that writes to it itself."""

    folder: Path
    central: Log
    target: Target
    hours: float
    outage: bool = True
    cut: Callable[[], None] | None = None  # else the target is cut off by a fake
    mend: Callable[[], None] = lambda: None
    now_ms: int = START_MS
    crashes: int = 0
    refused: int = 0
    most_buffered: int = 0
    appended: int = 0
    judges: dict[str, Judge] = field(default_factory=dict)

    def run(self) -> None:
        """Live through it."""
        self.link = Outage(self.target)
        self.judges = {site: Judge(STEP_MS, LATENESS_MS, IDLE_MS) for site in (SITE, NEIGHBOUR)}
        self._start()
        self.neighbour_clock = ReplayedClock(START_MS)
        self.neighbour = RecordBuilder(self.neighbour_clock, STEP_MS)
        mine, other = (published(site, self.hours, seed) for site, seed in ((SITE, 1), (NEIGHBOUR, 2)))
        back_ms, end_ms = OUTAGE_MS + round(self.hours * HOUR_MS), mine[-1][0] + 300_000
        while self.now_ms < end_ms:
            near = 0 <= self.now_ms - OUTAGE_MS < 20_000
            before, self.now_ms = self.now_ms, self.now_ms + (1_000 if near else 10_000)
            self._site_takes(_due(mine, self.now_ms))
            self._neighbour_takes(_due(other, self.now_ms))
            if self.outage and before < OUTAGE_MS <= self.now_ms:
                if self.cut is not None:
                    self.cut()
                else:
                    self.link.cut, self.link.part = True, 2
            if self.outage and before < back_ms <= self.now_ms:
                self.most_buffered = self.buffer.usage().records
                self.mend()
                self.link.cut = False
                self._carry()
                self._crash()  # nothing was truncated yet: all of it is sent again
            down = self.outage and OUTAGE_MS <= self.now_ms < back_ms
            if not down or self.now_ms // 1_800_000 > before // 1_800_000 or near:
                self._carry()
            if down and self.now_ms // (3 * HOUR_MS) > before // (3 * HOUR_MS):
                self._crash()
            if not down and self.now_ms // 300_000 > before // 300_000:
                # The tail's minute passes in milliseconds here. In a real one, what was sent reaches the log.
                until(self.arrived)
                self.uplink.trim()
        until(self.arrived)
        self.buffer.close()
        for judge in self.judges.values():
            judge.finish()

    def arrived(self) -> bool:
        """Whether every record of the site is in the central log, once what is left was carried."""
        self._carry()
        return len({record.origin for record in self.records() if record.site == SITE}) == self.appended

    def _start(self) -> None:
        self.buffer = SqliteLog(self.folder / "buffer.sqlite", BUFFER_PARTITIONS)
        assert self.buffer._db is not None
        self.buffer._db.execute("PRAGMA synchronous=OFF")  # a made-up crash loses no page cache
        times = [ms for p in range(BUFFER_PARTITIONS) if (ms := self.buffer.last_receive_ms(p)) is not None]
        newest_ms = max(times, default=None)
        self.clock = ReplayedClock(newest_ms or START_MS)
        self.builder = RecordBuilder(self.clock, STEP_MS, self.buffer.sites(), newest_ms)
        self.uplink = Uplink(self.buffer, self.link, clock_s=lambda: self.now_ms / 1000)

    def _crash(self) -> None:
        self.crashes += 1
        self.buffer.close()
        self._start()

    def _site_takes(self, messages: list[Message]) -> None:
        self.clock.advance(self.now_ms)
        self.appended += len(self.buffer.append(self.builder.take(messages)))
        self.judges[SITE].take(self.now_ms, pairs(messages))

    def _neighbour_takes(self, messages: list[Message]) -> None:
        self.neighbour_clock.advance(self.now_ms)
        self.central.append(self.neighbour.take(messages))
        self.judges[NEIGHBOUR].take(self.now_ms, pairs(messages))

    def _carry(self) -> None:
        try:
            while self.uplink.step():
                pass
        except LogError:
            self.refused += 1

    def records(self) -> list[Record]:
        """Everything in the central log."""
        found: list[Record] = []
        for partition in range(PARTITIONS):
            offset = 0
            while batch := self.central.read(partition, offset, 1000):
                offset = batch[-1].offset + 1
                found += batch
        return found


def _due(arrivals: list[tuple[int, Message]], now_ms: int) -> list[Message]:
    """Take out what has arrived by now."""
    number = next((n for n, (at_ms, _) in enumerate(arrivals) if at_ms > now_ms), len(arrivals))
    due, arrivals[:number] = [message for _, message in arrivals[:number]], []
    return due


@dataclass
class Counted:
    """What the central windows made of a log."""

    rows: dict[Key, Row] = field(default_factory=dict)
    steps: list[tuple[object, ...]] = field(default_factory=list)  # byte for byte
    dead_letters: list[tuple[object, ...]] = field(default_factory=list)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)


def count(records: Sequence[Record]) -> Counted:
    """Feed every partition to windows that are stopped and restored now and then."""
    counted, rng = Counted(), random.Random(3)
    for partition in range(PARTITIONS):
        mine = [record for record in records if record.partition == partition]
        windows = PartitionWindows(STEP_MS, LATENESS_MS, IDLE_MS, VOCABULARY)
        at = 0
        while at < len(mine):
            size = rng.randrange(1, 400)
            closed = windows.feed(mine[at : at + size])
            at += size
            if rng.random() < 0.1:
                state, windows = windows.state(), PartitionWindows(STEP_MS, LATENESS_MS, IDLE_MS, VOCABULARY)
                windows.load(state)
            for step in closed.steps:
                counted.steps.append((step.site, step.end_ms, step.zones, step.values.tobytes(), step.ages_s.tobytes()))
                for row in step.devices:
                    key = (f"{step.site}/{row.zone}", row.device, step.end_ms, row.metric)
                    counted.rows[key] = (row.n, row.mean, row.min, row.max, row.last)
            counted.dead_letters += [letter[2:] for letter in closed.dead_letters]
            counted.reasons.update((letter.reason, letter.topic) for letter in closed.dead_letters)
            counted.counts.update(accepted=closed.accepted, duplicates=closed.duplicates, late=closed.late)
            counted.counts.update(copied=closed.other_records.get("copied", 0))
    counted.steps.sort(key=lambda step: step[:2])
    counted.dead_letters.sort(key=repr)
    return counted


def judged(world: World) -> Counted:
    """Compare with the judge, and the samples one by one with what was published."""
    records = world.records()
    counted = count(records)
    expected: dict[Key, Row] = {}
    dead_letters: Counter[tuple[str, str]] = Counter()
    for judge in world.judges.values():
        expected |= judge.rows
        dead_letters.update(judge.dead_letters)
    with balance():
        assert differences(expected, counted.rows) == []
        assert counted.reasons == dead_letters
        assert counted.counts["accepted"] == sum(judge.accepted for judge in world.judges.values())
        assert counted.counts["duplicates"] == sum(judge.duplicates for judge in world.judges.values())
    origins = SeenOrigins()
    arrived = Counter(
        (sample.device, sample.zone, sample.seq)
        for record in records
        if record.site == SITE and record.kind == "samples" and record.origin and origins.is_new(record.origin)
        for sample in decode_samples(record.payload)
    )
    sent: Counter[tuple[str, str, int]] = Counter()
    first: list[tuple[str, str, int]] = []
    for at_ms, message in published(SITE, world.hours, 1):
        if message.payload != b"{":
            seq = int(message.payload.split(b'"seq":')[1].split(b",")[0])
            _, _, _, zone, device, _ = message.topic.split("/")
            sent[device, zone, seq] += 1
            if 0 <= at_ms - OUTAGE_MS < 20_000:
                first.append((device, zone, seq))
    with balance():
        assert arrived == sent
        assert len(first) >= 8
        assert [arrived[sample] for sample in first] == [sent[sample] for sample in first]
    print(
        f"\n{world.hours:g} h without uplink, {world.crashes} crashes, {world.refused} refusals: "
        f"{sent.total():,} samples, {len(first)} of the first 20 s; at most {world.most_buffered:,} records "
        f"buffered; {counted.counts['copied']:,} records came twice; {len(counted.rows):,} rows, "
        f"{dead_letters.total():,} letters; 0 lost, 0 counted twice"
    )
    return counted


@pytest.mark.thorough
def test_a_13_hour_outage_leaves_no_trace(tmp_path: Path) -> None:
    """Rows and dead letters are the judge's, and byte for byte those of a run without the outage, though a batch
    arrived in part, and the site's gateway crashed five times and sent what was in doubt again.
    """
    made = {}
    for outage in (True, False):
        folder = tmp_path / str(outage)
        folder.mkdir()
        log = MemoryLog(PARTITIONS)
        made[outage] = World(folder, log, LogTarget(lambda log=log: log), 13.0, outage)
        made[outage].run()
    disturbed, undisturbed = (judged(world) for world in made.values())
    with balance():
        assert disturbed.steps == undisturbed.steps
        assert disturbed.dead_letters == undisturbed.dead_letters
    assert disturbed.counts["copied"] > 1000
    assert undisturbed.counts["copied"] == 0
    assert made[True].most_buffered > 2 * 13 * 360  # samples and a tick, every 10 s


@pytest.mark.kafka
def test_an_outage_of_a_real_kafka_leaves_no_trace(tmp_path: Path) -> None:
    """The same into a real Kafka: a batch that had arrived in part is completed, one in doubt is sent again."""
    with kafka_logs(require_env("HOTHOUSE_TEST_KAFKA")) as make, ExitStack() as logs:
        central = logs.enter_context(closing(make(PARTITIONS)))
        target = LogTarget(lambda: KafkaLog(central.address, PARTITIONS))
        logs.enter_context(closing(target))
        world = World(tmp_path, central, target, 0.5)
        world.run()
        assert judged(world).counts["copied"] > 0


@pytest.mark.broker
def test_an_outage_of_a_real_broker_leaves_no_trace(tmp_path: Path) -> None:
    """The same over a real Mosquitto, killed at the start of the outage, and a central gateway behind it."""
    require_program("mosquitto")
    central = MemoryLog(PARTITIONS)
    with LocalBroker(tmp_path / "broker", "mosquitto") as broker, gateway_at(broker, central) as gateway:

        def mend() -> None:
            broker.restart()
            until(lambda: gateway.status()["connected"])

        target = MqttTarget(broker.address, "test-uplink", patience_s(60))
        with closing(target):
            world = World(tmp_path, central, target, 0.5, cut=broker.kill, mend=mend)
            world.run()
        assert gateway.status()["relayed"] >= world.appended
    assert judged(world).counts["copied"] > 0


@contextmanager
def gateway_at(broker: LocalBroker, log: Log) -> Iterator[Gateway]:
    """A central gateway, connected."""
    gateway = Gateway(GatewayOptions(broker=broker.address, client_id="test-central"), log, WallClock())
    with running(gateway):
        until(lambda: gateway.status()["connected"])
        yield gateway
