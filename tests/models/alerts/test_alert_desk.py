"""Rules, chances and alerts put together."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from models.alerts.alert_book import Alert, RuleFinding
from models.alerts.alert_desk import AlertDesk, _finding
from models.alerts.alert_rule import AlertRule
from models.alerts.facts import Fact
from models.alerts.foreseen import STEP_MS, ForeseenEvent
from models.alerts.rule_watch import Said
from tests.models.alerts.made_world import DAY, RULES, SPEC, World, half_hours

ZONES = ("north", "south")


def desk_of() -> AlertDesk:
    """Two zones."""
    desk = AlertDesk(RULES, SPEC)
    desk.add_zones(2)
    return desk


def clock(ms: int) -> str:
    """Hours and minutes of the day."""
    return f"{ms // 3_600_000 % 24:02d}:{ms // 60_000 % 60:02d}"


def see(desk: AlertDesk, world: World, t: int) -> list[Alert]:
    """One half hour; the world's rows end at half hours after midnight of day 0, shifted by a row."""
    changed, _ = desk.see("site", ZONES, np.arange(2), world.rows[:, t + 1 - DAY : t + 1], world.ahead(t), clock)
    return changed


def flat(state: Any) -> Any:
    """The state with arrays as bytes."""
    if isinstance(state, dict):
        return {name: flat(held) for name, held in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else state


def test_a_chance_without_a_scenario_is_one_of_the_lead() -> None:
    """Cold nights come at this hour though no scenario has one: it is said of hours to come."""
    (rule,) = (rule for rule in RULES if rule.name == "cold")
    none = ForeseenEvent(0.0, False, 0, 0, 0, {}, 4.0)
    finding = _finding(rule, Said(none, 0.5, 0.4), 10 * 3_600_000, 10 * 3_600_000, 24, clock)
    assert finding is not None
    assert (finding.from_ms, finding.to_ms) == (10 * 3_600_000, 22 * 3_600_000)
    assert "between 10:00 and " in finding.why


def test_a_cold_night_is_an_alert_that_says_why() -> None:
    """It fires before it is cold, says when and with which air, then since when, and is resolved."""
    world, desk = World(3), desk_of()
    told = [alert for t in range(DAY - 1, 4 * DAY, 3) for alert in see(desk, world, t) if alert.zone == "north"]
    ids = [alert.id for alert in told if alert.state == "firing" and alert.came_ms is None and alert.rule == "cold"]
    mine = [alert for alert in told if alert.id == ids[0]]
    assert [alert.state for alert in mine][-2:] == ["firing", "resolved"]
    fired, over = mine[-2:]
    assert fired.why.startswith(f"cold (below {fired.limit:g} °C) ")
    assert "% between" in fired.why
    assert "air" in fired.why
    assert fired.told_ms is not None
    assert over.came_ms is not None
    assert over.came_ms - fired.told_ms >= 2 * STEP_MS
    assert "cold" in over.why


def test_an_event_of_days_is_since_its_beginning() -> None:
    """Rules look back a day; what an alert says of its beginning stays as it is afterwards, in figures and in words."""
    warm = AlertRule(name="warm", kind="heat", limit=-50.0)
    world, desk = World(3), AlertDesk([warm], SPEC)
    desk.add_zones(2)
    said = set()
    for t in half_hours(4):
        see(desk, world, t)
        said |= {(alert.from_ms, re.split("[,;]", alert.why)[0]) for alert in desk.book if alert.zone == "north"}
    assert len(said) == 1, said


def test_an_event_that_comes_again_is_since_it_came_again() -> None:
    """An alert outlives a pause while the chance stays near: what went on before the pause is another event."""
    warm = AlertRule(name="warm", kind="heat", limit=-50.0)
    desk = AlertDesk([warm], SPEC)
    desk.add_zones(2)
    ongoing = RuleFinding(1.0, True, 0, STEP_MS, "warm")
    desk.book.see(STEP_MS, "site", "north", "warm", ongoing)
    desk.book.see(2 * STEP_MS, "site", "north", "warm", replace(ongoing, is_now=False, from_ms=9 * STEP_MS))
    assert desk._began_before(5 * STEP_MS, "site", "north", "warm") == 5 * STEP_MS


def test_facts_are_alerts_at_once() -> None:
    """And are over when they are no more so, for as long as the rule keeps them."""
    desk = desk_of()
    [alert] = desk.hear(0, "site", "north", [Fact("sensor_fault", 0, "rh_pct: stuck at 71.3")])
    assert (alert.state, alert.why) == ("firing", "rh_pct: stuck at 71.3")
    assert desk.hear(STEP_MS, "site", "north", []) == []
    [over] = desk.hear(4 * STEP_MS, "site", "north", [])
    assert (over.state, over.id) == ("resolved", alert.id)


@pytest.mark.parametrize("crash", [20, 47, 60, 71])
def test_after_a_crash_nothing_is_lost_or_told_otherwise(crash: int) -> None:
    """A desk that goes on from a state changes the same alerts as one that was never stopped, byte for byte."""
    world, whole, first = World(2), desk_of(), desk_of()
    steps = list(range(DAY - 1, 3 * DAY, 3))[: crash + 12]
    inputs = [(world.rows[:, t + 1 - DAY : t + 1], world.ahead(t)) for t in steps]

    def run(desk: AlertDesk, part: slice) -> list[Alert]:
        return [a for rows, ahead in inputs[part] for a in desk.see("site", ZONES, np.arange(2), rows, ahead, clock)[0]]

    wanted = run(whole, slice(None))
    told = run(first, slice(None, crash))
    again = desk_of()
    again.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    assert told + run(again, slice(crash, None)) == wanted
    assert flat(again.state_dict()) == flat(whole.state_dict())


def test_a_half_hour_counts_once() -> None:
    """A forecast that is made again from the same rows, as after a swap, changes nothing, and teaches nothing twice."""
    world, desk = World(2), desk_of()
    ahead, rows = world.ahead(DAY - 1), world.rows[:, :DAY]
    desk.see("site", ZONES, np.arange(2), rows, ahead, clock)
    before = flat(desk.state_dict())
    assert desk.see("site", ZONES, np.arange(2), rows, ahead, clock) == ([], [])
    assert flat(desk.state_dict()) == before


def test_an_empty_state_begins_and_another_version_is_refused() -> None:
    """A snapshot of before alerts has none."""
    desk = desk_of()
    desk.load_state_dict({})
    assert len(desk.book) == 0
    with pytest.raises(ValueError, match="alerts of version 9, wanted 1"):
        desk.load_state_dict(desk.state_dict() | {"version": 9})
    with pytest.raises(ValueError, match="other rules"):
        AlertDesk(RULES[:1], SPEC).load_state_dict(desk.state_dict())


def test_each_zone_sees_a_half_hour_when_its_turn_comes() -> None:
    """Zones that are looked at one after another have the same alerts as together; who has seen it is left out."""
    world, together, apart = World(2), desk_of(), desk_of()
    rows, ahead = world.rows[:, :DAY], world.ahead(DAY - 1)
    together.see("site", ZONES, np.arange(2), rows, ahead, clock)
    for z, zone in enumerate(ZONES):
        apart.see("site", [zone], np.array([z]), rows[z : z + 1], ahead.of(np.array([z])), clock)
    assert apart.book.state_dict() == together.book.state_dict()
    before = flat(apart.state_dict())
    assert apart.see("site", ZONES, np.arange(2), rows, ahead, clock) == ([], [])
    assert flat(apart.state_dict()) == before


def test_a_look_that_comes_late_speaks_of_its_own_time() -> None:
    """Rows that end some minutes after the half hour: the alert begins then."""
    world, desk = World(3), desk_of()
    t = next(
        t for t in range(DAY - 1, 4 * DAY, 3)
        if any(a.state == "firing" for a in see(desk, world, t))
    )  # fmt: skip
    late = replace(world.ahead(t), late_ms=600_000)
    told, _ = desk_of().see("site", ZONES, np.arange(2), world.rows[:, t + 1 - DAY : t + 1], late, clock)
    assert {alert.began_ms % STEP_MS for alert in told} == {600_000}
