"""Setpoints that are off their plan: by the plan that was known, for each rule by its own limit, over many plans."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from edge.log import Record
from edge.wire.plan import PlanMessage, encode_plan, plan_topic
from models.alerts.alert_desk import AlertDesk
from models.alerts.alert_rule import AlertRule
from models.alerts.rules_document import RulesDocument
from models.spec import ForecastSpec, Place
from services.ingest.alerts.partition_alerts import PartitionAlerts
from services.ingest.alerts.plan_watch import OF_PLANS, PlanWatch
from services.ingest.plans.intake import PartitionPlans
from services.ingest.windows.closed import CamePlan
from services.store.rows import SiteStep

MINUTE = 60_000
HOUR = 60 * MINUTE
STEP = 5 * MINUTE
NOON = 1_772_366_400_000
SPEC = ForecastSpec(channels=("air_temp_c", "rh_pct", "co2_ppm", "sp_heat_c"))
RULES = RulesDocument.of({}).rules


class Greenhouse:
    """A zone whose setpoint is told row by row, and whose plans come between rows."""

    def __init__(self, setpoint: float) -> None:
        self.plans, self.watch, self.end_ms = PartitionPlans(), PlanWatch(), NOON
        self.rows = np.full((SPEC.steps_per_day, 4), np.nan, np.float32)
        self.rows[:, 3] = setpoint
        self._offset = 0

    def plan(self, *path: tuple[int, float], source: str = "computer") -> None:
        """A plan that is issued a minute after the newest row."""
        issued_ms = self.end_ms + MINUTE
        message = PlanMessage("demo", "z1", source, "setpoint", issued_ms, {"sp_heat_c": list(path)})
        topic = plan_topic("demo", "z1", "computer")
        record = Record(0, self._offset, "demo", "plan", issued_ms, encode_plan(message), topic)
        self._offset += 1
        assert self.plans.feed([CamePlan(record, self.end_ms, self.end_ms)]) == []

    def go_on(self, rows: int, setpoint: float) -> None:
        for _ in range(rows):
            self.end_ms += STEP
            assert self.plans.before_row("demo", self.end_ms) == []
            self.rows = np.roll(self.rows, -1, axis=0)
            self.rows[-1, 3] = setpoint
            self.plans.after_row("demo", self.end_ms)

    def look(self, rules: tuple[AlertRule, ...] = RULES) -> Any:
        ground: Any = SimpleNamespace(plans=self.plans)
        newest = self.rows[-1:]
        step = SiteStep(0, "demo", self.end_ms, ("z1",), newest, newest * 0, [])
        return self.watch.look(rules, ground, SPEC, step, "z1", self.rows)

    def hourly(self, hours: int, wanted: float, setpoint: float) -> Iterator[Any]:
        """A plan each hour, from then on, and what is found each half hour."""
        for _ in range(hours):
            self.plan((self.end_ms + MINUTE, wanted), (self.end_ms + 12 * HOUR, wanted))
            for _ in range(2):
                self.go_on(6, setpoint)
                yield self.look()


def test_nobody_has_left_a_plan_before_it_came() -> None:
    """The computer held 18 all morning; a plan of noon says 19.5 since six: it is off since noon, and told later."""
    house, desk = Greenhouse(18.0), AlertDesk(RULES, SPEC)
    house.plan((NOON - 6 * HOUR, 19.5), (NOON + 8 * HOUR, 17.0))
    house.go_on(1, 18.0)
    [fact] = house.look()
    assert (fact.since_ms, fact.words) == (NOON + STEP, "sp_heat_c is 18.0 °C, planned 19.5 °C")
    assert desk.hear(house.end_ms, "demo", "z1", [fact], OF_PLANS) == []
    house.go_on(12, 18.0)
    [fact] = house.look()
    assert fact.since_ms == NOON + STEP
    (alert,) = desk.hear(house.end_ms, "demo", "z1", [fact], OF_PLANS)
    assert (alert.state, alert.from_ms) == ("firing", NOON + STEP)


def test_a_plan_that_was_known_is_judged_row_by_row() -> None:
    """It is off since the setpoint was moved, not since somebody looked."""
    house = Greenhouse(18.0)
    house.plan((NOON - 6 * HOUR, 18.0), (NOON + 8 * HOUR, 17.0))
    house.go_on(6, 18.0)
    assert house.look() == []
    house.go_on(6, 15.0)
    [fact] = house.look()
    assert fact.since_ms == NOON + 6 * STEP


def test_a_computer_that_plans_each_hour_is_not_silenced() -> None:
    """No plan is there for long, and none is followed: that has gone on since the first."""
    house = Greenhouse(15.0)
    found = list(house.hourly(4, wanted=18.0, setpoint=15.0))
    assert [fact.since_ms for [fact] in found] == [NOON + STEP] * 8


def test_one_that_follows_its_plan_for_a_while_begins_anew() -> None:
    """Also between two looks."""
    house = Greenhouse(15.0)
    list(house.hourly(2, wanted=18.0, setpoint=15.0))
    house.go_on(2, 18.0)
    house.go_on(4, 15.0)
    [fact] = house.look()
    assert fact.since_ms == house.end_ms - 4 * STEP


def test_yesterdays_plan_binds_nobody() -> None:
    """Nor do rows of before the grower planned count that it was meant for."""
    house = Greenhouse(15.0)
    house.plan((NOON + MINUTE, 18.0), (NOON + 24 * HOUR, 18.0), source="yesterday")
    house.go_on(6, 15.0)
    assert house.look() is None
    house.plan((NOON + 30 * MINUTE, 18.0), (NOON + 24 * HOUR, 18.0), source="grower")
    house.go_on(6, 15.0)
    [fact] = house.look()
    assert fact.since_ms == NOON + 7 * STEP


def test_the_last_value_of_a_plan_is_judged_for_the_day_that_it_holds() -> None:
    """Such as a plan of one value, from now on; then nobody plans any more."""
    house = Greenhouse(15.0)
    house.plan((NOON + MINUTE, 18.0))
    house.go_on(24 * 12, 15.0)
    [fact] = house.look()
    assert (fact.since_ms, fact.words) == (NOON + STEP, "sp_heat_c is 15.0 °C, planned 18.0 °C")
    house.go_on(1, 15.0)
    assert house.look() is None


def test_a_plan_is_known_from_the_next_row_on() -> None:
    """However the log is cut into reads: one that came after the newest row is not seen by a look at it."""
    house = Greenhouse(15.0)
    house.plan((NOON + MINUTE, 18.0), (NOON + 24 * HOUR, 18.0))
    house.plans.take_rest()
    assert house.look() is None


@pytest.mark.parametrize("limit", [0.25, 4.0])
def test_each_rule_has_its_own_limit(limit: float) -> None:
    """A setpoint that is 1.5 °C off is beyond 1, not beyond 4; and of two alerts each has its own beginning."""
    changes = {"other": {"kind": "plan_not_followed", "limit": limit, "severity": "critical", "for_min": 30}}
    rules = RulesDocument.of({"changes": changes}).rules
    house, desk = Greenhouse(18.0), AlertDesk(rules, SPEC)
    house.plan((NOON + MINUTE, 18.0), (NOON + 12 * HOUR, 18.0))
    house.go_on(6, 17.5)
    house.look(rules)
    house.go_on(12, 16.5)
    told = desk.hear(house.end_ms, "demo", "z1", house.look(rules), OF_PLANS)
    began = {alert.rule: alert.from_ms for alert in told}
    assert began == {"plan_not_followed": NOON + 6 * STEP} | ({"other": NOON + STEP} if limit < 1 else {})


def test_a_snapshot_keeps_since_when_and_one_without_is_read() -> None:
    """The next shard goes on from it; what the release before wrote has no such part."""
    house = Greenhouse(15.0)
    first = list(house.hourly(2, wanted=18.0, setpoint=15.0))[-1]
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(house.watch.state()))
    house.watch = PlanWatch()
    house.watch.load(kept)
    again = next(house.hourly(1, wanted=18.0, setpoint=15.0))
    assert [fact.since_ms for fact in again] == [fact.since_ms for fact in first] == [NOON + STEP]
    house.watch.forget("demo", "z1")
    assert house.watch.state() == []

    alerts = PartitionAlerts(SPEC, lambda site: Place())
    state = alerts.state(0)
    assert state.pop("off_plans") == []
    alerts.load(state)
