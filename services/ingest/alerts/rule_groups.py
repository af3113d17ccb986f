"""Step 9 of the way of a reading: the alert desks of a partition: sites with the same rules share one.

What is learned of rules is pooled over the zones that have them. A site whose rules change moves to another desk, with
its alerts, and with what is known of each rule that still watches the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

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
    """The groups of a partition; a site that nobody gave rules has those of any crop."""

    def __init__(self, spec: ForecastSpec) -> None:
        self._spec = spec
        self._groups: dict[Rules, RuleGroup] = {}
        self._rules: dict[str, Rules] = {}  # of a site

    def __iter__(self) -> Iterator[RuleGroup]:
        return iter(self._groups.values())

    def of(self, site: str) -> RuleGroup:
        """The group of a site."""
        rules = self._rules.setdefault(site, rules_for())
        return self._groups.get(rules) or self._groups.setdefault(rules, RuleGroup(rules, self._spec))

    def give(self, site: str, rules: Rules, at_ms: int) -> list[Alert]:
        """Let a site have other rules; gives the alerts that are resolved because their rule is gone."""
        before = self.of(site)
        if before.rules == rules:
            return []
        self._rules[site] = rules
        group = self.of(site)
        zones = before.zones(site)
        own, theirs = group.indices(site, zones), before.indices(site, zones)
        group.desk.watch.take_over(before.desk.watch, own, theirs)
        ended = before.desk.book.hand_over(site, group.desk.book, at_ms, RULE_GONE)
        if before.rules not in self._rules.values():
            del self._groups[before.rules]
        return ended

    def state(self) -> dict[str, Any]:
        """For a snapshot."""
        order = list(self._groups)
        return {
            "groups": [group.state() for group in self._groups.values()],
            "sites": {site: order.index(rules) for site, rules in self._rules.items() if rules in self._groups},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`; raises as :meth:`RuleGroup.of`."""
        groups = [RuleGroup.of(group, self._spec) for group in state["groups"]]
        self._groups = {group.rules: group for group in groups}
        self._rules = {site: groups[place].rules for site, place in state["sites"].items()}


def _rule_of(said: Mapping[str, Any]) -> AlertRule:
    pairs = {name: tuple(said[name]) for name in ("hours", "band_c") if said[name] is not None}
    return AlertRule(**{**said, **pairs})
