"""When a retraining starts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.learn.loop.schedule import Every
from services.learn.loop.triggers import NewData, Triggers


def _triggers(every_s: float = 60, cool_down_s: float = 5, has_model: bool = True) -> Triggers:
    schedule = Every(every_s, now_s=0) if every_s else None
    triggers = Triggers(schedule, cool_down_s=cool_down_s, min_days=2, now_s=0)
    triggers.has_model = has_model
    return triggers


def test_first_model_is_due_as_soon_as_there_is_history_enough() -> None:
    """The first training waits for min_days of history and not for the schedule."""
    triggers = _triggers(has_model=False)
    assert triggers.due(1, history_days=1.9) is None
    due = triggers.due(1, history_days=2.0)
    assert due is not None
    assert due.kind == "first"


def test_one_at_a_time() -> None:
    """Nothing is due, and no wish is taken, while a retraining runs."""
    triggers = _triggers()
    triggers.started(60, "schedule")
    assert triggers.due(600, history_days=9) is None
    assert triggers.ask("again") == "a retraining is already running"
    triggers.ended(61)
    assert triggers.ask("again") is None
    assert triggers.ask("once more") == "a retraining has already been requested"


def test_a_wish_that_comes_as_another_training_starts_is_not_lost() -> None:
    """It was accepted between the look and the start: the next training is its."""
    triggers = _triggers()
    assert triggers.due(60, history_days=9) is not None
    assert triggers.ask("new crop") is None
    triggers.started(60, "schedule")
    triggers.ended(70)
    due = triggers.due(70, history_days=9)
    assert due is not None
    assert (due.kind, due.reason) == ("operator", "new crop")
    triggers.started(70, due.kind)
    triggers.ended(71)
    assert triggers.due(75, history_days=9) is None


def test_the_schedule_goes_on_after_a_restart() -> None:
    """Who restarts more often than the schedule strikes is retrained all the same; a slot that was missed is due."""
    triggers = _triggers()
    triggers.goes_on(0, -50)
    assert (triggers.next_due_s(0), triggers.due(9, history_days=9)) == (10, None)
    triggers.goes_on(0, -200)
    assert triggers.due(4, history_days=9) is None  # not before one cool-down
    assert triggers.due(5, history_days=9) is not None
    triggers.started(5, "schedule")
    triggers.ended(5)
    assert triggers.next_due_s(5) == 40
    triggers.goes_on(5, 30)
    assert triggers.next_due_s(5) == 40
    triggers.goes_on(38, 30)
    assert triggers.next_due_s(38) == 43  # a slot of soon after the restart neither
    assert triggers.due(38, history_days=9, news=NewData(drift="it drifts")) is not None


def test_cool_down_holds_the_schedule_but_not_the_operator() -> None:
    """After an end the schedule waits for the cool-down; an operator does not, nor for history."""
    triggers = _triggers(every_s=10, cool_down_s=30)
    triggers.started(10, "schedule")
    triggers.ended(25)
    assert triggers.due(54, history_days=9) is None
    assert triggers.ask("new crop") is None
    due = triggers.due(26, history_days=0)
    assert due is not None
    assert (due.kind, due.reason) == ("operator", "new crop")


def test_failed_first_training_is_tried_again_after_the_cool_down() -> None:
    """A first training that made no model is due again, not at once and not only at the next slot."""
    triggers = _triggers(every_s=3600, cool_down_s=30, has_model=False)
    triggers.started(0, "schedule")
    triggers.ended(10, failed=True)
    assert triggers.due(39, history_days=9) is None
    assert triggers.due(40, history_days=9) is not None


def test_trainings_that_fail_again_and_again_are_tried_less_and_less_often() -> None:
    """As those of trees, whose trigger is still there after a failure; up to once an hour, until one succeeds."""
    triggers = Triggers(None, cool_down_s=120, min_days=2, now_s=0, days=5)
    triggers.has_model = True
    news, now_s, pauses = NewData(days=6), 0.0, []
    for _ in range(8):
        triggers.started(now_s, "schedule")
        triggers.ended(now_s, failed=True)
        ended_s = now_s
        while triggers.due(now_s, 9, news) is None:
            now_s += 10
        pauses.append(now_s - ended_s)
    assert pauses == [120, 240, 480, 960, 1920, 3600, 3600, 3600]
    triggers.started(now_s, "schedule")
    triggers.ended(now_s, failed=True)
    assert triggers.failed_words(now_s) == "the last 9 failed: none begins by itself within 1 h"
    assert triggers.ask("new crop") is None
    assert triggers.due(now_s, 9, news) is not None
    triggers.started(now_s, "operator")
    triggers.ended(now_s)
    assert (triggers.failed_words(now_s), triggers.due(now_s + 119, 9, news)) == ("", None)
    assert triggers.due(now_s + 120, 9, news) is not None


def test_what_waits_for_its_slot_is_not_said_to_come_before() -> None:
    """A scheduled training that found too little has had its slot; the pause is only the least that it waits."""
    triggers = Triggers(Every(86_400, now_s=0), cool_down_s=60, min_days=2, now_s=0)
    triggers.has_model = True
    triggers.started(86_400, "schedule")
    triggers.ended(86_500, too_little=True)
    said = "too few rows to learn from so far: none begins by itself within 1 min"
    assert (triggers.failed_words(86_500), triggers.next_due_s(86_500)) == (said, 2 * 86_400)


def test_drift_and_volume_rest_ten_times_as_long_as_a_training_took() -> None:
    """Where drift follows drift, at most one eleventh of the time is spent on trainings; the schedule does not rest."""
    triggers = Triggers(Every(1000, now_s=0), cool_down_s=5, min_days=2, now_s=0, rows=100)
    triggers.has_model = True
    news = [NewData(drift="rh_pct errors are twice as large"), NewData(rows=100)]
    triggers.started(10, "schedule")
    triggers.ended(40)
    assert [triggers.due(339, 9, new) for new in news] == [None, None]
    assert [due.kind for new in news if (due := triggers.due(340, 9, new))] == ["drift", "volume"]
    triggers.started(900, "schedule")
    triggers.ended(1000)
    assert [due.kind for new in news if (due := triggers.due(1005, 9, new))] == ["schedule", "schedule"]


def test_without_a_schedule_nothing_retrains_by_itself() -> None:
    """Only an operator starts a training."""
    triggers = _triggers(every_s=0, has_model=False)
    assert triggers.due(1e9, history_days=99) is None
    assert triggers.next_due_s(5) is None
    triggers.ask("now")
    assert triggers.due(1, history_days=0) is not None


@given(st.floats(1, 1000), st.lists(st.floats(0, 5000), min_size=1, max_size=20))
def test_missed_slots_are_skipped(every_s: float, waits: list[float]) -> None:
    """However long a retraining takes, exactly one is due at the next slot of the grid and none before it."""
    triggers = _triggers(every_s=every_s, cool_down_s=0)
    now = 0.0
    for wait in waits:
        now = max(now, triggers.next_due_s(now) or 0.0)
        assert triggers.due(now, history_days=9) is not None
        triggers.started(now, "schedule")
        now += wait
        triggers.ended(now)
        due_s = triggers.next_due_s(now)
        assert due_s is not None
        assert (triggers.due(now, history_days=9) is not None) == (due_s <= now)


def test_waiting_after_a_training_is_no_work_to_rest_from() -> None:
    """Drift waits ten times as long as was trained, not as long as was waited for a registry."""
    triggers = _triggers(every_s=10_000, cool_down_s=0)
    triggers.started(0, "schedule")
    triggers.trained(20)
    triggers.ended(500)
    assert triggers.due(699, 10, NewData(drift="it drifts")) is None
    assert triggers.due(700, 10, NewData(drift="it drifts")) is not None


def test_days_of_the_stream_are_a_schedule() -> None:
    """Without a clock's schedule: first with history enough, then with so many days of rows that no model knows."""
    triggers = Triggers(None, cool_down_s=0, min_days=2, now_s=0, days=5)
    assert triggers.next_words == "once there are 2 days of history"
    first = triggers.due(0, history_days=2)
    assert first is not None
    assert first.kind == "first"
    triggers.has_model = True
    assert triggers.next_words == "with 5 days of new rows"
    assert triggers.due(1e6, history_days=9, news=NewData(days=4.9)) is None
    due = triggers.due(0, history_days=9, news=NewData(days=5.1))
    assert due is not None
    assert (due.kind, due.reason) == ("schedule", "5.1 days of new rows")
    triggers.started(0, "schedule")
    triggers.ended(1)
    assert triggers.due(1, history_days=9, news=NewData(days=5.1)) is not None, (
        "it rests from no work: it is a schedule"
    )


def test_days_are_told_as_people_write_them() -> None:
    """A hundred days are not 1e+02; a demo has hours."""
    said = [Triggers(None, cool_down_s=0, min_days=days, now_s=0).first_words for days in (0.052, 9.66, 12.4, 120)]
    assert said == [f"once there are {days} days of history" for days in ("0.052", "9.7", "12", "120")]
