"""When a retraining is due by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.learn.loop.schedule import Cron, Every
from services.learn.loop.triggers import Triggers

START = datetime(2022, 3, 1, tzinfo=UTC)
HOUR_S = 3600.0


class Clock:
    """Seconds of a monotonic clock, and what a wall clock beside it shows; ``set_s`` sets that one."""

    def __init__(self, start: datetime = START) -> None:
        self.now_s, self._ahead_s = 0.0, start.timestamp()

    def unix_s(self) -> float:
        return self._ahead_s + self.now_s

    def set_s(self, by_s: float) -> None:
        self._ahead_s += by_s


def strikes(expression: str, timezone: str, start: datetime, times: int) -> list[float]:
    """Hours since ``start`` of the next slots, each used when it came."""
    clock, found = Clock(start), []
    schedule = Cron(expression, timezone, clock.unix_s)
    for _ in range(times):
        clock.now_s = schedule.slot_s(clock.now_s)
        found.append(clock.now_s / HOUR_S)
        schedule.use(clock.now_s)
    return found


def test_it_strikes_when_the_zone_s_clock_shows_it() -> None:
    """At three in Amsterdam, an hour ahead of UTC; on working days: 1 March 2022 is a Tuesday."""
    assert strikes("0 3 * * *", "Europe/Amsterdam", START, 3) == [2, 26, 50]
    assert strikes("0 3 * * MON-FRI", "UTC", START, 5) == [3, 27, 51, 75, 147]


@pytest.mark.parametrize(("month", "day", "between"), [(3, 26, 23), (10, 29, 25)])
def test_the_clocks_change(month: int, day: int, between: float) -> None:
    """In the night of the change there is one strike, as in every other; three by the clock are 23 or 25 hours on."""
    before = datetime(2022, month, day, tzinfo=UTC)
    hours = strikes("0 3 * * *", "Europe/Amsterdam", before, 3)
    assert [later - sooner for sooner, later in pairwise(hours)] == [between, 24]
    assert len({hour // 24 for hour in strikes("30 2 * * *", "Europe/Amsterdam", before, 4)}) == 4


@pytest.mark.parametrize("minute", range(0, 120, 10))
def test_an_hour_that_the_clock_shows_twice_strikes_once(minute: int) -> None:
    """Whenever something else is trained in that night, no slot lies in the past, nor at the same time of the clock."""
    clock = Clock(datetime(2025, 10, 26, tzinfo=UTC))  # 2:00 to 3:00 in Amsterdam twice, from 0:00 UTC on
    schedule = Cron("45 2 * * *", "Europe/Amsterdam", clock.unix_s)
    slots = [schedule.slot_s(0.0)]
    for used_s in sorted((slots[0], minute * 60.0)):
        clock.now_s = used_s
        schedule.use(used_s)
        slots.append(schedule.slot_s(used_s))
    assert slots[0] == 45 * 60
    assert slots[-1] == 25 * HOUR_S + 45 * 60


def test_a_night_that_was_missed_is_left_out() -> None:
    """What cannot begin within an hour waits for the next night; within it, it begins late."""
    clock = Clock()
    triggers = Triggers(Cron("0 3 * * *", "UTC", clock.unix_s), cool_down_s=60, min_days=2, now_s=0)
    triggers.has_model = True
    for ended_h, due in ((3.5, True), (28, False)):
        triggers.started(clock.now_s, "drift")
        clock.now_s = ended_h * HOUR_S
        triggers.ended(clock.now_s)
        clock.now_s += 60
        found = triggers.due(clock.now_s, history_days=9)
        assert (found is not None) == due
        assert found is None or (found.kind, found.reason) == ("schedule", "0 3 * * * (UTC)")
    assert triggers.next_due_s(clock.now_s) == 51 * HOUR_S


def test_a_restart_within_the_hour_does_not_skip_the_night() -> None:
    """The newest model is of the night before, and the process was away at three; the training of three ended it."""
    for restarted_h, newest_h, due in ((3.2, -20.9, True), (5, -20.9, False), (3.2, 3.1, False)):
        clock = Clock()
        clock.now_s = restarted_h * HOUR_S
        triggers = Triggers(Cron("0 3 * * *", "UTC", clock.unix_s), cool_down_s=60, min_days=2, now_s=clock.now_s)
        triggers.has_model = True
        triggers.goes_on(clock.now_s, newest_h * HOUR_S)
        assert triggers.due(clock.now_s + 59, history_days=9) is None
        clock.now_s += 60
        assert (triggers.due(clock.now_s, history_days=9) is not None) == due


@pytest.mark.parametrize("by_h", [10, 1000 * 24, -1, -10, -365 * 24])
def test_a_clock_that_is_set_moves_the_slot(by_h: float) -> None:
    """A machine without a clock of its own starts anywhere, and learns the time later: no slot is made up for, and
    none is further away than a day.
    """
    clock = Clock(START + timedelta(hours=12))
    schedule = Cron("0 3 * * *", "UTC", clock.unix_s)
    schedule.goes_on(0.0, -HOUR_S)
    assert schedule.slot_s(0.0) == 15 * HOUR_S
    clock.set_s(by_h * HOUR_S)
    assert schedule.slot_s(0.0) == (15 - by_h) % 24 * HOUR_S


@given(st.lists(st.floats(1, 100_000), min_size=1, max_size=20), st.sampled_from(["*/20 1-5 * * *", "45 2 * * *"]))
def test_both_kinds_keep_their_contract(waits: list[float], expression: str) -> None:
    """After ``use`` the next slot is later than now, also when clocks change."""
    clock = Clock(datetime(2025, 10, 25, tzinfo=UTC))
    for schedule in (Every(7 * HOUR_S, 0.0), Cron(expression, "Europe/Amsterdam", clock.unix_s)):
        clock.now_s = 0.0
        for wait_s in waits:
            clock.now_s += wait_s
            schedule.use(clock.now_s)
            assert schedule.slot_s(clock.now_s) > clock.now_s
            assert schedule.words
