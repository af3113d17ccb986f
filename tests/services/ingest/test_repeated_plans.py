"""Yesterday's setpoints as today's plan, for zones whose settings say so."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from edge.log import NewRecord
from edge.mqtt.publish import PublishError
from edge.wire.plan import PlanMessage, encode_plan, plan_topic
from models.spec import Place
from services.config import Settings, SiteSettings
from services.ingest.plans.repeated import repeated
from services.ingest.plans.repeater import AGAIN_S, RepeatedPlans
from services.ingest.shard import Shard
from tests.services.ingest.planned import HOUR, heating, plan_record
from tests.services.ingest.rig import Rig, filled
from tests.services.ingest.samples import STEP, T0, new_records, sample

HOURS = HOUR // STEP


def hours(first: int, until: int) -> list[NewRecord]:
    """Two zones whose heating setpoint is the hour of the day."""
    batches = []
    for n in range(first * HOURS, until * HOURS):
        level = float(n // HOURS % 24)
        batches.append([sample(T0 + n * STEP, n, zone, sp_heat_c=level, air_temp_c=20.0) for zone in ("z1", "z2")])
    return new_records(batches)


def opened(folder: Path, zones: tuple[str, ...]) -> tuple[Rig, Shard]:
    rig = Rig(folder, filled([]))
    site = SiteSettings(name="demo", timezone="UTC", repeat_setpoints=zones)
    rig.settings = Settings(data_dir=folder, sites=(site,), stream=rig.settings.stream)
    return rig, rig.shard()


def come_back(rig: Rig, plans: list[PlanMessage]) -> None:
    """As the broker and the gateway bring them."""
    rig.log.append([
        NewRecord(p.site, "plan", p.issued_ms + 1, encode_plan(p), plan_topic(p.site, p.zone, "hothouse"))
        for p in plans
    ])  # fmt: skip


@pytest.mark.thorough
def test_yesterday_is_the_plan_of_two_days_once_a_day(tmp_path: Path) -> None:
    """Each half hour as it was 24 hours before; the next one after midnight."""
    rig, shard = opened(tmp_path, ("z1",))
    rig.log.append(hours(0, 30))
    rig.drain(shard)
    (plan,) = shard.questions.repeated_plans()
    assert (plan.zone, plan.source, plan.kind) == ("z1", "yesterday", "setpoint")
    path = plan.values["sp_heat_c"]
    assert len(path) == 96
    assert all(value == ((ms - STEP) // HOUR) % 24 or ms % HOUR == 0 for ms, value in path)
    assert (path[0][0] > plan.issued_ms, path[-1][0] <= plan.issued_ms + 48 * HOUR) == (True, True)
    come_back(rig, [plan])
    rig.log.append(hours(30, 47))
    rig.drain(shard)
    assert shard.questions.repeated_plans() == []
    (known,) = shard.questions.plan("demo", "z1") or []
    assert known["source"] == "yesterday"
    rig.log.append(hours(47, 50))
    rig.drain(shard)
    assert [plan.issued_ms > T0 + 48 * HOUR for plan in shard.questions.repeated_plans()] == [True]


def test_a_growers_own_plan_goes_before_it(tmp_path: Path) -> None:
    """A zone that somebody plans gets none; `*` names every zone."""
    rig, shard = opened(tmp_path, ("*",))
    rig.log.append([*hours(0, 25), heating(T0 + 25 * HOUR, zone="z1"), *hours(25, 26)])
    rig.drain(shard)
    assert [plan.zone for plan in shard.questions.repeated_plans()] == ["z2"]


@pytest.mark.thorough
def test_without_the_setting_nothing_is_repeated(tmp_path: Path) -> None:
    """Nor for a zone of which no setpoint is known."""
    rig, shard = opened(tmp_path, ())
    rig.log.append(hours(0, 26))
    rig.drain(shard)
    assert shard.questions.repeated_plans() == []
    rig, shard = opened(tmp_path / "other", ("*",))
    rig.log.append(new_records([[sample(T0 + n * STEP, n, air_temp_c=20.0)] for n in range(300)]))
    rig.drain(shard)
    assert shard.questions.repeated_plans() == []


@pytest.mark.parametrize(("clock", "shift_h"), [("civil", 0), ("standard", 1)])
@pytest.mark.parametrize("midnight", ["2026-03-28", "2026-03-29", "2026-03-30", "2026-10-25", "2026-10-26"])
def test_yesterdays_times_are_those_of_the_sites_clock(midnight: str, clock: str, shift_h: int) -> None:
    """Where clocks change meanwhile the day begins at 6:00 as before; a control without daylight saving begins it at
    7:00 in summer.
    """
    zone = ZoneInfo("Europe/Amsterdam")

    def is_day(ms: int) -> bool:
        at = datetime.fromtimestamp(ms / 1000, zone)
        summer = (at.dst() or timedelta(0)) > timedelta(0)
        return 6 <= at.hour - (shift_h if summer else 0) < 20

    end_ms = int(datetime.fromisoformat(midnight).replace(tzinfo=zone).timestamp() * 1000)
    ends = end_ms - STEP * np.arange(287, -1, -1)
    rows = np.array([[20.0 if is_day(int(ms)) else 16.0] for ms in ends], np.float32)
    local_ms = Place("Europe/Amsterdam", clock).local_ms
    plan = repeated("demo", "z1", end_ms, STEP, rows, ["sp_heat_c"], local_ms)
    assert plan is not None
    path = plan.values["sp_heat_c"]
    assert all(before < after for (before, _), (after, _) in pairwise([(end_ms, 0.0), *path]))
    assert [value for ms, value in path] == [20.0 if is_day(ms) else 16.0 for ms, _ in path]
    assert path[-1][0] - end_ms >= 46 * HOUR


def test_a_broker_that_is_away_is_told_and_gets_it_later() -> None:
    """What went out is not sent again before it may have been lost."""
    plan = PlanMessage("demo", "z1", "yesterday", "setpoint", T0, {"sp_heat_c": [(T0 + HOUR, 18.0)]})
    sent: list[str] = []
    away, now_s = True, 0.0

    def publish(topic: str, _: bytes) -> None:
        if away:
            raise PublishError("the broker did not take it")
        sent.append(topic)

    repeater = RepeatedPlans(lambda: [plan], publish, lambda: now_s)
    repeater.look()
    assert repeater.error == "yesterday's plans cannot be published: the broker did not take it"
    away = False
    for later_s in (1.0, 2.0, AGAIN_S + 0.5, AGAIN_S + 2.0):
        now_s = later_s
        repeater.look()
    assert (sent, repeater.error) == (["hothouse/v1/demo/z1/hothouse/plan"] * 2, "")


@pytest.mark.parametrize(("until_h", "repeated_zones"), [(27, ["z2"]), (28, ["z1", "z2"])])
@pytest.mark.thorough
def test_a_plan_that_is_over_is_no_plan(tmp_path: Path, until_h: int, repeated_zones: list[str]) -> None:
    """The grower's last value holds for a day; then yesterday is repeated again."""
    rig, shard = opened(tmp_path, ("*",))
    own = plan_record(
        T0 + 2 * HOUR, {"sp_heat_c": [(T0 + 3 * HOUR + STEP, 18.0)]}, zone="z1", source="grower", kind="setpoint"
    )
    rig.log.append([*hours(0, 2), own, *hours(2, until_h)])
    rig.drain(shard)
    assert [plan.zone for plan in shard.questions.repeated_plans()] == repeated_zones
