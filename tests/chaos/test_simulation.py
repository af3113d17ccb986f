"""Deterministic simulation: a fake clock, a fake network and scripted crashes, all drawn from one seed.

Everything from the gateway's decoding to the files of the history is ours and real; only the clock, the network, the
broker and the moments of death are made up. The judge (judge.py) recomputes every row, plan and dead letter from what
was appended. A seed that fails fails again: ``HOTHOUSE_TEST_SEEDS=17:18 pytest tests/chaos/test_simulation.py``.
"""

from __future__ import annotations

import heapq
import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.clock import ReplayedClock
from edge.gateway.record_builder import Message, RecordBuilder
from edge.log import Log, LogFullError
from edge.log.memory import MemoryLog
from edge.log.sqlite import SqliteLog
from edge.wire.alert_orders import AcknowledgeAlert, ChangeRules, MuteRule, encode_order, order_topic
from edge.wire.events import Alias, Calibration, Change, SettingsChange, encode_change
from edge.wire.plan import plan_topic
from edge.wire.reading import Sample, encode_message
from edge.wire.topic import sample_topic
from services.config import ForecastSettings, Settings, StreamSettings
from services.ingest.alerts.alert_journal import JournalReader, journals
from services.ingest.shard import Executors, Outputs, Shard
from services.messages import ShownAlert, ShownAlerts
from services.store.deadletters import DeadLetters
from services.store.files import always, write_atomically
from services.store.history import History
from services.store.plan_history import PlanHistory
from services.store.series import NullSeries
from services.store.storage import folder_storage
from tests.chaos.judge import Foreseen, Judge, Key, PlanKey, Row, differences, pairs
from tests.services.ingest.rig import Clock, Crashed, FakeForecaster, FakeLiveState, Inline

START_MS = 1_646_092_800_000
STEP_MS, LATENESS_MS, IDLE_MS = 300_000, 30_000, 0  # as by default: an idle time of 0 follows the step
PARTITIONS = 3
SILENT_MIN = range(6, 17)  # a zone of each site sends nothing
AT_ONCE = ChangeRules({"changes": {name: {"for_min": 0, "keep_min": 0} for name in ("stale_zone", "silent_metric")}})
METRICS = {"air_temp_c": (18, 26), "rh_pct": (55, 101.5), "wind_dir_deg": (0, 360), "irrigation_l_m2": (0, 50)}


def _journaled(settings: Settings) -> list[list[ShownAlert]]:
    """Every change of alerts, a list a partition."""
    root = settings.storage_folder
    return [[entry.alert for entry in JournalReader(root, name).read(0, 100_000)[0]] for name in journals(root)]


class World:
    """One seed's whole story."""

    def __init__(self, seed: int, folder: Path, log: Log) -> None:
        self.rng = random.Random(seed)
        self.log, self.now_ms = log, START_MS
        # Little to learn: what is learned of all zones together would be most of what a snapshot costs.
        little = ForecastSettings(horizons_min=(5, 60), targets=("air_temp_c",))
        self.settings = Settings(data_dir=folder, stream=StreamSettings(snapshot_s=3), forecast=little)
        self.judge = Judge(STEP_MS, LATENESS_MS, IDLE_MS)
        self.network: list[tuple[int, int, Message]] = []
        self.broker: list[Message] = []
        self.published = self.crashes = 0
        self.calm = False
        self.builder = self._gateway()
        self.shards: list[Shard] = []
        self.shown = ShownAlerts()
        self.gateway_away_until_ms = 0
        self.devices = [
            (f"site-{s}", zone, f"device-{d}", f"boot-{self.rng.getrandbits(40):010x}")
            for s in range(2) for zone in ("z1", "z2", "_site") for d in range(2)
        ]  # fmt: skip

    def run(self, minutes: int) -> None:
        """Live, with crashes; then let everything arrive and close."""
        end_ms = START_MS + minutes * 60_000
        while self.now_ms < end_ms:
            self._publish()
            self._give_orders()
            self._pass(10_000)
        self.calm, self.gateway_away_until_ms = True, 0
        while self.network or self.broker:
            self._pass(10_000)
        for _ in range(2 * STEP_MS // 30_000 + 4):
            self._pass(30_000)
        self._shards_work()
        for shard in self.shards:
            shard.close()
        self.judge.finish()

    def _pass(self, step_ms: int) -> None:
        self.now_ms += step_ms
        while self.network and self.network[0][0] <= self.now_ms:
            self.broker.append(heapq.heappop(self.network)[2])
        self._gateway_works()
        self._shards_work()

    def _publish(self) -> None:
        for site, zone, device, boot in self.devices:
            self.published += 1
            if zone == "z2" and (self.now_ms - START_MS) // 60_000 in SILENT_MIN:
                continue
            values = {m: round(self.rng.uniform(*r), 2) for m, r in METRICS.items() if self.rng.random() < 0.8}
            topic, chance = sample_topic(site, zone, device), self.rng.random()
            sample = Sample(site, zone, device, boot, self.published, self.now_ms, values or {"rh_pct": 50.0})
            if chance < 0.02:
                payload = self.rng.choice([b"{", b"[]", b'{"boot":"12345678","samples":[]}', b'{"boot":"1","ts":1}'])
            elif chance < 0.03:
                payload = encode_message([_at(sample, 120_000)])
            elif chance < 0.04:
                payload = encode_message([_with(sample, {"air_temp_c": 99.0, "rh_pct": 40.0, "unheard_of": 1.0})])
            else:
                payload = encode_message([sample])
            delay_ms = self.rng.randrange(25_000) if self.rng.random() > 0.01 else self.rng.randrange(400_000, 900_000)
            copies = 2 if self.rng.random() < 0.05 else 1
            if self.rng.random() < 0.002:
                topic, payload = self._change(site, zone, device)
            elif self.rng.random() < 0.02:
                topic, payload = self._plan(site, zone, device)
            for copy in range(copies):
                at_ms = self.now_ms + delay_ms + copy * self.rng.randrange(20_000)
                heapq.heappush(self.network, (at_ms, self.published * 2 + copy, Message(topic, payload)))

    def _give_orders(self) -> None:
        """Rules at first; then now and then something about an alert that somebody sees, twice as often as not."""
        orders = [(site, "_site", AT_ONCE) for site in ("site-0", "site-1")] if self.now_ms == START_MS else []
        if self.shown and self.rng.random() < 0.2:
            alert = self.rng.choice(sorted(self.shown.values(), key=lambda alert: alert["id"]))
            until_ms = self.now_ms + self.rng.choice([-1, 120_000, 600_000])
            order = self.rng.choice([AcknowledgeAlert(alert["id"]), MuteRule(alert["rule"], until_ms)])
            orders.append((alert["site"], alert["zone"], order))
        for site, zone, order in orders:
            message = Message(order_topic(site, zone), encode_order(order))
            for _ in range(1 + (self.rng.random() < 0.5)):
                heapq.heappush(
                    self.network, (self.now_ms + self.rng.randrange(20_000), self.rng.getrandbits(40), message)
                )

    def _change(self, site: str, zone: str, device: str) -> tuple[str, bytes]:
        """An event that changes how rows are made, sometimes overtaken by a newer one."""
        version = self.published + 2
        changes: list[Change] = [
            SettingsChange(version, step_s=self.rng.choice([60, 300, 600])), SettingsChange(version, lateness_s=45),
            Calibration(version, "rh_pct", offset=self.rng.choice([-2.0, 1.5]), scale=1.01),
            Alias(version, "renamed"), Alias(version, device), Alias(version, "leaf_temp_c", metric="air_temp_c"),
        ]  # fmt: skip
        change = self.rng.choice(changes)
        zone = "_site" if isinstance(change, SettingsChange) else zone
        return f"hothouse/v1/{site}/{zone}/{device}/event", encode_change(change)

    def _plan(self, site: str, zone: str, device: str) -> tuple[str, bytes]:
        """What two sources foresee, some of it nonsense; two may be issued at once."""
        issued = self.now_ms - self.rng.choice([0, 0, 600_000])
        path = [[issued + hour * 3_600_000, round(self.rng.uniform(-5, 25), 1)] for hour in range(1, 24)]
        if self.rng.random() < 0.1:
            path[self.rng.randrange(len(path))][1] = 99.0
        body = {"issued": issued, "source": self.rng.choice("ab"), "values": {"out_temp_c": path}}
        whole = json.dumps(body).encode()
        return plan_topic(site, zone, device), whole if self.rng.random() > 0.05 else whole[:40]

    def _gateway(self) -> RecordBuilder:
        times = [ms for p in range(PARTITIONS) if (ms := self.log.last_receive_ms(p)) is not None]
        newest_ms = max(times, default=None)
        clock = ReplayedClock(newest_ms or self.now_ms)
        builder = RecordBuilder(clock, STEP_MS, self.log.sites(), newest_ms)
        self.clock = clock
        return builder

    def _gateway_works(self) -> None:
        if self.now_ms < self.gateway_away_until_ms:
            return
        self.clock.advance(self.now_ms)
        batch = self.broker[: self.rng.randrange(1, 60)]
        records = self.builder.take(batch)
        fate = 1.0 if self.calm else self.rng.random()
        if fate < 0.02:
            return self._gateway_dies()  # before the append: the broker still has everything
        if fate < 0.04 and isinstance(self.log, MemoryLog):
            self.log.capacity = 0
            with pytest.raises(LogFullError):
                self.log.append(records or self.builder.take())
            self.log.capacity = None
        self.log.append(records)
        self.judge.take(self.now_ms, pairs(batch))
        if 0.04 <= fate < 0.06:
            return self._gateway_dies()  # before the acknowledgement: the broker sends it all again
        del self.broker[: len(batch)]
        return None

    def _gateway_dies(self) -> None:
        self.crashes += 1
        self.gateway_away_until_ms = self.now_ms + self.rng.choice([0, 0, 20_000, 400_000])
        self.builder = self._gateway()

    def _shards_work(self) -> None:
        while True:
            try:
                if not self.shards:
                    self._start_shards()
                for shard in self.shards:
                    while shard.step():
                        pass
                return
            except Crashed:
                self.crashes += 1
                self.shards = []

    def _start_shards(self) -> None:
        number = self.rng.randrange(1, PARTITIONS + 1)
        self.shards = [
            Shard(
                self.settings, range(PARTITIONS)[index::number], self.log, FakeForecaster(),
                Outputs(NullSeries(), self._fake_live_state()), Executors(Inline(), Inline(), Inline()), Clock(0.2),
                lambda _: self.maybe_crash(0.004),
            )
            for index in range(number)
        ]  # fmt: skip
        for shard in self.shards:
            assert shard.stats()["repaired"] == ""  # a crash alone damages no snapshot

    def _fake_live_state(self) -> FakeLiveState:
        live_state = FakeLiveState()
        live_state.alerts = self.shown
        return live_state

    def maybe_crash(self, chance: float) -> None:
        """Die here, perhaps."""
        if not self.calm and self.rng.random() < chance:
            raise Crashed

    def write(self, path: Path, write: Callable[[Path], None], check: Callable[[], None] = always) -> None:
        """Stands for ``write_atomically``: dies before, in the middle with a torn file, or after."""

        def torn(tmp: Path) -> None:
            write(tmp)
            if not self.calm and self.rng.random() < 0.01:
                content = tmp.read_bytes()
                tmp.write_bytes(content[: self.rng.randrange(len(content) + 1)])
                raise Crashed

        self.maybe_crash(0.01)
        write_atomically(path, torn, check)
        self.maybe_crash(0.01)

    def rows(self) -> dict[Key, Row]:
        """What the history holds."""
        tables = [History(self.settings.storage_folder, (), step_s).read(kind="devices") for step_s in (60, 300, 600)]
        return {
            (f"{r['site']}/{r['zone']}", r["device"], r["end_ms"], r["metric"]): (
                r["count"], r["mean"], r["min"], r["max"], r["last"],
            )
            for table in tables for r in table.to_pylist()
        }  # fmt: skip

    def plans(self) -> dict[PlanKey, tuple[int, Foreseen]]:
        """The plans that the history holds."""
        history = PlanHistory(self.settings.storage_folder)
        return {
            (site, one.plan.zone or "_site", one.plan.source, one.plan.issued_ms): (
                one.plan.known_ms,
                {
                    metric: [[int(ms), round(float(value), 1)] for ms, value in zip(times, values, strict=True)]
                    for metric, (times, values) in one.plan.series.items()
                },
            )
            for site in history.sites() for one in history.read(site, 0, 2**62)
        }  # fmt: skip

    def alerts(self) -> list[list[ShownAlert]]:
        """Every change of an alert that was kept, by partition."""
        return _journaled(self.settings)

    def undisturbed(self, folder: Path) -> list[list[ShownAlert]]:
        """The same of a shard that read the whole log and never died."""
        settings = self.settings.model_copy(update={"data_dir": folder})
        shard = Shard(
            settings, range(PARTITIONS), self.log, FakeForecaster(), Outputs(NullSeries(), FakeLiveState()),
            Executors(Inline(), Inline(), Inline()), Clock(0.2),
        )  # fmt: skip
        while shard.step():
            pass
        shard.close()
        return _journaled(settings)

    def dead_letters(self) -> Counter[tuple[str, str]]:
        """Every dead letter by reason and topic."""
        found: Counter[tuple[str, str]] = Counter()
        for number in range(PARTITIONS):
            dead_letters = DeadLetters(self.settings.storage_folder, number)
            found.update((letter.reason, letter.topic) for letter in dead_letters.newest(100_000))
        return found


def _at(sample: Sample, ahead_ms: int) -> Sample:
    return Sample(*[getattr(sample, n) if n != "ts_ms" else sample.ts_ms + ahead_ms for n in sample.__struct_fields__])


def _with(sample: Sample, values: dict[str, float]) -> Sample:
    return Sample(*[getattr(sample, n) if n != "values" else values for n in sample.__struct_fields__])


def _float32(row: Row) -> Row:
    return (row[0], *(float(np.float32(number)) for number in row[1:]))  # type: ignore[return-value]


def simulate(seed: int, folder: Path, log: Log, monkeypatch: pytest.MonkeyPatch, minutes: int = 10) -> World:
    """Run a seed and compare with the judge."""
    world = World(seed, folder, log)
    with monkeypatch.context() as patch:
        patch.setattr(folder_storage, "write_atomically", world.write)
        patch.setattr(os, "fsync", lambda _: None)  # a made-up crash loses no page cache
        world.run(minutes)
    expected = {key: _float32(row) for key, row in world.judge.rows.items()}
    assert differences(expected, world.rows()) == [], f"seed {seed}"
    assert world.dead_letters() == world.judge.dead_letters, f"seed {seed}"
    stats: Counter[str] = Counter()
    for shard in world.shards:
        figures: dict[str, Any] = shard.stats()
        stats.update({name: figures[name] for name in ("accepted", "duplicates", "late", "plans", "plans_repeated")})
        stats["plans_refused"] += sum(figures["plans_refused"].values())
    assert world.alerts() == world.undisturbed(folder / "undisturbed"), f"seed {seed}"
    judge = world.judge
    assert (stats["accepted"], stats["duplicates"]) == (judge.accepted, judge.duplicates), f"seed {seed}"
    assert world.plans() == judge.plans, f"seed {seed}"
    assert [stats[name] for name in ("plans", "plans_repeated", "plans_refused")] == [
        len(judge.plans), judge.plans_repeated, judge.plans_refused
    ], f"seed {seed}"  # fmt: skip
    return world


SEEDS = range(*map(int, os.environ.get("HOTHOUSE_TEST_SEEDS", "0:3").split(":")))


@pytest.mark.timeout(3600)
@pytest.mark.thorough
def test_whatever_dies_nothing_is_lost_and_nothing_counted_or_told_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Crashes around every durable step, torn files, copies, disorder, a full log, other numbers of shards, silent
    zones, orders: rows and dead letters are the judge's, changes of alerts those of a shard which never died, and once.
    """
    total: Counter[str] = Counter()
    changes: list[ShownAlert] = []
    for seed in SEEDS:
        world = simulate(seed, tmp_path / str(seed), MemoryLog(PARTITIONS), monkeypatch, minutes=25)
        assert world.crashes
        told = [alert for of in world.alerts() for alert in of]
        newest = {alert["id"]: alert["change"] for alert in told}
        assert {alert["id"]: alert["change"] for alert in world.shown.values()} == newest
        changes += told
        total.update(
            seeds=1, crashes=world.crashes, published=world.published, rows=len(world.judge.rows),
            accepted=world.judge.accepted, duplicates=world.judge.duplicates,
            dead_letters=world.judge.dead_letters.total(), plans=len(world.judge.plans), alert_changes=len(told),
        )  # fmt: skip
    assert total["crashes"] > len(SEEDS)
    assert total["plans"] > 5 * len(SEEDS)
    assert {"firing", "resolved"} < {alert["state"] for alert in changes}
    print("; ".join(f"{name} {count}" for name, count in total.items()))


@pytest.mark.thorough
def test_the_same_on_the_log_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log that is the default gives the same rows as the one in memory."""
    log = SqliteLog(tmp_path / "log.sqlite", PARTITIONS)
    on_file = simulate(1, tmp_path / "file", log, monkeypatch, minutes=25)
    log.close()
    assert on_file.judge.accepted > 500


def test_a_seed_tells_the_same_story_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the seed decides: a failure can be looked at again."""
    one, two = (simulate(5, tmp_path / name, MemoryLog(PARTITIONS), monkeypatch) for name in ("one", "two"))
    assert (one.crashes, one.judge.rows, one.judge.dead_letters) == (
        two.crashes,
        two.judge.rows,
        two.judge.dead_letters,
    )
