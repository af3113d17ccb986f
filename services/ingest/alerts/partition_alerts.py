"""Step 9 of the way of a reading: the alerts of a partition's zones, as a function of its log.

Rules look when ticks come: at facts of the newest rows, and at zones whose turn it is. What is imported has no ticks,
so nobody is warned of the past. Orders are taken where they stand in the log. All that is a function of the records and
of the forecasts that were kept. So a shard that reads its log again from a snapshot makes the same changes, with the
same ids and numbers.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edge.wire.alert_orders import AcknowledgeAlert, AlertOrder, ChangeRules, MuteRule, decode_order
from edge.wire.topic import SITE_ZONE, Topic, parse_topic
from models.alerts.alert_book import LEFT, RULE_LOST, Alert
from models.spec import ForecastSpec, Place
from services.ingest.alerts.journaled import SAME, Journaled, Key, alert_of
from services.ingest.alerts.plan_watch import OF_PLANS, PlanWatch
from services.ingest.alerts.rule_groups import RuleGroup, RuleGroups
from services.ingest.alerts.shown_alert import shown_alert
from services.ingest.alerts.site_documents import SiteDocuments
from services.ingest.alerts.turns import Turns
from services.ingest.alerts.zone_facts import OF_ROWS, facts_of_row, present
from services.ingest.alerts.zone_look import (
    PartitionView,
    can_foresee,
    clock_of,
    known_share,
    look_at,
    rows_of_day,
    silent_since,
)
from services.ingest.windows.closed import Mark
from services.messages import F32, ShownAlert, SiteRulesShown
from services.store.rows import DeadLetter, DeviceRows, SiteStep

__all__ = ["KEPT_RESOLVED", "PartitionAlerts"]

KEPT_RESOLVED = 200
"""Newest alerts that are over and still shown."""

LEARNED_SHARE = 0.5
"""Rules of the climate look at a zone from when this share of its last day is known."""


class PartitionAlerts:
    """Takes marks of the log (:meth:`feed`), then rows (:meth:`row`), and turns and orders between them (:meth:`take`).

    ``told`` are changes that are not durable yet, each with the offset of the record that it came with; ``renewed``
    are alerts to be shown again, by id. ``counts`` are since somebody looked.
    """

    def __init__(self, spec: ForecastSpec, place_of: Callable[[str], Place]) -> None:
        self._spec, self._place_of = spec, place_of
        self._foresees = can_foresee(spec)
        self._groups, self._documents, self._turns = RuleGroups(spec), SiteDocuments(), Turns(spec)
        self._plan_watch = PlanWatch()
        self._heard_ms: dict[str, dict[str, int]] = {}  # site -> zone -> end of its newest row with a sample
        self._heard_before: dict[str, dict[str, int]] = {}  # the same, of alerts that were taken back; at the latest
        self._facts_ms: dict[str, int] = {}  # site -> end of the row of which facts were taken
        self._over: deque[ShownAlert] = deque(maxlen=KEPT_RESOLVED)
        self._marks: deque[Mark] = deque()
        self._journaled = Journaled([])
        self._from_offset = 0  # marks before it are in the state already
        self.told: list[tuple[int, ShownAlert]] = []
        self.renewed: dict[str, ShownAlert] = {}
        self.counts: Counter[str] = Counter()
        self.changes = 0  # rises with each change of the state
        self._looked: set[tuple[str, int]] = set()

    @property
    def waits(self) -> bool:
        """Whether ticks or orders wait to be taken, which changes the state."""
        return bool(self._marks)

    def __len__(self) -> int:
        return sum(len(group.desk.book) for group in self._groups)

    def feed(self, marks: Sequence[Mark]) -> None:
        """Ticks and events of a read, to be taken between its rows."""
        self._marks += (mark for mark in marks if mark.record.offset >= self._from_offset)

    def take(self, steps: int, view: PartitionView) -> list[DeadLetter]:
        """Give turns and take orders that came before step number ``steps`` of the read closed; letters of orders that
        cannot be taken.
        """
        letters = []
        while self._marks and self._marks[0].steps <= steps:
            mark = self._marks.popleft()
            record = mark.record
            self.changes += 1
            before = self._held() if self._journaled.knows(record.offset) else None
            if mark.left is not None and mark.left.zone != SITE_ZONE:
                self._leave(record.site, mark.left.zone, mark.left.end_ms, record.offset)
            if record.kind == "tick":
                self._turn(record.offset, record.site, view)
                self._settle(record.offset, before)
                continue
            where = parse_topic(record.topic)
            try:
                order = None if where is None else decode_order(record.payload)
                if where is not None and order is not None:
                    self._order(where, order, record.offset, mark.now_ms)
            except (ValueError, OverflowError, RecursionError) as error:
                letters.append(DeadLetter(
                    record.partition, record.offset, 0, record.receive_ms, record.topic, "alert_order", str(error),
                    record.payload[:1024],
                ))  # fmt: skip
            self._settle(record.offset, before)
        return letters

    def expect(self, journaled: Journaled) -> None:
        """What was told before a crash: where the log is read again it holds, whatever comes out now."""
        self._journaled = journaled

    def take_back(self, standing: Sequence[ShownAlert], offset: int) -> None:
        """Alerts that were told before the record at ``offset``. Those that a damaged snapshot has lost go on; they are
        over where their rule is lost with it.
        """
        if self._from_offset > offset + 1:  # the log is read again; the state is that of later records
            return
        for said in standing:
            book = self._groups.of(said["site"], said["zone"]).desk.book
            alert, key = alert_of(said), (said["site"], said["zone"], said["rule"])
            if key in book.held():
                continue
            self.changes += 1
            if book.knows(alert):
                book.put(key, alert)
                if alert.muted_until_ms is not None:
                    book.mute(alert.seen_ms, *key, alert.muted_until_ms)
                heard = self._heard_before.setdefault(said["site"], {})
                heard[said["zone"]] = min(alert.from_ms, alert.seen_ms, heard.get(said["zone"], alert.seen_ms))
                self.renewed[alert.id] = said
            else:
                over = replace(alert, state="resolved", revision=alert.revision + 1, why=RULE_LOST, inputs=())
                self._tell(offset, [over])

    def row(self, step: SiteStep, offset: int) -> None:
        """Take a site's newest step, which is learned; ``offset`` is that of the read's last record."""
        if offset < self._from_offset:
            return
        heard = self._heard_ms.setdefault(step.site, self._heard_before.pop(step.site, {}))
        heard |= dict.fromkeys(DeviceRows.of(step.devices).zone.tolist(), step.end_ms)
        for zone in step.zones:
            heard.setdefault(zone, step.end_ms)
        for zone in sorted(set(heard) - set(step.zones) - {SITE_ZONE}):
            self._leave(step.site, zone, step.end_ms, offset)
        self.changes += 1

    def _leave(self, site: str, zone: str, at_ms: int, offset: int) -> None:
        """The zone has left: its alerts are over. Once more changes nothing."""
        heard = self._heard_ms.get(site, {})
        if heard.pop(zone, None) is not None:
            self._turns.forget(site, zone)
            self._plan_watch.forget(site, zone)
            # With the last one those of the whole site are over: no row may come that says so.
            for gone in (zone,) if heard.keys() - {SITE_ZONE} else (zone, SITE_ZONE):
                self._tell(offset, self._groups.of(site, gone).desk.book.end(at_ms, site, gone, LEFT))
            self.changes += 1

    def take_looked(self) -> set[tuple[str, int]]:
        """Site and end of the newest row, of sites whose zones were looked at since the last call."""
        looked, self._looked = self._looked, set()
        return looked

    def shown(self) -> list[ShownAlert]:
        """All that are not over, and the newest that are."""
        return [*self._over, *(shown_alert(alert) for group in self._groups for alert in group.desk.book)]

    def states(self) -> Counter[str]:
        """How many that are not over are in each state."""
        return Counter(alert.state for group in self._groups for alert in group.desk.book)

    def rules(self, site: str) -> SiteRulesShown:
        """The rules of a site, and the zones that it has."""
        zones = sorted(set(self._heard_ms.get(site, ())) - {SITE_ZONE})
        shown = self._documents.shown(site)
        shown["zones"] = zones
        return shown

    def state(self, offset: int) -> dict[str, Any]:
        """For a snapshot before the record at ``offset``; its arrays are good until the next record."""
        return {
            "offset": offset, "groups": self._groups.state(), "documents": self._documents.state(),
            "turns": self._turns.state(), "heard_ms": {site: dict(of) for site, of in self._heard_ms.items()},
            "facts_ms": dict(self._facts_ms), "over": list(self._over), "off_plans": self._plan_watch.state(),
        }  # fmt: skip

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`, whatever is read again: what it knows of is not taken twice. An empty state is
        that of a partition of which no alert is known. Raises as :meth:`RuleGroups.load`.
        """
        if not state:
            return
        self._groups.load(state["groups"])
        self._documents.load(state["documents"])
        self._turns.load(state["turns"])
        self._heard_ms = {site: dict(of) for site, of in state["heard_ms"].items()}
        self._facts_ms = dict(state["facts_ms"])
        self._plan_watch.load(state.get("off_plans", ()))  # the release before has none
        self._over = deque(state["over"], maxlen=KEPT_RESOLVED)
        self._from_offset = state["offset"]
        self.renewed = {alert["id"]: alert for alert in self.shown()}

    def _turn(self, offset: int, ticked: str, view: PartitionView) -> None:
        there = {site: step for site, step in view.latest.items() if site in self._heard_ms}
        for site, step in there.items():
            if step.end_ms > self._facts_ms.get(site, -1):
                self._facts_ms[site] = step.end_ms
                self._hear(offset, present(step, self._heard_ms[site]), view)
        if self._turns.tick(ticked):  # not for each tick of each site: there may be a thousand
            now = {site: present(step, self._heard_ms[site]) for site, step in there.items()}
            for site, zones in self._turns.due(now).items():
                self._look(offset, site, zones, view)

    def _held(self) -> dict[Key, Alert]:
        return {key: alert for group in self._groups for key, alert in group.desk.book.held().items()}

    def _settle(self, offset: int, before: Mapping[Key, Alert] | None) -> None:
        """Let what came of a mark be what was told of it, if it was told before a crash."""
        if before is None:
            return
        mine = {(alert["site"], alert["zone"], alert["rule"]): alert for at, alert in self.told if at == offset}
        theirs = self._journaled.told(offset)
        for key in sorted({*mine, *theirs}):
            own, said = mine.get(key), theirs.get(key)
            if own is not None and said is not None and all(own[name] == said[name] for name in SAME):  # type: ignore[literal-required]
                continue
            book = self._groups.of(*key[:2]).desk.book
            was = before.get(key)
            book.put(key, was if said is None else alert_of(said, was))
            if own is not None:
                self.told = [(at, one) for at, one in self.told if one["id"] != own["id"] or at != offset]
                self.renewed.pop(own["id"], None)
                self._over = deque((one for one in self._over if one["id"] != own["id"]), KEPT_RESOLVED)
            if said is not None:
                self.renewed[said["id"]] = said
                if said["state"] == "resolved":
                    self._over.append(said)
            self._renew(*key[:2])

    def _hear(self, offset: int, step: SiteStep, view: PartitionView) -> None:
        """Take the facts of a site's newest step."""
        site = step.site
        self._looked.add((site, step.end_ms))
        clock = clock_of(self._place_of(site), step.end_ms)
        facts = facts_of_row(step, view, self._spec, self._heard_ms[site], clock)
        told = {zone for group in self._groups.of_site(site) for zone in group.desk.book.zones_with(site, OF_ROWS)}
        for zone in sorted({*facts, *told}):
            desk = self._groups.of(site, zone).desk
            self._tell(offset, desk.hear(step.end_ms, site, zone, facts.get(zone, ()), OF_ROWS))
            self._renew(site, zone)

    def _look(self, offset: int, site: str, zones: Sequence[str], view: PartitionView) -> None:
        step = view.latest[site]
        self._looked.add((site, step.end_ms))
        zones = [zone for zone in zones if view.rings.known(site, zone) is not None]
        if not zones:  # their rows were lost with a snapshot
            return
        rows = rows_of_day(view, self._spec, step, zones)
        for z, zone in enumerate(zones):
            group = self._groups.of(site, zone)
            facts = self._plan_watch.look(group.rules, view, self._spec, step, zone, rows[z])
            if facts is not None or zone in group.desk.book.zones_with(site, OF_PLANS):
                self._tell(offset, group.desk.hear(step.end_ms, site, zone, facts or (), OF_PLANS))
        self._see(offset, site, zones, rows, view)
        for zone in zones:
            self._renew(site, zone)

    def _see(self, offset: int, site: str, zones: Sequence[str], rows: F32, view: PartitionView) -> None:
        """Have the rules of the climate look at zones, with the rows ``[Z, L, C]`` of their day."""
        place, end_ms = self._place_of(site), view.latest[site].end_ms
        ahead = look_at(view, self._spec, place, site, zones) if self._foresees else None
        is_old = known_share(rows, self._spec) >= LEARNED_SHARE
        for zone, can_look in zip(zones, is_old.tolist(), strict=True):
            if ahead is None or not can_look:
                self._tell(offset, self._groups.of(site, zone).desk.unread(end_ms, site, zone))
        if ahead is None:
            return
        old, silent = np.flatnonzero(is_old), silent_since(rows, self._spec, end_ms, zones)
        together: dict[int, tuple[RuleGroup, list[int]]] = {}  # zones with the same rules
        for z in old.tolist():
            group = self._groups.of(site, zones[z])
            together.setdefault(id(group), (group, []))[1].append(z)
        for group, at in together.values():
            names = [zones[z] for z in at]
            indices, some = group.indices(site, names), np.array(at)
            clock = clock_of(place, end_ms)
            changed, _ = group.desk.see(site, names, indices, rows[some], ahead.of(some), clock, silent)
            self._tell(offset, changed)
        self.counts["alert_looks"] += len(old)

    def _renew(self, site: str, zone: str) -> None:
        for alert in self._groups.of(site, zone).desk.book.of_zone(site, zone):
            self.renewed[alert.id] = shown_alert(alert)

    def _order(self, where: Topic, order: AlertOrder, offset: int, at_ms: int) -> None:
        self.counts["alert_orders"] += 1
        match order:
            case AcknowledgeAlert(id=id):
                for group in self._groups.of_site(where.site):
                    self._tell(offset, group.desk.book.acknowledge(at_ms, id))
            case MuteRule(rule=rule, until_ms=until_ms):
                group = self._groups.of(where.site, where.zone)
                if any(one.name == rule for one in group.rules):
                    self._tell(offset, group.desk.book.mute(at_ms, where.site, where.zone, rule, until_ms))
                    self._renew(where.site, where.zone)
            case ChangeRules():
                document = self._documents.take(where.site, where.zone, order, at_ms)
                if document is not None:
                    ended = self._groups.give(where.site, document.rules, at_ms, document.zone_rules)
                    self._tell(offset, ended)
                    for zone in self._heard_ms.get(where.site, ()):
                        self._renew(where.site, zone)

    def _tell(self, offset: int, changed: Sequence[Alert]) -> None:
        for alert in changed:
            shown = shown_alert(alert)
            self.told.append((offset, shown))
            self.renewed[alert.id] = shown
            self.counts["alert_changes"] += 1
            if alert.is_over:
                self._over.append(shown)
