"""Sites with the same rules share what is learned; one whose rules change takes along what it may."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from models.alerts.alert_book import RuleFinding
from models.alerts.crop_rules import rules_for
from models.spec import ForecastSpec
from services.ingest.alerts.rule_groups import RuleGroups

TOMATO = rules_for("tomato")
COLDER = tuple(replace(rule, limit=5.0) if rule.name == "frost" else rule for rule in TOMATO)
SOONER = tuple(replace(rule, chance=0.1) if rule.name == "frost" else rule for rule in TOMATO)


def groups_of(**rules: Any) -> RuleGroups:
    """Sites with two zones each."""
    made = RuleGroups(ForecastSpec(("air_temp_c", "rh_pct")))
    for site, of in rules.items():
        made.give(site, of, 0)
        made.of(site).indices(site, ["z1", "z2"])
    return made


def learned(groups: RuleGroups, site: str, rule: str, value: float | None = None) -> list[float]:
    """How often events of a rule came in the site's zones at noon; with a value it is set."""
    group = groups.of(site)
    came = group.desk.watch.calibration(rule)._zones["came"]
    indices = group.indices(site, ["z1", "z2"])
    if value is not None:
        came[indices, 12] = value
    return [float(number) for number in came[indices, 12]]


def test_sites_with_the_same_rules_share_a_desk() -> None:
    """A site that nobody gave rules has those of any crop."""
    groups = groups_of(a=TOMATO, b=TOMATO, c=COLDER)
    assert groups.of("a") is groups.of("b")
    assert groups.of("a") is not groups.of("c")
    assert groups.of("elsewhere").rules == rules_for()
    assert [index for site in "ab" for index in groups.of(site).indices(site, ["z1", "z2"]).tolist()] == [0, 1, 2, 3]


def test_what_is_known_of_a_rule_that_watches_the_same_goes_along() -> None:
    """With another limit its events are others: that begins anew. The chance from which it warns changes no event."""
    groups = groups_of(a=TOMATO, b=TOMATO)
    for rule in ("frost", "heat"):
        learned(groups, "a", rule, 3.0)
    groups.give("a", COLDER, 0)
    assert learned(groups, "a", "frost") == [0.0, 0.0]
    assert learned(groups, "a", "heat") == [3.0, 3.0]
    learned(groups, "b", "frost", 2.0)
    groups.give("b", SOONER, 0)
    assert learned(groups, "b", "frost") == [2.0, 2.0]
    assert len(list(groups)) == 2


def test_alerts_move_with_their_site_and_those_of_others_stay() -> None:
    """An alert whose rule is gone is resolved."""
    groups = groups_of(a=TOMATO, b=TOMATO)
    for site in "ab":
        for rule in ("frost", "heat"):
            groups.of(site).desk.book.see(0, site, "z1", rule, RuleFinding(0.9))
    without = tuple(rule for rule in TOMATO if rule.name != "heat")
    [over] = groups.give("a", without, 7)
    assert (over.site, over.rule, over.state) == ("a", "heat", "resolved")
    assert [(alert.site, alert.rule) for alert in groups.of("a").desk.book] == [("a", "frost")]
    assert [(alert.site, alert.rule) for alert in groups.of("b").desk.book] == [("b", "frost"), ("b", "heat")]
    assert groups.give("a", without, 9) == []


def test_a_snapshot_gives_the_same_groups() -> None:
    """With what was learned, and the rules as they were when it was learned."""
    groups = groups_of(a=TOMATO, b=COLDER)
    learned(groups, "b", "heat", 4.0)
    groups.of("b").desk.book.see(0, "b", "z2", "frost", RuleFinding(0.9))
    again = RuleGroups(ForecastSpec(("air_temp_c", "rh_pct")))
    again.load(groups.state())
    assert learned(again, "b", "heat") == [4.0, 4.0]
    assert again.of("b").rules == COLDER
    assert [alert.zone for alert in again.of("b").desk.book] == ["z2"]
    assert again.of("a").desk.book.state_dict() == groups.of("a").desk.book.state_dict()
    assert np.array_equal(again.of("a").indices("a", ["z2", "new"]), [1, 2])


def test_a_zone_with_rules_of_its_own_is_at_another_desk() -> None:
    """It takes along its alerts and what is known of it; the other zones stay, and it comes back as it went."""
    groups = groups_of(a=TOMATO, b=TOMATO)
    learned(groups, "a", "heat", 3.0)
    for zone in ("z1", "z2"):
        groups.of("a").desk.book.see(0, "a", zone, "frost", RuleFinding(0.9))
    before = {alert.zone: alert.id for alert in groups.of("a").desk.book}
    assert groups.give("a", TOMATO, 7, {"z2": COLDER}) == []
    own = groups.of("a", "z2")
    assert own.rules == COLDER
    assert groups.of("a", "z1") is groups.of("a") is groups.of("b")
    assert [(alert.zone, alert.id) for alert in own.desk.book] == [("z2", before["z2"])]
    assert [(alert.zone, alert.id) for alert in groups.of("a").desk.book] == [("z1", before["z1"])]
    assert float(own.desk.watch.calibration("heat")._zones["came"][own.indices("a", ["z2"])][0, 12]) == 3.0
    assert groups.of_site("a") == [groups.of("a"), own]
    assert groups.give("a", TOMATO, 9) == []
    assert {alert.zone: alert.id for alert in groups.of("a").desk.book} == before
    assert len(list(groups)) == 1


def test_the_sites_rules_change_for_the_zones_without_their_own() -> None:
    """A rule that a zone keeps stays there with its alert; where it is gone its alert is resolved."""
    groups = groups_of(a=TOMATO)
    without = tuple(rule for rule in TOMATO if rule.name != "heat")
    groups.give("a", TOMATO, 0, {"z2": SOONER})
    for zone in ("z1", "z2"):
        groups.of("a", zone).desk.book.see(0, "a", zone, "heat", RuleFinding(0.9))
    [over] = groups.give("a", without, 7, {"z2": SOONER})
    assert (over.zone, over.rule, over.state) == ("z1", "heat", "resolved")
    assert [alert.zone for group in groups for alert in group.desk.book] == ["z2"]


def test_zones_of_one_site_with_the_same_rules_share_a_desk() -> None:
    """What is learned is pooled over all that watch the same, of whichever site."""
    groups = groups_of(a=TOMATO, b=COLDER)
    groups.give("a", TOMATO, 0, {"z1": COLDER, "z3": COLDER})
    assert groups.of("a", "z1") is groups.of("a", "z3") is groups.of("b")


def test_a_snapshot_keeps_the_rules_of_zones_and_an_older_one_has_none() -> None:
    """Also of a zone that is still to come."""
    groups = groups_of(a=TOMATO)
    groups.give("a", TOMATO, 0, {"z2": COLDER, "later": SOONER})
    state = groups.state()
    again = RuleGroups(ForecastSpec(("air_temp_c", "rh_pct")))
    again.load(state)
    assert [again.of("a", zone).rules for zone in ("z1", "z2", "later")] == [TOMATO, COLDER, SOONER]
    assert again.state().keys() == state.keys()
    older = {name: part for name, part in groups_of(a=TOMATO, b=COLDER).state().items() if name != "zones"}
    again.load(older)
    assert [again.of("a", zone).rules for zone in ("z1", "z2")] == [TOMATO, TOMATO]


def test_a_zone_whose_rules_are_all_off_has_none() -> None:
    """It does not fall back to its site's, also after a restart."""
    groups = groups_of()
    groups.give("demo", rules_for(), 0, {"empty": ()})
    assert groups.of("demo", "empty").rules == ()
    again = groups_of()
    again.load(groups.state())
    assert again.of("demo", "empty").rules == ()
    assert again.of("demo", "z1").rules == rules_for()
