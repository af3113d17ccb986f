"""Step 5 of the way of a reading: the plans of a partition's sites, as they stand in its log.

A plan is used from the first row on that closes after it, and not before it was issued: so what any row saw of it is a
function of the log, however the log is cut into reads, and what the history gives again is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge.log import Record
from edge.wire.plan import LONGEST_AHEAD_MS, PlanMessage, decode_plan
from edge.wire.reading import FUTURE_TOLERANCE_MS
from edge.wire.topic import SITE_ZONE
from models.durations import HOUR_MS
from models.features.plans import Plan, PlanKind, Plans
from services.ingest.plans.refused import count_of
from services.ingest.windows.closed import CamePlan
from services.messages import ZonePlan
from services.observe.duration import in_words
from services.store.plan_history import KeptPlan
from services.store.rows import DeadLetter

__all__ = ["PartitionPlans", "plan_of"]

MAX_ISSUES = 3_000
"""Plans of one source and zone within 15 days, which is one each seven minutes."""
MAX_SOURCES = 16
"""Of a zone, or of a site as a whole, within 15 days."""
STALE_MS = 12 * HOUR_MS
"""A weather service has a new forecast every six hours at least: one as old as this is named in ``degraded``, for as
long as any of it may lie ahead.
"""
KEPT_MS = 48 * HOUR_MS
"""Plans that were superseded longer ago are dropped, also where no row closes."""
_EVER_MS = 2**62
_TOO_MANY = 1_000
"""Item of a letter that is not about what the record says: those of a record are told apart by their items."""

_Key = tuple[str, str]  # zone and source


@dataclass(slots=True)
class _Source:
    """When a source issued plans for a zone in the last 15 days, which tells a repeated one."""

    kind: PlanKind  # of the newest
    issued_ms: list[int]  # in the order in which they came


class _Site:
    """The plans of one site, and their sources."""

    def __init__(self) -> None:
        self.plans = Plans()
        self.sources: dict[_Key, _Source] = {}
        self.newest_ms = 0  # when the newest that came could first be used

    def take(self, plan: Plan, now_ms: int) -> tuple[str, str] | None:
        """Take a plan that came at the site's ``now_ms``; else reason and sentence why not, which are empty where it is
        known already.
        """
        # One that a clock which is ahead has issued must not age the others.
        known_ms = min(plan.known_ms, now_ms + KEPT_MS)
        before_ms, self.newest_ms = self.newest_ms, max(self.newest_ms, known_ms)
        if before_ms // HOUR_MS != self.newest_ms // HOUR_MS:  # now and then: a site may have thousands of sources
            self._forget_sources(self.newest_ms - LONGEST_AHEAD_MS)
            self.plans.forget(self.newest_ms - KEPT_MS)
        refusal = self._refusal(plan)
        if refusal is None:
            source = self.sources.setdefault((plan.zone, plan.source), _Source(plan.kind, []))
            source.kind = plan.kind
            # What came before it, and was issued after it could be used, is by a clock that was ahead. But where the
            # samples come hours late, that is so of any newer plan.
            right_ms = plan.known_ms + FUTURE_TOLERANCE_MS
            if plan.issued_ms <= now_ms + HOUR_MS:
                source.issued_ms = [ms for ms in source.issued_ms if ms <= right_ms]
                self.plans.withdraw(plan.zone, plan.source, right_ms)
            source.issued_ms.append(plan.issued_ms)
            self.plans.add(plan)
        return refusal

    def _refusal(self, plan: Plan) -> tuple[str, str] | None:
        source = self.sources.get((plan.zone, plan.source))
        if source is None:
            of_zone = sum(zone == plan.zone for zone, _ in self.sources)
            if of_zone >= MAX_SOURCES:
                where = plan.zone or SITE_ZONE
                return "too_many_sources", f"{where} has plans of {of_zone} sources already, which is the most"
            return None
        if plan.issued_ms in source.issued_ms:
            return "", ""
        if len(source.issued_ms) >= MAX_ISSUES:
            words = f"{plan.source} issued {MAX_ISSUES} plans for {plan.zone or SITE_ZONE} within 15 days"
            return "too_many_plans", f"{words}, which is the most: publish one where something has changed"
        return None

    def _forget_sources(self, since_ms: int) -> None:
        for key, source in list(self.sources.items()):
            if min(source.issued_ms) < since_ms:
                source.issued_ms = [ms for ms in source.issued_ms if ms >= since_ms]
            if not source.issued_ms:
                del self.sources[key]

    def state(self) -> dict[str, Any]:
        plans = self.plans.state_dict()
        series = [path for plan in plans for path in plan["series"].values()]
        return {
            "newest_ms": self.newest_ms,
            "sources": [
                [*key, source.kind, np.array(source.issued_ms, np.int64)]
                for key, source in sorted(self.sources.items())
            ],
            "plans": [
                {**plan, "series": [[name, len(path["value"])] for name, path in plan["series"].items()]}
                for plan in plans
            ],
            # A zone's plans are many short arrays: they stand one after another in two long ones.
            "valid_ms": np.concatenate([np.empty(0, np.int64), *(path["valid_ms"] for path in series)]),
            "value": np.concatenate([np.empty(0, np.float32), *(path["value"] for path in series)]),
        }  # fmt: skip

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> _Site:
        site, plans, at = cls(), [], 0
        site.newest_ms = state["newest_ms"]
        for zone, source, kind, issued_ms in state["sources"]:
            site.sources[zone, source] = _Source(kind, issued_ms.tolist())
        for plan in state["plans"]:
            series = {}
            for name, count in plan["series"]:
                part = slice(at, at := at + count)
                series[name] = {"valid_ms": state["valid_ms"][part], "value": state["value"][part]}
            plans.append({**plan, "series": series})
        site.plans.load_state_dict(plans)
        return site


class PartitionPlans:
    """Takes records, then what they hold from row to row; see :meth:`before_row`.

    ``counts`` are of what was taken since somebody looked; ``kept`` are plans that are not durable yet.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.kept: list[KeptPlan] = []
        self.changes = 0  # rises with each change of the state
        self._sites: dict[str, _Site] = {}
        self._came: list[tuple[CamePlan, Plan]] = []
        self._state: tuple[int, dict[str, Any]] | None = None

    def __len__(self) -> int:
        return sum(len(site.plans) for site in self._sites.values())

    def feed(self, came: Sequence[CamePlan]) -> list[DeadLetter]:
        """Decode records; the letters of those that no gateway of this release would have let through."""
        letters = []
        for one in came:
            decoded = decode_plan(one.record.topic, one.record.payload, one.record.receive_ms, one.now_ms)
            if decoded.plan is not None:
                self._came.append((one, plan_of(decoded.plan, one.now_ms, one.closed_ms)))
            for item, refusal in enumerate(decoded.refusals):
                letters.append(_letter(one.record, item, refusal.reason, refusal.detail))
                self.counts[count_of(refusal.reason, refusal.whole)] += 1
        return letters

    def before_row(self, site: str, end_ms: int) -> list[DeadLetter]:
        """Take what came before the row of a site that ends at ``end_ms`` closed."""
        return self._take(lambda one: one.record.site == site and (one.closed_ms or 0) < end_ms)

    def take_rest(self) -> list[DeadLetter]:
        """Take what came after the last row."""
        return self._take(lambda one: True)

    def after_row(self, site: str, end_ms: int) -> None:
        """Drop what no later row can use."""
        found = self._sites.get(site)
        if found is not None:
            before = len(found.plans)
            found.plans.forget(end_ms)
            self.changes += len(found.plans) != before

    def again(self, plans: Sequence[KeptPlan], now_ms: int) -> None:
        """Take plans of the history, which came until ``now_ms``; those that are there already stay."""
        for kept in plans:
            self._sites.setdefault(kept.site, _Site()).take(kept.plan, now_ms)
        self.changes += 1

    def of(self, site: str) -> Plans | None:
        """The plans of a site; ``None`` while it never had any."""
        found = self._sites.get(site)
        return None if found is None else found.plans

    def stale(self, site: str, origin_ms: int) -> dict[str, list[str]]:
        """What forecasts from an origin lack because weather forecasts do not come any more, a sentence a source: by
        zone, of the whole site under an empty name.
        """
        words: dict[str, list[str]] = {}
        found = self._sites.get(site)
        for (zone, name), source in sorted(found.sources.items() if found else ()):
            age_ms = origin_ms - max(source.issued_ms)
            if source.kind == "weather" and STALE_MS < age_ms <= LONGEST_AHEAD_MS:
                said = f"weather forecast of {name}: issued {in_words(age_ms / 1000)} before the origin"
                words.setdefault(zone, []).append(said)
        return words

    def newest_issued_ms(self) -> dict[str, dict[str, int]]:
        """Site -> kind -> when the newest plan of that kind was issued, of those of the last 15 days."""
        found: dict[str, dict[str, int]] = {}
        for name, site in self._sites.items():
            for source in site.sources.values():
                kinds = found.setdefault(name, {})
                kinds[source.kind] = max(kinds.get(source.kind, 0), *source.issued_ms)
        return found

    def newest_of(self, site: str, zone: str, source: str, until_ms: int) -> int:
        """When the newest plan of a source for a zone, or for ``_site``, was issued, of those of the 15 days up to
        ``until_ms``; 0 for none.
        """
        found = self._sites.get(site)
        known = None if found is None else found.sources.get(("" if zone == SITE_ZONE else zone, source))
        return 0 if known is None else max((ms for ms in known.issued_ms if ms <= until_ms), default=0)

    def of_zone(self, site: str, zone: str) -> list[ZonePlan]:
        """The newest plan of each source that holds for a zone, its own before those of the whole site."""
        plans = self.of(site)
        found = [] if plans is None else [p for p in plans.as_of(_EVER_MS) if p.zone in ("", zone)]
        return [
            ZonePlan(
                source=plan.source, kind=plan.kind, zone=plan.zone or SITE_ZONE, issued_ms=plan.issued_ms,
                known_ms=plan.known_ms,
                values={
                    metric: [[int(ms), float(f"{value:.6g}")] for ms, value in zip(*path, strict=True)]
                    for metric, path in plan.series.items()
                },
            )
            for plan in sorted(found, key=lambda plan: (not plan.zone, plan.kind, plan.source))
        ]  # fmt: skip

    def state(self) -> dict[str, Any]:
        """For a snapshot: its arrays never change, another state has other ones."""
        if self._state is None or self._state[0] != self.changes:
            self._state = self.changes, {"sites": {name: site.state() for name, site in sorted(self._sites.items())}}
        return self._state[1]

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`; raises ``KeyError`` or ``ValueError`` where it does not fit."""
        self._sites = {name: _Site.of(site) for name, site in state["sites"].items()}

    def _take(self, is_due: Callable[[CamePlan], bool]) -> list[DeadLetter]:
        letters = []
        due = [item for item in self._came if is_due(item[0])]
        if due:
            self._came = [item for item in self._came if not is_due(item[0])]
            self.changes += 1
        for came, plan in due:
            refusal = self._sites.setdefault(came.record.site, _Site()).take(plan, came.now_ms)
            if refusal is None:
                self.counts["plans"] += 1
                self.kept.append(KeptPlan(came.record.site, came.record.offset, plan))
            elif refusal[0]:
                letters.append(_letter(came.record, _TOO_MANY, *refusal))
                self.counts[count_of(refusal[0], whole=True)] += 1
            else:
                self.counts["plans_repeated"] += 1
        return letters


def plan_of(message: PlanMessage, now_ms: int, closed_ms: int | None) -> Plan:
    """A plan that came at the site's ``now_ms``, when rows had closed up to ``closed_ms``: it is used from the next row
    on.
    """
    series = {
        metric: (np.array([ms for ms, _ in path], np.int64), np.array([value for _, value in path], np.float32))
        for metric, path in message.values.items()
    }
    zone = "" if message.zone == SITE_ZONE else message.zone
    known_ms = max(now_ms, message.issued_ms, 0 if closed_ms is None else closed_ms + 1)
    return Plan(message.source, message.kind, message.issued_ms, series, zone, known_ms)


def _letter(record: Record, item: int, reason: str, detail: str) -> DeadLetter:
    where = record.partition, record.offset, item, record.receive_ms
    return DeadLetter(*where, record.topic, reason, detail, record.payload[:1024])
