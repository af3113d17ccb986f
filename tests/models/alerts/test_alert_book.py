"""How the states of alerts change, and that none is lost or told twice."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.alerts.alert_book import LEFT, RULE_GONE, STAYS, UNREAD, Alert, AlertBook, RuleFinding
from models.alerts.alert_rule import AlertRule

HALF_MS = 1_800_000
RULES = [
    AlertRule(name="cold", kind="frost", chance=0.5, keep_min=60),
    AlertRule(name="wet", kind="condensation", chance=0.3, keep_min=120),
]
KEEP_MS = {rule.name: rule.keep_min * 60_000 for rule in RULES}


def see(book: AlertBook, half_hour: int, chance: float, is_now: bool = False) -> list[Alert]:
    """A finding about cold in the north."""
    return book.see(half_hour * HALF_MS, "site", "north", "cold", RuleFinding(chance, is_now))


def states(found: list[Alert]) -> list[str]:
    """Their states."""
    return [alert.state for alert in found]


def test_an_alert_is_pending_then_fires_then_is_resolved() -> None:
    """It has one id all the while, and says when it was told and when the event came."""
    book = AlertBook(RULES)
    told = [*see(book, 0, 0.1), *see(book, 1, 0.4), *see(book, 2, 0.6), *see(book, 3, 0.9, True), *see(book, 4, 0.0),
            *see(book, 5, 0.0), *see(book, 6, 0.0)]  # fmt: skip
    assert states(told) == ["pending", "firing", "resolved"]
    assert len({alert.id for alert in told}) == 1
    assert [alert.revision for alert in told] == [1, 2, 3]
    assert (told[-1].told_ms, told[-1].came_ms) == (2 * HALF_MS, 3 * HALF_MS)
    assert len(book) == 0


def test_an_alert_that_begins_again_has_another_id() -> None:
    """It is another one."""
    book = AlertBook(RULES)
    [first], _, [_] = see(book, 0, 0.9), see(book, 1, 0.0), see(book, 3, 0.0)
    [second] = see(book, 4, 0.9)
    assert first.id != second.id


def test_a_chance_that_wavers_around_the_limit_tells_once() -> None:
    """Down to six tenths of it the alert stays; a moment below is not the end."""
    book = AlertBook(RULES)
    told = [alert for n in range(48) for alert in see(book, n, 0.5 if n % 2 else 0.31)]
    assert states(told) == ["pending", "firing"]
    assert [a for n in range(48, 96) for a in see(book, n, 0.6 if n % 2 else 0.0)] == []


def test_what_is_unknown_changes_nothing() -> None:
    """A zone without a forecast neither begins nor ends an alert."""
    book = AlertBook(RULES)
    see(book, 0, 0.9)
    assert [book.see(n * HALF_MS, "site", "north", "cold", None) for n in range(1, 9)] == [[]] * 8
    assert states(list(book)) == ["firing"]


def test_what_is_unknown_for_a_day_is_over() -> None:
    """As where a sensor was taken away: nobody knows whether it still is so. A mute stays."""
    book = AlertBook(RULES)
    see(book, 0, 0.9)
    book.mute(1, "site", "north", "cold", 100 * HALF_MS)
    told = [alert for n in range(1, 60) for alert in book.see(n * HALF_MS, "site", "north", "cold", None)]
    assert [(alert.state, alert.why, alert.changed_ms) for alert in told] == [("resolved", UNREAD, 49 * HALF_MS)]
    assert states(see(book, 60, 0.9)) == ["muted"]


def test_acknowledged_means_that_somebody_knows() -> None:
    """It fires no more until it is over; an id that is not there changes nothing, and a pending one cannot be."""
    book = AlertBook(RULES)
    [pending] = see(book, 0, 0.4)
    assert book.acknowledge(1, pending.id) == []
    [alert] = see(book, 1, 0.9)
    assert states(book.acknowledge(2 * HALF_MS, alert.id)) == ["acknowledged"]
    assert book.acknowledge(2 * HALF_MS, alert.id) == []
    assert book.acknowledge(2 * HALF_MS, "nothing") == []
    assert see(book, 3, 0.9) == []


def test_a_mute_holds_until_its_time() -> None:
    """Then the alert fires, if there is still a reason; one that ended meanwhile was never told."""
    book = AlertBook(RULES)
    assert book.mute(0, "site", "north", "cold", 3 * HALF_MS) == []
    assert states(see(book, 1, 0.9)) == ["muted"]
    assert see(book, 2, 0.9) == []
    assert states(see(book, 3, 0.9)) == ["firing"]
    assert states(book.mute(4 * HALF_MS, "site", "north", "cold", 9 * HALF_MS)) == ["muted"]
    assert states(book.mute(5 * HALF_MS, "site", "north", "cold", 0)) == ["firing"]


@pytest.mark.parametrize("ends", ["by itself", "by an order", "after a restart", "under other rules"])
def test_an_acknowledged_alert_is_so_again_when_its_mute_ends(ends: str) -> None:
    """Whoever has seen it is not told of it a second time."""
    book = AlertBook(RULES)
    [alert] = see(book, 0, 0.9)
    book.acknowledge(HALF_MS, alert.id)
    assert states(book.mute(HALF_MS, "site", "north", "cold", 3 * HALF_MS)) == ["muted"]
    assert see(book, 2, 0.9) == []
    if ends == "by an order":
        assert states(book.mute(2 * HALF_MS, "site", "north", "cold", 0)) == ["acknowledged"]
        assert see(book, 3, 0.9) == []
        return
    if ends == "after a restart":
        kept, book = json.dumps(book.state_dict()), AlertBook(RULES)
        book.load_state_dict(json.loads(kept))
    if ends == "under other rules":
        before, book = book, AlertBook(RULES[:1])
        before.hand_over("site", ["north"], book, 2 * HALF_MS, "")
    assert states(see(book, 3, 0.9)) == ["acknowledged"]
    assert see(book, 4, 0.9) == []


def test_the_next_alert_is_not_acknowledged() -> None:
    """After a mute that outlasts the first one, it fires."""
    book = AlertBook(RULES)
    [alert] = see(book, 0, 0.9)
    book.acknowledge(HALF_MS, alert.id)
    book.mute(HALF_MS, "site", "north", "cold", 9 * HALF_MS)
    see(book, 2, 0.0)
    assert states(see(book, 4, 0.0)) == ["resolved"]
    assert states(see(book, 5, 0.9)) == ["muted"]
    assert states(see(book, 9, 0.9)) == ["firing"]


def test_the_past_changes_nothing() -> None:
    """A finding that is read again, or an older one, is the same as none."""
    book = AlertBook(RULES)
    see(book, 5, 0.9)
    before = book.state_dict()
    assert see(book, 5, 0.0) == see(book, 4, 0.0) == []
    assert book.state_dict() == before


def test_a_zone_that_leaves_takes_its_alerts_along() -> None:
    """They are resolved, and whoever was told of them is told that, too; those of other zones stay."""
    book = AlertBook(RULES)
    for zone in ("north", "south"):
        book.see(0, "site", zone, "cold", RuleFinding(0.9))
        book.mute(0, "site", zone, "wet", HALF_MS)
    [over] = book.end(HALF_MS, "site", "north", "the zone has left")
    assert (over.state, over.zone, over.why, over.changed_ms) == ("resolved", "north", "the zone has left", HALF_MS)
    assert [alert.zone for alert in book] == ["south"]
    assert "north" not in json.dumps(book.state_dict())


def test_a_site_moves_to_other_rules_with_its_alerts() -> None:
    """Ids, changes and mutes go along; what the new rules do not have, or have of another kind, is resolved."""
    book, other = AlertBook(RULES), AlertBook([AlertRule(name="cold", kind="frost", severity="critical")])
    [cold] = see(book, 0, 0.9)
    [_] = book.see(0, "site", "north", "wet", RuleFinding(0.9))
    book.see(0, "elsewhere", "north", "wet", RuleFinding(0.9))
    book.mute(0, "site", "south", "cold", 9 * HALF_MS)
    [over] = book.hand_over("site", ["north", "south"], other, HALF_MS, "its rule was taken away")
    assert (over.rule, over.state, over.revision) == ("wet", "resolved", 2)
    [moved] = list(other)
    assert (moved.id, moved.revision, moved.severity) == (cold.id, cold.revision, "critical")
    assert [alert.site for alert in book] == ["elsewhere"]
    assert states(other.see(HALF_MS, "site", "south", "cold", RuleFinding(0.9))) == ["muted"]


def test_an_alert_of_a_changed_rule_stays_only_if_the_rule_would_warn() -> None:
    """It is over at the rule's next look, and nobody says that it did not come; where nothing else changed than how
    serious the rule is, or for how long alerts are kept, it stays for that long.
    """
    usual = RULES[0]
    colder, critical, longer = (
        replace(usual, limit=-2.0),
        replace(usual, severity="critical"),
        replace(usual, keep_min=90),
    )
    for rule, chance, end, why in (
        (colder, 0.1, 1, RULE_GONE), (colder, 0.9, 4, ""), (critical, 0.1, 3, ""), (longer, 0.1, 4, ""),
    ):  # fmt: skip
        book, other = AlertBook(RULES), AlertBook([rule])
        see(book, 0, 0.9)
        assert book.hand_over("site", ["north"], other, 1, RULE_GONE) == []
        again = AlertBook([rule])
        again.load_state_dict(json.loads(json.dumps(other.state_dict())))
        found = {at: see(again, at, chance if at == 1 else 0.1) for at in range(1, 6)}
        [over] = found.pop(end)
        assert not any(found.values())
        assert (over.state, over.why, over.came_true) == ("resolved", why, None if why else False)


def test_it_is_known_afterwards_whether_it_came_true() -> None:
    """An event that came makes it true at once; one that never came false when it is over; pending ones say nothing."""
    book = AlertBook(RULES)
    [fired] = see(book, 0, 0.9)
    assert fired.came_true is None
    see(book, 1, 0.0)
    [over] = see(book, 3, 0.0)
    assert over.came_true is False
    [fired] = see(book, 4, 1.0, True)
    assert fired.came_true is True
    see(book, 5, 0.0)
    see(book, 7, 0.0)
    see(book, 8, 0.4)
    see(book, 9, 0.0)
    [over] = see(book, 11, 0.0)
    assert (over.told_ms, over.came_true) == (None, None)
    [told] = see(book, 12, 0.9)
    [cut] = book.end(13 * HALF_MS, told.site, told.zone, LEFT)
    assert (cut.told_ms, cut.came_true) == (12 * HALF_MS, None)  # nobody knows what would have come


def test_alerts_of_a_rule_that_is_gone_are_gone() -> None:
    """A state of before still loads."""
    book, fewer = AlertBook(RULES), AlertBook(RULES[1:])
    see(book, 0, 0.9)
    fewer.load_state_dict(book.state_dict())
    assert len(fewer) == 0


def test_a_limit_outlives_a_restart_and_a_release_before() -> None:
    """The limit of an alert is kept apart from its fields, for a release before takes none that it does not know; and
    a state of that release, which has none, is taken.
    """
    book, again, older = AlertBook(RULES), AlertBook(RULES), AlertBook(RULES)
    book.see(0, "site", "north", "cold", RuleFinding(0.9, limit=4.0))
    state = json.loads(json.dumps(book.state_dict()))
    assert "limit" not in state["alerts"][0]
    again.load_state_dict(state)
    assert [alert.limit for alert in again] == [4.0]
    older.load_state_dict({name: held for name, held in state.items() if name != "limits"})
    assert [alert.limit for alert in older] == [None]


Step = Callable[[AlertBook], list[Alert]]

findings = st.builds(
    lambda zone, rule, chance, is_now: ("see", zone, rule, chance, is_now), st.sampled_from("ns"),
    st.sampled_from([rule.name for rule in RULES]), st.sampled_from([None, 0.0, 0.1, 0.2, 0.35, 0.45, 0.6, 1.0]),
    st.booleans(),
)  # fmt: skip
orders = st.one_of(
    st.builds(lambda zone, rule: ("acknowledge", zone, rule), st.sampled_from("ns"), st.sampled_from(["cold", "wet"])),
    st.builds(
        lambda zone, rule, hours: ("mute", zone, rule, hours), st.sampled_from("ns"), st.sampled_from(["cold", "wet"]),
        st.integers(0, 8),
    ),
)  # fmt: skip
RECORDS = st.lists(st.one_of(findings, findings, orders), max_size=60)


def apply(book: AlertBook, n: int, record: tuple[Any, ...]) -> list[Alert]:
    """Read one record of a log, which holds findings and orders."""
    at, what, zone, rule = n * HALF_MS, *record[:3]
    if what == "see":
        chance, is_now = record[3:]
        return book.see(at, "site", zone, rule, None if chance is None else RuleFinding(chance, is_now))
    if what == "mute":
        return book.mute(at, "site", zone, rule, at + record[3] * 3_600_000)
    ids = [alert.id for alert in book if (alert.zone, alert.rule) == (zone, rule)]
    return [told for id in ids for told in book.acknowledge(at, id)]


@settings(max_examples=200, deadline=None)
@given(RECORDS, st.integers(0, 60), st.integers(0, 60))
def test_no_alert_is_lost_or_told_twice_over_a_crash(records: list[tuple[Any, ...]], crash: int, snapshot: int) -> None:
    """A crash anywhere, a snapshot from anywhere before it: who is told again knows it by id and revision, and in the
    end both books are the same, byte for byte.
    """
    crash, snapshot = min(crash, len(records)), min(snapshot, crash, len(records))
    whole = AlertBook(RULES)
    wanted = [alert for n, record in enumerate(records) for alert in apply(whole, n, record)]

    first, kept, told = AlertBook(RULES), b"", list[Alert]()
    for n in range(crash):
        if n == snapshot:
            kept = json.dumps(first.state_dict()).encode()
        told += apply(first, n, records[n])
    if snapshot == crash:
        kept = json.dumps(first.state_dict()).encode()
    again = AlertBook(RULES)
    again.load_state_dict(json.loads(kept))
    for n in range(snapshot, len(records)):
        told += apply(again, n, records[n])

    received: dict[tuple[str, int], Alert] = {}
    for alert in told:
        assert received.setdefault((alert.id, alert.revision), alert) == alert
    assert list(received.values()) == wanted
    assert json.dumps(again.state_dict()) == json.dumps(whole.state_dict())


@settings(max_examples=200, deadline=None)
@given(RECORDS)
def test_states_follow_each_other_as_they_should(records: list[tuple[Any, ...]]) -> None:
    """Revisions count up without a gap, nothing comes after resolved, nothing falls back to pending, and no state
    follows itself.
    """
    book, seen = AlertBook(RULES), dict[str, list[Alert]]()
    for n, record in enumerate(records):
        for alert in apply(book, n, record):
            seen.setdefault(alert.id, []).append(alert)
    for told in seen.values():
        assert [alert.revision for alert in told] == list(range(1, len(told) + 1))
        names = states(told)
        assert all(a != b for a, b in itertools.pairwise(names))
        assert "resolved" not in names[:-1]
        assert "pending" not in names[1:]
        assert (told[-1].told_ms is None) == (set(names) <= {"pending", "resolved"})


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.2, 0.3, 0.45, 0.5, 0.9]), min_size=1, max_size=200))
def test_alerts_do_not_flap(chances: list[float]) -> None:
    """Between the end of one alert and the next there was a quiet time as long as the rule keeps for, however the
    chance moves; so there are never more alerts than the time has room for.
    """
    book = AlertBook(RULES)
    fired = [n for n, chance in enumerate(chances) for a in see(book, n, chance) if a.state == "firing"]
    keep = int(KEEP_MS["cold"] // HALF_MS)
    assert all(b - a > keep for a, b in itertools.pairwise(fired))
    for a, b in itertools.pairwise(fired):
        quiet = [chance < STAYS * 0.5 for chance in chances[a:b]]
        assert any(all(quiet[i : i + keep + 1]) for i in range(len(quiet) - keep))
