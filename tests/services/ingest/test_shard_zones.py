"""What a shard says of zones that leave and come back: figures, forecasts, learners, restarts and replays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from edge.log import NewRecord
from edge.log.memory import MemoryLog
from edge.wire.topic import SITE_ZONE
from services.ingest.questions import SilentZone
from services.ingest.shard import Shard
from tests.services.ingest.rig import Clock, Held, Rig
from tests.services.ingest.samples import STEP, T0, new_records, sample

HOUR, DAY = 12, 288  # steps
TICK = STEP // 10


def batch(n: int, *zones: str) -> NewRecord:
    """What zones send at the end of step ``n``."""
    at = T0 + n * STEP
    (record,) = new_records([[sample(at, n, zone, air_temp_c=20 + n % 7 / 3, rh_pct=70.0) for zone in zones]])
    return record


def retire(zone: str, n: float, **fields: int) -> NewRecord:
    payload = json.dumps({"type": "retire", **fields}).encode()
    return NewRecord("demo", "event", T0 + round(n * STEP), payload, f"hothouse/v1/demo/{zone}/operator/event")


def tick(n: float) -> NewRecord:
    return NewRecord("demo", "tick", T0 + round(n * STEP), b"")


def feed(rig: Rig, shard: Shard, *records: NewRecord) -> None:
    for record in records:
        rig.log.append([record])
        rig.drain(shard)


def shown(rig: Rig, after: int = 0) -> set[str]:
    return {forecast["zone"] for forecast in rig.live_state.published[after:]}


def test_a_retired_zone_is_forecast_no_more(tmp_path: Path) -> None:
    """Neither live, nor after a swap, a restart or a replay of the log; its rows stay; figures name it as left."""
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    feed(rig, shard, *(batch(n, "z1", "typo") for n in range(30)), retire("typo", 30, version=7))
    feed(rig, shard, *(batch(n, "z1") for n in range(30, 34)))
    before = len(rig.live_state.published)
    feed(rig, shard, *(batch(n, "z1") for n in range(34, 40)))
    shard.refresh()
    rig.drain(shard)
    assert shown(rig, before) == {"z1"}
    figures = shard.stats()
    assert figures["zones"] == ["demo/z1"]
    assert figures["left"] == [{"site": "demo", "zone": "typo", "left_ms": T0 + 29 * STEP}]
    shard.close()
    content, before = rig.content(), len(rig.live_state.published)
    again = rig.shard()
    rig.drain(again)
    assert shown(rig, before) == {"z1"}
    assert again.stats()["left"] == figures["left"]
    again.close()
    for kind in ("snapshots", "history"):
        shutil.rmtree(rig.settings.storage_folder / kind)
    replay = rig.shard()
    rig.drain(replay)
    replay.close()
    assert rig.content() == content


def test_the_last_zone_takes_its_forecast_with_it(tmp_path: Path) -> None:
    """A site of which no row closes any more is not forecast again, nor do its figures remain once it is gone."""
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    feed(rig, shard, *(batch(n, "z1") for n in range(30)), *(tick(29 + n / 10) for n in range(1, 20)))
    feed(rig, shard, retire("z1", 31, version=7))
    assert shard.questions.silent() == [SilentZone(site="demo", zone=SITE_ZONE, until_ms=T0 + 30 * STEP)]
    assert "demo" in shard.stats()["stream_ms"]
    feed(rig, shard, retire(SITE_ZONE, 31, until_ms=T0 + 30 * STEP))
    assert shard.questions.silent() == []
    before = len(rig.live_state.published)
    shard.refresh()
    rig.drain(shard)
    shard.close()
    shard = rig.shard()
    rig.drain(shard)
    assert len(rig.live_state.published) == before
    figures = shard.stats()
    assert figures["zones"] == figures["sites"] == []
    assert figures["stream_ms"] == figures["watermark_ms"] == {}
    feed(rig, shard, batch(40, "z1"), batch(41, "z1"))
    assert shown(rig, before) == {"z1"}
    assert shard.stats()["watermark_ms"] == {"demo": T0 + 40 * STEP}


@pytest.mark.parametrize("away", [2, 30 * HOUR])
@pytest.mark.thorough
def test_a_zone_that_is_back_goes_on(tmp_path: Path, away: int) -> None:
    """With what it learned, and without its gap being taken for rows: no forecast is scored against another time's."""
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    rig.log.append([batch(n, "z1", "z2") for n in range(DAY)])
    rig.drain(shard)
    end = DAY + 30
    feed(rig, shard, *(batch(n, "z1", "z2") for n in range(DAY, end)))
    rig.log.append([retire("z2", end, version=7)])
    rig.log.append([batch(n, "z1") for n in range(end, end + away)])
    rig.drain(shard)
    scores = shard._partitions[0].learner.parts.scores
    index = np.array([shard._partitions[0].learner.parts.rings.index("demo", "z2")])
    assert shard.stats()["zones"] == ["demo/z1"]
    began, learned = end + away, scores.table(index)["air_temp_c"]
    feed(rig, shard, *(batch(n, "z1", "z2") for n in range(began, began + 3)))
    shard.close()
    shard = rig.shard()
    feed(rig, shard, *(batch(n, "z1", "z2") for n in range(began + 3, began + 14)))
    assert shard.stats()["zones"] == ["demo/z1", "demo/z2"]
    assert shard.stats()["left"] == []
    newest = [forecast for forecast in rig.live_state.published if forecast["zone"] == "z2"][-1]
    assert newest["origin_ms"] == T0 + (began + 12) * STEP
    assert all(np.isfinite(point["p50"]) for point in newest["forecasts"]["air_temp_c"])
    after = shard._partitions[0].learner.parts.scores.table(index)["air_temp_c"]
    # 13 rows came back: as many truths a horizon as forecasts of the zone at just that time before, known or not.
    for minutes in (5, 60, 1440):
        horizon = minutes // 5
        there = [n for n in range(began, began + 13) if n - horizon < end or n - horizon >= began]
        most = len([n for n in there if n - max(horizon, DAY) < end])
        assert after[minutes]["n"] - learned[minutes]["n"] <= most
        if minutes == 5 and away < DAY:
            assert after[minutes]["n"] > learned[minutes]["n"]


def test_a_forecast_in_flight_of_a_zone_that_leaves_is_not_shown(tmp_path: Path) -> None:
    """Its reply comes after the zone has left: the others of its step are published, the zone is not."""
    rig = Rig(tmp_path, MemoryLog(1))
    rig.executor = held = Held()
    shard = rig.shard()
    for n in range(30):
        rig.log.append([batch(n, "z1", "typo")])
    rig.log.append([batch(30, "z1")])
    rig.drain(shard)
    held.release()
    rig.drain(shard)
    rig.log.append([retire("typo", 31, version=7), batch(31, "z1"), batch(32, "z1")])
    rig.drain(shard)
    before = len(rig.live_state.published)
    while held.waiting:
        held.release()
        rig.drain(shard)
    assert shown(rig, before) == {"z1"}


def test_the_row_that_a_first_forecast_waits_for_is_named(tmp_path: Path) -> None:
    """From a zone's first sample until its row closes, with the time at which it does; a weather station's is none."""
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    feed(rig, shard, batch(0, SITE_ZONE))
    assert shard.stats()["first_rows"] == []
    feed(rig, shard, batch(1, "z1", SITE_ZONE))
    assert shard.stats()["first_rows"] == [{"site": "demo", "end_ms": T0 + STEP, "closes_ms": T0 + STEP + 30_000}]
    feed(rig, shard, batch(2, "z1"))
    assert shard.stats()["first_rows"] == []
    assert shard.stats()["zone_rows"] == 1


def test_silent_zones_are_named_by_the_time_of_the_stream(tmp_path: Path) -> None:
    """After ``stream.retire_days`` of ticks and no sooner, never where it is 0; the wall clock does not count."""
    rig, never = Rig(tmp_path / "a", MemoryLog(1), retire_days=0.25), Rig(tmp_path / "b", MemoryLog(1), retire_days=0)
    for one in (rig, never):
        one.clock = Clock()
        one.log.append([batch(0, "z1", "typo"), batch(1, "z1")])
        one.log.append([tick(1 + n / 10) for n in range(10 * 6 * HOUR)])
    shard, other = rig.shard(), never.shard()
    rig.drain(shard)
    never.drain(other)
    rig.clock.now_s += 30 * 86_400
    assert shard.questions.silent() == []
    for one, of in ((rig, shard), (never, other)):
        one.log.append([tick(1 + 6 * HOUR + n / 10) for n in range(30)])
        one.drain(of)
    assert SilentZone(site="demo", zone="typo", until_ms=T0) in shard.questions.silent()
    assert other.questions.silent() == []


@pytest.mark.parametrize("tenth", range(0, 10, 3))
def test_a_zone_that_is_retired_while_it_sends_holds_nothing_up(tmp_path: Path, tenth: int) -> None:
    """After a wrong name was mended: the row that is open still has the zone, and ticks come between."""
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()

    def live(at: float, *zones: str) -> None:
        ms = T0 + round(at * STEP)
        samples = [sample(ms, round(at * 10), zone, air_temp_c=20.0 + at % 7, rh_pct=70.0) for zone in zones]
        feed(rig, shard, *new_records([samples]), tick(at))

    for n in range(280, 300 + tenth):
        live(n / 10, "z1", "typo")
    feed(rig, shard, retire("typo", 30 + tenth / 10, version=7))
    for n in range(300 + tenth, 330):
        live(n / 10, "z1")
    assert {alert["zone"] for alert in rig.live_state.alerts.values() if alert["state"] != "resolved"} <= {
        "z1",
        SITE_ZONE,
    }
    before = len(rig.live_state.published)
    live(33.1, "z1")
    live(34.1, "z1")
    live(35.1, "z1")
    assert shown(rig, before) == {"z1"}


def test_a_snapshot_with_a_zone_that_has_just_left_is_gone_on_from(tmp_path: Path) -> None:
    """A silent zone is retired between the row that closed last and the next tick, and the shard starts again."""
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    feed(rig, shard, *(batch(n, "z1", "typo") for n in range(30)))
    feed(rig, shard, batch(30, "z1"), batch(31, "z1"), retire("typo", 31, version=7))
    rig.clock.now_s += 100
    rig.drain(shard)  # a snapshot
    rig.log.append([tick(31.1)])
    again = rig.shard()
    rig.drain(again)
    assert again.stats()["offsets"] == {"0": 34}
