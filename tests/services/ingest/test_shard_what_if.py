"""What a zone has seen itself: counted by its shard, kept over a crash, and new to a snapshot of before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.log import NewRecord
from edge.log.memory import MemoryLog
from edge.wire.topic import SITE_ZONE
from models.spec import Place
from services.ingest.partition import Partition
from services.ingest.snapshots.parts import LEARNED, PARTS
from services.messages import ChangeAsked
from tests.services.ingest.rig import ZONES, Rig, day, filled
from tests.services.ingest.samples import STEP, T0, new_records, sample

STEPS = 330


def nudged() -> Iterator[NewRecord]:
    """A day at 18 °C; then every other half-hour is set to 20 °C."""
    for n in range(STEPS):
        at, level = T0 + n * STEP, 20.0 if n > 288 and (n - 289) // 6 % 2 == 0 else 18.0
        inside = {"air_temp_c": level + 0.2, "rh_pct": 80.0, "co2_ppm": 500.0, "sp_heat_c": level}
        outside = {"out_temp_c": 4.0, "out_radiation_w_m2": 0.0, "wind_m_s": 3.0}
        yield from new_records([[sample(at, n, "z1", **inside), sample(at, n, SITE_ZONE, "ws", **outside)]])


def asked(add: float) -> list[ChangeAsked]:
    """The heating setpoint, changed for five hours."""
    begin_ms = T0 + (STEPS + 12) * STEP
    return [ChangeAsked(metric="sp_heat_c", how="add", value=add, begin_ms=begin_ms, end_ms=begin_ms + 60 * STEP)]


@pytest.mark.thorough
def test_what_a_zone_has_seen_is_supported_here_also_after_a_crash(tmp_path: Path) -> None:
    """Three times warmer than a day before supports warmer, not colder; a shard that is started again knows it, too."""
    rig = Rig(tmp_path, MemoryLog(1), snapshot_s=3000)
    shard = rig.shard()
    records = list(nudged())
    rig.log.append(records[:310])
    rig.drain(shard)
    before = shard.questions.what_if("demo", "z1", asked(2.0))
    assert before is not None
    assert before["support"] == "simulated"
    shard.flush()
    shard = rig.shard()  # the one before was never closed
    rig.log.append(records[310:])
    rig.drain(shard)
    found = [shard.questions.what_if("demo", "z1", asked(add)) for add in (2.0, -2.0)]
    assert [one and one["support"] for one in found] == ["here", "simulated"]
    assert found[0] is not None
    assert "sp_heat_c was moved so 3 times" in found[0]["says"]
    assert shard.questions.what_if("demo", "nowhere", asked(2.0)) is None
    shard.close()


@pytest.mark.thorough
def test_a_schedule_is_not_changed_by_the_clock_that_it_follows(tmp_path: Path) -> None:
    """15 °C until eight and 18 °C from then on, also on the morning of 27 March 2022: the clock was put forward."""
    rig, place = Rig(tmp_path, MemoryLog(1)), Place("Europe/Amsterdam")
    hour_ms, day_ms = 3_600_000, 86_400_000

    def records(begin_ms: int, steps: int) -> Iterator[NewRecord]:
        for n in range(steps):
            at = begin_ms + n * STEP
            level = 18.0 if place.local_ms(at - 1) % day_ms >= 8 * hour_ms else 15.0
            yield from new_records([[sample(at, n, "z1", air_temp_c=20.0, sp_heat_c=level)]])

    rig.log.append(list(records(T0 + 25 * day_ms + 5 * hour_ms, 28 * 12)))
    shard = rig.shard()
    rig.drain(shard)
    assert shard._partitions[0].learner.parts.seen_changes.of_zone(0)("sp_heat_c", 3.0) == 0
    shard.close()


def test_a_snapshot_of_before_has_seen_nothing_and_loads(tmp_path: Path) -> None:
    """The part is new: without it nothing is damaged, and zones begin to count."""
    assert "seen_changes" in LEARNED
    assert PARTS["seen_changes"].missing is not None
    rig = Rig(tmp_path, filled(list(day(20))))
    shard = rig.shard()
    rig.drain(shard)
    state = shard._partitions[0].state()
    state["seen_changes"] = PARTS["seen_changes"].missing()
    ring_steps = rig.settings.stream.ring_hours * 12
    made = Partition(0, shard.spec, shard._partitions[0].windows, ring_steps, lambda site: Place())
    assert made.load(20, state) == {}
    assert len(made.learner.parts.seen_changes) == len(made.learner.forecaster) == len(ZONES)
    shard.close()
