"""What rules say of zones, half hour by half hour."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from models.alerts.alert_rule import AlertRule
from models.alerts.foreseen import STEP_MS, reach_steps
from models.alerts.rule_watch import RuleWatch
from models.paths.steps import path_steps
from tests.models.alerts.made_world import DAY, RULES, SPEC, World, half_hours


def watch_of() -> RuleWatch:
    """Two zones."""
    watch = RuleWatch(RULES, SPEC)
    watch.add_zones(2)
    return watch


def test_only_rules_of_a_course_are_watched() -> None:
    """Those of a state need no scenarios."""
    assert [rule.name for rule in watch_of().rules] == ["cold", "wet"]
    assert STEP_MS % SPEC.step_ms == 0


def test_a_cold_night_is_told_before_and_seen_when_it_comes() -> None:
    """The chance is high some hours before, low in the middle of a warm day, and while it is cold that is known now."""
    world, watch = World(4), watch_of()
    said = {t: (world.see(watch, t), watch.is_now(0, (t + 1) // 3)[0]) for t in half_hours(4)}
    evening, noon, cold = 4 * DAY - 4, 3 * DAY - 73, 2 * DAY + 5
    assert said[evening][0][0][0].chance > 0.8  # day 4 is cold from its first hour on
    assert said[noon][0][0][0].chance < 0.1
    assert (said[evening][1], said[cold][1]) == (False, True)
    event = said[evening][0][0][0].event
    assert event is not None
    assert 2.0 < event.inputs["air"] < 4.0


def test_what_came_is_learned_from() -> None:
    """Chances and climatology leave their prior, and cold nights are usual at night."""
    world, watch = World(4), watch_of()
    for t in half_hours(4):
        said = world.see(watch, t)
    assert watch.calibration("cold").weights.tolist() != RuleWatch(RULES, SPEC).calibration("cold").weights.tolist()
    assert said[0][0].usual > 0.2


@pytest.mark.parametrize(("horizons_min", "reach"), [((10, 20), 1), ((60, 100), 3), ((30, 1440), 48), ((2880,), 48)])
def test_a_rule_looks_as_far_as_forecasts_go(horizons_min: tuple[int, ...], reach: int) -> None:
    """Its chance is that of an event until then, and is learned from what came until then: the same as of a rule with
    that lead.
    """
    spec = replace(SPEC, horizons_min=horizons_min)
    times = np.flatnonzero(path_steps(spec) % 3 == 0)
    assert (len(times) or 1, reach_steps(spec)) == (reach, reach)
    rules = [replace(RULES[0], lead_h=lead_h, name=f"{lead_h:g}") for lead_h in (reach / 2, 24.0)]
    world, watch = World(2), RuleWatch(rules, spec)
    watch.add_zones(2)
    for t in half_hours(2):
        whole = world.ahead(t)
        ahead = replace(
            whole, scenarios={name: drawn[..., : len(times)] for name, drawn in whole.scenarios.items()},
            night=(whole.night[0], whole.night[1][: len(times)]),
            minute=(whole.minute[0], whole.minute[1][: len(times)]),
        )  # fmt: skip
        for own, longer in watch.see(np.arange(2), world.rows[:, t + 1 - DAY : t + 1], ahead):
            assert (own.event, own.chance, own.usual) == (longer.event, longer.chance, longer.usual)


def test_what_is_unknown_is_unknown() -> None:
    """A zone without rows and scenarios has neither an event nor a chance; the other one has."""
    world, watch = World(3), watch_of()
    world.rows[1] = np.nan
    said = world.see(watch, 2 * DAY - 1)
    assert said[1][0].event is None
    assert np.isnan(said[1][0].chance)
    assert said[0][0].event is not None


@pytest.mark.parametrize("silent_h", [2, 12, 16, 24])
def test_a_leaf_that_has_fallen_silent_hides_no_condensation(silent_h: int) -> None:
    """Two hours of saturated air, which go on in every scenario: the same event as where no leaf is measured."""
    world, watch = World(2), RuleWatch([AlertRule(name="wet", kind="condensation", limit=0.5, for_min=60)], SPEC)
    watch.add_zones(2)
    now = 2 * DAY - 1
    world.rows[..., 0], world.rows[..., 1] = 12.0, 80.0
    world.rows[:, now - 11 :, 1] = 100.0
    world.rows[0, : now + 1 - silent_h * 6, 3] = 12.0  # the other zone never had one
    ahead = world.ahead(now)
    saturated = replace(ahead, scenarios={**ahead.scenarios, "rh_pct": np.full((20, 2, 48), 100, np.float32)})
    [[silent], [never]] = watch.see(np.arange(2), world.rows[:, now + 1 - DAY : now + 1], saturated)
    assert silent.event is not None
    assert never.event is not None
    assert (silent.event.chance, silent.event.is_now) == (never.event.chance, never.event.is_now) == (1.0, True)
    assert [watch.since(zone, (now + 1) // 3, 0) for zone in range(2)] == [4, 4]


def test_a_state_goes_on_bit_for_bit() -> None:
    """Whoever goes on from it says the same of the same rows and scenarios."""
    world, watch, again = World(3), watch_of(), RuleWatch(RULES, SPEC)
    for t in half_hours(2):
        world.see(watch, t)
    again.load_state_dict(pickle.loads(pickle.dumps(watch.state_dict())))
    for t in range(2 * DAY + 2, 3 * DAY, 3):
        ahead, rows = world.ahead(t), world.rows[:, t + 1 - DAY : t + 1]
        one, other = (each.see(np.arange(2), rows, ahead) for each in (watch, again))
        assert [[(s.chance, s.usual) for s in zone] for zone in one] == [
            [(s.chance, s.usual) for s in zone] for zone in other
        ]


def test_what_a_rule_saw_before_its_zone_left_for_others_is_not_taken_for_what_came_meanwhile() -> None:
    """The ring of half hours would else show those of two days before."""
    world, watch, other = World(5), watch_of(), RuleWatch([AlertRule(name="cold", kind="frost", limit=1.0)], SPEC)
    other.add_zones(2)
    both, away = np.arange(2), range(3 * DAY - 1, 4 * DAY - 1, 3)
    for t in range(DAY - 1, 3 * DAY - 1, 3):
        world.see(watch, t)
    other.take_over(watch, both, both)
    for t in away:
        world.see(other, t)
    watch.take_over(other, both, both)
    assert not any(watch.since(0, (t + 1) // 3, 0) for t in away)


WET = AlertRule(name="grey mould", kind="botrytis", limit=8.0, hysteresis=1.0, lead_h=4)


def wet_nights(days: int, ends_h: int) -> World:
    """Nights are wet from 23:00 on; it is always warm enough."""
    world = World(days)
    world.rows[..., 0] = 20.0
    wet = (world.minute >= 23 * 60) | (world.minute < ends_h * 60)
    world.rows[:, wet, 1] = 95.0
    return world


def test_a_wet_night_that_was_no_event_does_not_become_one_later() -> None:
    """Seven hours of the limit's eight: rows of one day do not tell what the 24 hours of an earlier half hour had."""
    world, watch = wet_nights(4, ends_h=6), RuleWatch([WET], SPEC)
    watch.add_zones(2)
    for t in half_hours(4):
        [[said], _] = world.see(watch, t)
        half_hour = (t + 1) // 3
        assert not any(watch.since(0, half_hour - back, 0) for back in range(min(48, half_hour - 47)))
        assert said.event is not None
        assert (said.event.chance, said.event.is_now) == (0.0, False)


def test_an_event_of_a_day_goes_on_where_rows_are_missing() -> None:
    """A tenth of them: what was seen of it stays, and it has gone on since then."""
    world, watch = wet_nights(3, ends_h=9), RuleWatch([WET], SPEC)
    watch.add_zones(2)
    world.rows[:, ::10] = np.nan
    for seen, t in enumerate(half_hours(2), start=1):
        world.see(watch, t)
        assert watch.since(0, (t + 1) // 3, 0) == min(seen, 48)


def test_numbers_of_a_day_go_on_with_the_rule_and_from_a_state_without_them() -> None:
    """They move with a zone to others that have the rule; a release before kept none, but what it saw stays."""
    world, watch = wet_nights(2, ends_h=9), RuleWatch([*RULES, WET], SPEC)
    moved, older = RuleWatch([WET], SPEC), RuleWatch([*RULES, WET], SPEC)
    for each in (watch, moved):
        each.add_zones(2)
    *before, last = half_hours(2)[:20]
    for t in before:
        world.see(watch, t)
    moved.take_over(watch, np.arange(2), np.arange(2))
    state = watch.state_dict()
    del state["margins"]
    older.load_state_dict(state)
    for each, rule in ((watch, 2), (moved, 0), (older, 2)):
        world.see(each, last)
        assert each.since(0, (last + 1) // 3, rule) == len(before) + 1
    assert np.isfinite(moved.state_dict()["margins"]["beyond"][0]).sum() == len(before) + 1
