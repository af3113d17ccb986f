"""Step 9 of the way of a reading: rules, chances and alerts of many zones, put together.

:class:`AlertDesk` is what a recording is scored with, and what a running system asks. It has no clock and no I/O: the
same rows, forecasts, facts and orders in the same order give the same alerts, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from models.alerts.alert_book import STAYS, Alert, AlertBook, RuleFinding
from models.alerts.alert_rule import STATES, AlertRule
from models.alerts.alert_words import event_words
from models.alerts.facts import Fact, finding_of
from models.alerts.foreseen import STEP_MS
from models.alerts.rule_watch import DAY_STEPS, RuleWatch, Said, SiteAhead
from models.spec import ForecastSpec

__all__ = ["AlertDesk", "Clock"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

Clock = Callable[[int], str]
"""A time in ms as people at the site write it."""

VERSION = 1


class AlertDesk:
    """Alerts of a partition's zones. Every half hour, for the zones of a site: :meth:`see`; whenever something about a
    zone is known: :meth:`hear`.
    """

    def __init__(self, rules: Sequence[AlertRule], spec: ForecastSpec, capacity: int = 16) -> None:
        self.watch, self.book = RuleWatch(rules, spec, capacity), AlertBook(rules)
        self._states = tuple(rule for rule in rules if not rule.is_course)

    def __len__(self) -> int:
        return len(self.watch)

    @property
    def rules(self) -> tuple[AlertRule, ...]:
        """Those of a course; :meth:`see` answers in their order."""
        return self.watch.rules

    def add_zones(self, count: int = 1) -> int:
        """Make room for more zones and return the index of the first."""
        return self.watch.add_zones(count)

    def see(
        self, site: str, zones: Sequence[str], indices: I64, rows: F32, ahead: SiteAhead, clock: Clock,
        silent: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[list[Alert], list[list[Said]]]:  # fmt: skip
        """The alerts whose state changed, and what each rule says of each zone; ``rows [Z, L, C]`` are those of the
        day that ends now. A half hour of a zone counts once: zones that have seen it, or a later one, are left out.
        Sentences about ``silent`` zones say when each was read last.
        """
        new = np.flatnonzero(self.watch.newest(indices) < ahead.half_hour)
        if not len(new):
            return [], []
        if len(new) < len(indices):
            zones, indices, rows, ahead = [zones[z] for z in new.tolist()], indices[new], rows[new], ahead.of(new)
        end_ms, changed = ahead.end_ms, []
        said = self.watch.see(indices, rows, ahead)
        for zone, index, of_zone in zip(zones, indices.tolist(), said, strict=True):
            read = clock(silent[zone]) if zone in silent else ""
            now = self.watch.is_now(index, ahead.half_hour)
            for r, (rule, each) in enumerate(zip(self.rules, of_zone, strict=True)):
                since = self.watch.since(index, ahead.half_hour, r) if now[r] else 0
                began_ms = end_ms - since * STEP_MS
                if since == DAY_STEPS:
                    began_ms = self._began_before(began_ms, site, zone, rule.name)
                finding = _finding(rule, each, began_ms, end_ms, self.watch.leads[r], clock, read)
                changed += self.book.see(end_ms, site, zone, rule.name, finding)
        return changed, said

    def unread(self, at_ms: int, site: str, zone: str) -> list[Alert]:
        """The alerts that are over because rules of a course could not look at the zone for a day; call it when
        they cannot.
        """
        return [alert for rule in self.rules for alert in self.book.see(at_ms, site, zone, rule.name, None)]

    def _began_before(self, began_ms: int, site: str, zone: str, rule: str) -> int:
        """The watch looks back a day. An event that goes on for longer began when its alert says that it did."""
        of_rule = [alert for alert in self.book.of_zone(site, zone) if alert.rule == rule]
        return min([began_ms, *(ms for alert in of_rule if (ms := alert.from_ms) is not None and ms < alert.seen_ms)])

    def hear(
        self, at_ms: int, site: str, zone: str, facts: Sequence[Fact], kinds: Collection[str] = tuple(STATES)
    ) -> list[Alert]:
        """The alerts of rules of a state that changed, from all facts of these kinds about the zone now."""
        changed = []
        for rule in self._states:
            if rule.kind in kinds:
                changed += self.book.see(at_ms, site, zone, rule.name, finding_of(rule, facts, at_ms))
        return changed

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """Everything, with the version of its format."""
        return {
            "version": VERSION,
            "watch": self.watch.state_dict(copy),
            "book": self.book.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; an empty state is that of zones of which nothing is known yet.

        Raises ``ValueError`` if it does not fit: it is one of another version, or of other rules.
        """
        if not state:
            return
        if state["version"] != VERSION:
            raise ValueError(f"alerts of version {state['version']}, wanted {VERSION}")
        self.watch.load_state_dict(state["watch"])
        self.book.load_state_dict(state["book"])


def _finding(
    rule: AlertRule, said: Said, began_ms: int, end_ms: int, lead: int, clock: Clock, read: str = ""
) -> RuleFinding | None:
    """``began_ms``: since when an event goes on, ``end_ms``: none does; the chance is of the next ``lead``."""
    goes_on, event = began_ms < end_ms, said.event
    if event is None:
        limit = rule.limit if rule.night_limit is None else None  # nobody looked which one holds
        words = event_words(rule, 1.0, True, clock(began_ms), "", {}, limit, read)
        return RuleFinding(1.0, True, began_ms, end_ms, words, limit=limit) if goes_on else None
    if not goes_on and said.chance < STAYS * rule.chance:
        return RuleFinding(said.chance)  # nobody is told of it
    first, last = end_ms + (event.first - 1) * STEP_MS, end_ms + event.last * STEP_MS
    if not event.first and not goes_on:  # no scenario has one, but this hour of the day often does: within the lead
        first, last = end_ms, end_ms + lead * STEP_MS
    begins = began_ms if goes_on else first
    until = clock(last) if event.last or not goes_on else ""
    words = event_words(rule, said.chance, goes_on, clock(begins), until, event.inputs, event.limit, read)
    inputs = tuple(event.inputs.items())
    return RuleFinding(said.chance, goes_on, begins, max(last, end_ms), words, inputs, event.limit)
