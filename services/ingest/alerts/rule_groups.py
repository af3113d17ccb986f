"""Step 9 of the way of a reading: the alert desks of a partition: zones with the same rules share one.

What is learned of rules is pooled over the zones that have them. A zone whose rules change moves to another desk, with
its alerts, and with what is known of each rule that still watches the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from edge.wire.topic import SITE_ZONE
from models.alerts.alert_book import RULE_GONE, Alert
from models.alerts.alert_desk import AlertDesk
from models.alerts.alert_rule import AlertRule
from models.alerts.crop_rules import rules_for
from models.spec import ForecastSpec
from services.messages import I64

__all__ = ["RuleGroup", "RuleGroups"]

Rules = tuple[AlertRule, ...]


class RuleGroup:
    """A desk and the zones that it knows."""

    def __init__(self, rules: Rules, spec: ForecastSpec) -> None:
        self.rules, self.desk = rules, AlertDesk(rules, spec)
        self._zones: dict[tuple[str, str], int] = {}

    def indices(self, site: str, zones: Sequence[str]) -> I64:
        """The zones' numbers at the desk; new ones are added."""
        for zone in zones:
            if (site, zone) not in self._zones:
                self._zones[site, zone] = self.desk.add_zones()
        return np.array([self._zones[site, zone] for zone in zones], np.int64)

    def zones(self, site: str) -> list[str]:
        """Those of a site that the desk has seen."""
        return [zone for name, zone in self._zones if name == site]

    def state(self) -> dict[str, Any]:
        """For a snapshot."""
        return {
            "rules": [asdict(rule) for rule in self.rules], "zones": [list(zone) for zone in self._zones],
            "desk": self.desk.state_dict(copy=False),
        }  # fmt: skip

    @classmethod
    def of(cls, state: Mapping[str, Any], spec: ForecastSpec) -> RuleGroup:
        """Inverse of :meth:`state`; raises ``KeyError``, ``TypeError`` or ``ValueError`` where it does not fit."""
        group = cls(tuple(map(_rule_of, state["rules"])), spec)
        group.desk.load_state_dict(state["desk"])
        group._zones = {(site, zone): index for index, (site, zone) in enumerate(state["zones"])}
        if len(group._zones) != len(group.desk):
            raise ValueError(f"alerts of {len(group.desk)} zones, but {len(group._zones)} are named")
        return group


class RuleGroups:
    """The groups of a partition; a site that nobody gave rules has those of any crop, and a zone those of its site."""

    def __init__(self, spec: ForecastSpec) -> None:
        self._spec = spec
        self._groups: dict[Rules, RuleGroup] = {}
        self._rules: dict[str, Rules] = {}  # of a site
        self._zone_rules: dict[str, dict[str, Rules]] = {}  # site -> zone -> where it has others

    def __iter__(self) -> Iterator[RuleGroup]:
        return iter(self._groups.values())

    def of(self, site: str, zone: str = SITE_ZONE) -> RuleGroup:
        """The group of a zone."""
        rules = self._zone_rules.get(site, {}).get(zone)
        if rules is None:  # one that has none at all, because all are off, is another thing
            rules = self._rules.setdefault(site, rules_for())
        return self._groups.get(rules) or self._groups.setdefault(rules, RuleGroup(rules, self._spec))

    def of_site(self, site: str) -> list[RuleGroup]:
        """The groups that a site's zones may be in, its own first."""
        groups = [self.of(site), *(self.of(site, zone) for zone in self._zone_rules.get(site, ()))]
        return list({id(group): group for group in groups}.values())

    def give(self, site: str, rules: Rules, at_ms: int, zone_rules: Mapping[str, Rules] | None = None) -> list[Alert]:
        """Let a site have other rules, and of its zones those that are named others again. Gives the alerts that are
        resolved because their rule is gone.
        """
        before = {zone: self.of(site, zone) for zone in self._zones(site)}
        self.of(site)
        self._rules[site], self._zone_rules[site] = rules, dict(zone_rules or {})
        moves: dict[tuple[Rules, Rules], list[str]] = {}
        for zone, group in before.items():
            after = self.of(site, zone)
            if after is not group:
                moves.setdefault((group.rules, after.rules), []).append(zone)
        self.of_site(site)  # a group of each: also of zones that are still to come
        ended: list[Alert] = []
        for (old, new), zones in moves.items():
            ended += self._move(site, zones, self._groups[old], self._groups[new], at_ms)
        used = {*self._rules.values(), *(one for of in self._zone_rules.values() for one in of.values())}
        for unused in [rules for rules in self._groups if rules not in used]:
            del self._groups[unused]
        return ended

    def _move(self, site: str, zones: list[str], source: RuleGroup, target: RuleGroup, at_ms: int) -> list[Alert]:
        seen = [zone for zone in zones if zone in source.zones(site)]
        if seen:
            own, theirs = target.indices(site, seen), source.indices(site, seen)
            target.desk.watch.take_over(source.desk.watch, own, theirs)
        return source.desk.book.hand_over(site, zones, target.desk.book, at_ms, RULE_GONE)

    def _zones(self, site: str) -> list[str]:
        """The zones of a site that some desk has seen, or has an alert of."""
        found = dict.fromkeys(zone for group in self for zone in group.zones(site))
        return [*found, *sorted({zone for group in self for zone in group.desk.book.zones(site)} - set(found))]

    def state(self) -> dict[str, Any]:
        """For a snapshot."""
        order = list(self._groups)
        return {
            "groups": [group.state() for group in self._groups.values()],
            "sites": {site: order.index(rules) for site, rules in self._rules.items() if rules in self._groups},
            "zones": [
                [site, zone, order.index(rules)]
                for site, of in self._zone_rules.items() for zone, rules in of.items() if rules in self._groups
            ],
        }  # fmt: skip

    def load(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`; raises as :meth:`RuleGroup.of`. A release before zones had rules of their own kept
        none.
        """
        groups = [RuleGroup.of(group, self._spec) for group in state["groups"]]
        self._groups = {group.rules: group for group in groups}
        self._rules = {site: groups[place].rules for site, place in state["sites"].items()}
        self._zone_rules = {}
        for site, zone, place in state.get("zones", ()):
            self._zone_rules.setdefault(site, {})[zone] = groups[place].rules


def _rule_of(said: Mapping[str, Any]) -> AlertRule:
    pairs = {name: tuple(said[name]) for name in ("hours", "band_c") if said[name] is not None}
    return AlertRule(**{**said, **pairs})
