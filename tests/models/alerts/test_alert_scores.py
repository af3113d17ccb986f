"""How good alerts were."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from models.alerts.scoring.alert_scores import RuleScore, ToldAlert, acted, day_before, score_rule, score_together
from models.features.inputs import local_ms
from models.spec import Place

STEP_MS = 1_800_000
DAY = 48


def score(alerts: list[ToldAlert], events: list[tuple[int, int]], first: int = 0) -> RuleScore:
    """Of one zone over four days."""
    on = np.zeros((1, 4 * DAY), dtype=bool)
    for begin, end in events:
        on[0, begin:end] = True
    none = {name: np.empty(0) for name in ("chance", "usual", "came", "day")}
    return score_rule(on, np.ones_like(on), alerts, first, STEP_MS, none)


def test_an_event_is_told_an_hour_before_or_not_at_all() -> None:
    """Half an hour is too late; an alert that was over before is none."""
    events = [(100, 104)]
    assert score([ToldAlert(0, 98, 106, 106)], events).hit_rate == 1
    assert score([ToldAlert(0, 99, 106, 106)], events).hit_rate == 0
    assert score([ToldAlert(0, 90, 99, 104)], events).hit_rate == 0
    assert score([ToldAlert(0, 98, None, 106)], events).hit_rate == 1


def test_an_alert_is_false_if_nothing_came() -> None:
    """Neither while it was there nor until the end of what it said; one that is not over is not judged yet."""
    events = [(100, 104)]
    assert score([ToldAlert(0, 60, 70, 72)], events).false == 1
    assert score([ToldAlert(0, 90, 99, 104)], events).false == 0  # withdrawn, and it came when it had said
    assert score([ToldAlert(0, 150, None, 160)], events).false == 0
    assert score([ToldAlert(0, 60, 70, 72)], events).false_a_week == 7 / 4


def test_an_alert_of_a_time_that_nobody_knows_is_not_false() -> None:
    """A sensor that was silent for more than a fifth of it tells of no event; it is not judged."""
    on = np.zeros((1, 4 * DAY), dtype=bool)
    none = {name: np.empty(0) for name in ("chance", "usual", "came", "day")}
    for silent, false in ((2, 1), (6, 0)):
        known = ~on
        known[0, 62 : 62 + silent] = False
        assert score_rule(on, known, [ToldAlert(0, 60, 70, 72)], 0, STEP_MS, none).false == false


def test_what_somebody_acted_on_is_set_aside() -> None:
    """Nobody knows what would have come."""
    found = score([ToldAlert(0, 60, 70, 72, acted=True)], [])
    assert (found.false, found.set_aside) == (0, 1)


def test_a_false_alert_may_have_been_near() -> None:
    """It is false all the same; one that is set aside is not counted."""
    alerts = [ToldAlert(0, 60, 70, 72, near=True), ToldAlert(0, 80, 90, 92), ToldAlert(0, 98, 106, 106, near=True)]
    found = score([*alerts, ToldAlert(0, 120, 130, 132, acted=True, near=True)], [(100, 104)])
    assert (found.alerts, found.false, found.near, found.set_aside) == (4, 2, 1, 1)
    none = {name: np.empty(0) for name in ("chance", "usual", "came", "day")}
    assert score_together([found, found], [none, none]).near == 2


def test_what_was_before_the_first_step_does_not_count() -> None:
    """Alerts of then are not judged, but may have told a later event; events need a day's time to be told."""
    found = score([ToldAlert(0, 10, 20, 20), ToldAlert(0, 45, 130, 130)], [(12, 14), (60, 64), (100, 104)], first=48)
    assert (found.events, found.told, found.alerts) == (1, 1, 0)


def test_of_several_alerts_the_first_that_lasted_says_how_early() -> None:
    """In hours."""
    found = score([ToldAlert(0, 80, 90, 100), ToldAlert(0, 92, 106, 106)], [(100, 104)])
    assert found.lead_h == 4.0


def test_chances_stand_beside_the_climatology() -> None:
    """Of the same cases; groups of few cases do not count as the worst."""
    rng = np.random.default_rng(0)
    chance = rng.random(4000)
    came = (rng.random(4000) < chance).astype(float)
    cases = {"chance": chance, "usual": np.full(4000, 0.5), "came": came, "day": np.arange(4000) // 48}
    on = np.zeros((1, 200), dtype=bool)
    found = score_rule(on, ~on, [], 0, STEP_MS, cases)
    assert found.brier == pytest.approx(1 / 6, abs=0.01)
    assert found.usual_brier == pytest.approx(0.25)
    assert found.skill.low > 0.2
    assert found.worst < 0.07


@pytest.mark.parametrize(("days", "is_known"), [(1, False), (5, False), (6, True)])
def test_of_a_few_days_no_interval_is_known(days: int, is_known: bool) -> None:
    """One that is a point would say that the skill is certain, which of three days nobody knows."""
    rng = np.random.default_rng(0)
    chance, day = rng.random(48 * days), np.arange(48 * days) // 48
    came = (rng.random(48 * days) < chance).astype(float)
    on = np.zeros((1, 200), dtype=bool)
    cases = {"chance": chance, "usual": np.full(48 * days, 0.5), "came": came, "day": day}
    found = score_rule(on, ~on, [], 0, STEP_MS, cases)
    assert np.isfinite(found.skill.skill)
    for low, high in ((found.skill.low, found.skill.high), (found.reliability.low[2], found.reliability.high[2])):
        assert (low < high) == np.isfinite(low) == np.isfinite(high) == is_known


def certain(days: int, cases_a_day: int, came: float, chance: float = 0.6) -> dict[str, np.ndarray]:
    """Cases of one chance that all came or all did not."""
    count = days * cases_a_day
    return {
        "chance": np.full(count, chance), "usual": np.full(count, 0.5), "came": np.full(count, came),
        "day": np.arange(count) // cases_a_day,
    }  # fmt: skip


def test_a_group_of_few_days_is_not_the_worst_however_many_cases_it_has() -> None:
    """Half hours of a night come true together; of ten days on it counts, and says how far off it is at least."""
    on = np.zeros((1, 200), dtype=bool)
    few, enough = (score_rule(on, ~on, [], 0, STEP_MS, certain(days, 40, 1.0)) for days in (9, 10))
    assert np.isnan(few.worst)
    assert np.isnan(few.worst_least)
    assert enough.worst == pytest.approx(0.4)
    assert enough.worst_least == pytest.approx(0.4)
    rng = np.random.default_rng(0)
    days = (rng.random(20) < 0.5).astype(float)
    unsure = score_rule(on, ~on, [], 0, STEP_MS, certain(20, 40, 0.0) | {"came": np.repeat(days, 40)})
    assert unsure.worst > 0
    assert unsure.worst_least == 0


def test_all_rules_together_add_up() -> None:
    """Events, alerts and weeks are summed, so false alerts are a zone, a week and a rule; cases are in one list."""
    one = score([ToldAlert(0, 90, 106, 106), ToldAlert(0, 60, 70, 72)], [(100, 104)])
    other = score([], [(120, 122), (150, 152)])
    found = score_together([one, other], [certain(10, 10, 1.0), certain(10, 10, 0.0)])
    assert (found.events, found.told, found.alerts, found.false) == (3, 1, 2, 1)
    assert found.false_a_week == one.false_a_week / 2
    assert found.lead_h == one.lead_h
    assert found.alert_share == pytest.approx(one.alert_share / 2)
    assert found.brier == pytest.approx((0.4**2 + 0.6**2) / 2)
    assert found.worst == pytest.approx(0.1)


def test_an_action_is_a_setpoint_that_moved_after_the_alert() -> None:
    """The right way and far enough; a program that does the same every day is none."""
    steady = np.full(3 * DAY, 15.0)
    raised, lowered, daily = steady.copy(), steady.copy(), steady.copy()
    raised[110:] += 2
    lowered[110:] -= 2
    daily[np.arange(3 * DAY) % DAY > 14] += 2
    before = day_before(np.arange(3 * DAY) * STEP_MS, STEP_MS)
    said = {"told": 100, "until": 120, "before": before}
    assert acted("frost", {"sp_heat_c": raised}, **said)
    assert not acted("frost", {"sp_heat_c": lowered}, **said)
    assert not acted("frost", {"sp_heat_c": daily}, **said)
    assert not acted("frost", {"sp_heat_c": raised}, told=112, until=120, before=before)  # it was so before
    assert acted("frost", {"sp_heat_c": raised}, told=100, until=9 * DAY, before=before)  # beyond the recording's end
    assert not acted("frost", {}, **said)
    assert not acted("drift", {"sp_heat_c": raised}, **said)


@pytest.mark.parametrize("change", [datetime(2022, 3, 27, 1, tzinfo=UTC), datetime(2022, 10, 30, 1, tzinfo=UTC)])
def test_a_change_of_the_clock_is_no_action(change: datetime) -> None:
    """A program goes by the clock: after the change its day begins an hour earlier, or later. Who moves the setpoint
    on such a day still acted.
    """
    clock_ms = local_ms(
        Place("Europe/Amsterdam"), round(change.timestamp() * 1000) + np.arange(-2 * DAY, 2 * DAY) * STEP_MS
    )
    hour, before = clock_ms // 3_600_000 % 24, day_before(clock_ms, STEP_MS)
    program = np.where((hour >= 6) & (hour < 20), 18.0, 15.0)
    for told in range(DAY + 4, 3 * DAY):
        for kind in ("frost", "mean_low", "mean_high"):
            assert not acted(kind, {"sp_heat_c": program}, told, told + 12, before), told
    raised = program.copy()
    raised[2 * DAY + 100 - DAY :] += 2
    assert acted("frost", {"sp_heat_c": raised}, DAY + 90, DAY + 110, before)
