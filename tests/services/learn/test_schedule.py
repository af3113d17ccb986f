"""When a retraining is due by itself."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.learn.schedule import Cron, Every, Schedule
from services.learn.triggers import Triggers

START = datetime(2022, 3, 1, tzinfo=UTC).timestamp()
HOUR_S = 3600.0


def cron(expression: str, timezone: str = "UTC", start: datetime | None = None) -> Cron:
    """Its monotonic clock began on 1 March 2022, or at ``start``."""
    began = START if start is None else start.timestamp()
    return Cron(expression, timezone, 0.0, lambda: began)


def strikes(schedule: Schedule, times: int) -> list[float]:
    """Hours of the next slots, each used when it came."""
    found = []
    for _ in range(times):
        found.append(schedule.slot_s() / HOUR_S)
        schedule.use(schedule.slot_s())
    return found


def test_it_strikes_when_the_zone_s_clock_shows_it() -> None:
    """At three in Amsterdam, an hour ahead of UTC; on working days: 1 March 2022 is a Tuesday."""
    assert strikes(cron("0 3 * * *", "Europe/Amsterdam"), 3) == [2, 26, 50]
    assert strikes(cron("0 3 * * MON-FRI"), 5) == [3, 27, 51, 75, 147]


@pytest.mark.parametrize(("month", "day", "between"), [(3, 26, 23), (10, 29, 25)])
def test_the_clocks_change(month: int, day: int, between: float) -> None:
    """In the night of the change there is one strike, as in every other; three by the clock are 23 or 25 hours on."""
    hours = strikes(cron("0 3 * * *", "Europe/Amsterdam", datetime(2022, month, day, tzinfo=UTC)), 3)
    assert [later - sooner for sooner, later in pairwise(hours)] == [between, 24]
    skipped = strikes(cron("30 2 * * *", "Europe/Amsterdam", datetime(2022, month, day, tzinfo=UTC)), 4)
    assert len({hour // 24 for hour in skipped}) == 4


def test_slots_that_were_missed_are_one() -> None:
    """After a training that took three nights the next one comes, once."""
    schedule = cron("0 3 * * *")
    triggers = Triggers(schedule, cool_down_s=60, min_days=2, now_s=0)
    triggers.has_model = True
    triggers.started(3 * HOUR_S, "schedule")
    triggers.ended(76 * HOUR_S)
    now_s = 76 * HOUR_S + 60
    due = triggers.due(now_s, history_days=9)
    assert due is not None
    assert (due.kind, due.reason) == ("schedule", "0 3 * * * (UTC)")
    triggers.started(now_s, "schedule")
    triggers.ended(now_s)
    assert triggers.next_due_s(now_s) == 99 * HOUR_S


def test_a_restart_does_not_skip_a_night() -> None:
    """The newest model is of the night before; the machine was off at three."""
    triggers = Triggers(cron("0 3 * * *"), cool_down_s=60, min_days=2, now_s=5 * HOUR_S)
    triggers.has_model = True
    triggers.goes_on(5 * HOUR_S, -21 * HOUR_S)
    assert triggers.due(5 * HOUR_S + 59, history_days=9) is None
    assert triggers.due(5 * HOUR_S + 60, history_days=9) is not None


def test_a_clock_that_is_set_moves_the_slot() -> None:
    """A machine without a clock of its own starts in the past, and learns the time from the network."""
    ahead_s = START - 10 * HOUR_S
    schedule = Cron("0 3 * * *", "UTC", 0.0, lambda: ahead_s)
    assert schedule.slot_s() == 13 * HOUR_S
    ahead_s = START
    assert schedule.slot_s() == 3 * HOUR_S


@given(st.lists(st.floats(1, 100_000), min_size=1, max_size=20))
def test_both_kinds_keep_their_contract(waits: list[float]) -> None:
    """After ``use`` the next slot is later than now; an older use never makes it later."""
    for schedule in (Every(7 * HOUR_S, 0.0), cron("*/20 1-5 * * *")):
        now_s = 0.0
        for wait_s in waits:
            now_s += wait_s
            schedule.use(now_s)
            slot_s = schedule.slot_s()
            assert slot_s > now_s
            assert schedule.words
        schedule.goes_on(now_s + 1e6)
        assert schedule.slot_s() == slot_s
        schedule.goes_on(0.0)
        assert schedule.slot_s() <= slot_s
