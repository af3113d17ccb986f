"""What is in a journal is told once to each channel, over failures and restarts."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from services.alert.delivery import Deliverer
from services.ingest.alerts.alert_journal import AlertJournal, JournalReader, changes_of
from services.messages import ShownAlert
from tests.services.alert.told import Clock, Keeper, change, journal


def test_changes_are_told_in_order_and_once(tmp_path: Path) -> None:
    """Those of all partitions; a look without anything new tells nothing."""
    keeper = Keeper()
    deliverer = Deliverer(tmp_path, keeper, Clock())
    journal(tmp_path, change("a1", 1), change("a1", 2))
    journal(tmp_path, change("b1", 1), partition=1)
    deliverer.look()
    deliverer.look()
    assert keeper.told == [("a1", 1), ("a1", 2), ("b1", 1)]
    assert (deliverer.waiting, deliverer.lost, deliverer.error) == (0, 0, "")


def test_a_stop_lets_the_call_that_goes_on_end_and_begins_no_other(tmp_path: Path) -> None:
    """What is not told stays in the journal."""

    class Stopping(Keeper):
        def deliver(self, alerts: Sequence[ShownAlert]) -> int:
            deliverer.stop()
            journal(tmp_path, change("a1", 2))
            return super().deliver(alerts)

    keeper = Stopping()
    deliverer = Deliverer(tmp_path, keeper, Clock())
    journal(tmp_path, change("a1", 1))
    deliverer.look()
    assert keeper.told == [("a1", 1)]


def test_a_change_that_is_made_again_is_not_told_again(tmp_path: Path) -> None:
    """A shard that reads its log again after a crash puts the same; the first counts."""
    keeper = Keeper()
    deliverer = Deliverer(tmp_path, keeper, Clock())
    journal(tmp_path, change("a1", 1))
    deliverer.look()
    journal(tmp_path, change("a1", 1, "resolved"), change("a1", 2))
    deliverer.look()
    assert keeper.told == [("a1", 1), ("a1", 2)]
    assert [one["state"] for one in changes_of(tmp_path, "a1")] == ["firing", "firing"]


def test_what_cannot_be_told_waits_and_is_tried_after_pauses(tmp_path: Path) -> None:
    """What was told before the failure is not told again; each pause is twice as long."""
    keeper, clock = Keeper(), Clock()
    deliverer = Deliverer(tmp_path, keeper, clock)
    journal(tmp_path, *(change("a1", n) for n in range(1, 6)))
    keeper.fails_at = 2
    deliverer.look()
    assert (len(keeper.told), deliverer.waiting) == (2, 3)
    assert deliverer.error == "alerts by keeper: nobody is there"
    begun = keeper.begun
    deliverer.look()  # the pause goes on
    clock.now_s += 1.1
    deliverer.look()
    assert keeper.begun == begun + 1
    clock.now_s += 1.1
    deliverer.look()
    assert keeper.begun == begun + 1
    keeper.fails_at = None
    clock.now_s += 1.1
    deliverer.look()
    assert [number for _, number in keeper.told] == [1, 2, 3, 4, 5]
    assert deliverer.error == ""


def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    """Also where journals have grown meanwhile."""
    keeper = Keeper()
    first = Deliverer(tmp_path, keeper, Clock())
    journal(tmp_path, change("a1", 1))
    first.look()
    journal(tmp_path, change("a1", 2))
    Deliverer(tmp_path, keeper, Clock()).look()
    assert keeper.told == [("a1", 1), ("a1", 2)]


def test_a_new_channel_is_not_told_of_the_past(tmp_path: Path) -> None:
    """Who sets a webhook up gets what comes from then on."""
    journal(tmp_path, change("old", 1))
    keeper = Keeper()
    deliverer = Deliverer(tmp_path, keeper, Clock())
    journal(tmp_path, change("new", 1))
    deliverer.look()
    assert keeper.told == [("new", 1)]


def test_a_channel_may_let_changes_wait(tmp_path: Path) -> None:
    """They come again with what is new."""
    keeper = Keeper()
    deliverer = Deliverer(tmp_path, keeper, Clock())
    journal(tmp_path, change("a1", 1))
    keeper.waits = True
    deliverer.look()
    assert (keeper.told, deliverer.waiting) == ([], 1)
    keeper.waits = False
    journal(tmp_path, change("a1", 2))
    deliverer.look()
    assert keeper.told == [("a1", 1), ("a1", 2)]


def test_what_left_the_journal_before_it_was_told_is_counted(tmp_path: Path) -> None:
    """A journal is bounded; nothing is lost silently."""
    keeper = Keeper()
    deliverer = Deliverer(tmp_path, keeper, Clock())
    kept = AlertJournal(tmp_path, 0, keep=3)
    kept.put([(n, change("a1", n)) for n in range(1, 9)])
    deliverer.look()
    assert [number for _, number in keeper.told] == [6, 7, 8]
    assert deliverer.lost == 5


def test_a_long_backlog_is_told_whole(tmp_path: Path) -> None:
    """In pieces, without a look between them."""
    keeper = Keeper()
    deliverer = Deliverer(tmp_path, keeper, Clock())
    journal(tmp_path, *(change("a1", n) for n in range(1, 1001)))
    deliverer.look()
    assert [number for _, number in keeper.told] == list(range(1, 1001))


@given(st.lists(st.sampled_from(["put", "look", "fail", "restart", "again"]), max_size=30))
def test_whatever_happens_every_change_is_told_in_order(steps: list[str]) -> None:
    """Failures and restarts at any moment tell nothing twice that was told whole, and lose nothing."""
    with tempfile.TemporaryDirectory() as folder:
        root, keeper, clock, put = Path(folder), Keeper(), Clock(), 0
        deliverer = Deliverer(root, keeper, clock)
        for step in [*steps, "look"]:
            clock.now_s += 1000
            keeper.fails_at = len(keeper.told) + 1 if step == "fail" else None
            if step == "put":
                put += 3
                journal(root, *(change("a1", n) for n in range(put - 2, put + 1)))
            elif step == "again" and put:
                journal(root, *(change("a1", n) for n in range(1, put + 1)))
            elif step == "restart":
                deliverer = Deliverer(root, keeper, clock)
            else:
                deliverer.look()
        assert [number for _, number in keeper.told] == list(range(1, put + 1))


def test_a_journal_gives_what_came_after_a_number(tmp_path: Path) -> None:
    """In the order in which it was put."""
    journal(tmp_path, *(change("a1", n) for n in range(1, 6)))
    reader = JournalReader(tmp_path, "p0")
    found, gone = reader.read(2, 2)
    assert ([entry.alert["change"] for entry in found], gone) == ([3, 4], 0)
    assert reader.newest_number() == 5
