"""Steps 8 and 9 of the way of a reading: what other threads may ask a shard about its zones.

Answers come from memory, and never wait for a disk or for the log.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from edge.wire.plan import PlanMessage, next_issue_ms
from edge.wire.reading import FUTURE_TOLERANCE_MS
from edge.wire.topic import SITE_ZONE
from models.durations import DAY_MS
from services.ingest import zone_answers
from services.ingest.partition import Partition
from services.ingest.sinks.live_state_sink import PastRows
from services.messages import (
    F32,
    ChangeAsked,
    SiteRulesShown,
    ZoneMixture,
    ZoneOutlook,
    ZonePlan,
    ZoneQuality,
    ZoneWhatIf,
)

__all__ = ["FairLock", "Questions", "SilentZone"]


class SilentZone(TypedDict):
    """A zone, or a site as its ``_site``, that is to leave; ``until_ms`` as in ``edge.wire.events.Retirement``."""

    site: str
    zone: str
    until_ms: int


class FairLock:
    """Given to threads in the order in which they ask.

    A ``threading.Lock`` goes to whoever comes first once it is free, mostly the thread that just let it go: a shard
    that reads a backlog takes it again within microseconds, and a question would wait for seconds.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()  # held for moments: while one of the two below changes
        self._is_taken = False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._changing:
            if not self._is_taken:
                self._is_taken = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()

    def __exit__(self, *_: object) -> None:
        with self._changing:
            if self._waiting:
                self._waiting.popleft().release()  # it stays taken, by that thread
            else:
                self._is_taken = False

    def let_others(self) -> None:
        """Called by the holder: the threads that wait now have it first, then the holder has it again."""
        if self._waiting:
            self.__exit__()
            self.__enter__()


class Questions:
    """Any thread calls its methods; ``changing`` is held while a partition changes."""

    def __init__(
        self, partitions: Mapping[int, Partition], changing: FairLock, retire_days: float,
        is_behind: Callable[[], bool], serving: Callable[[], Mapping[str, str]], repeats: Mapping[str, Sequence[str]],
    ) -> None:  # fmt: skip
        self._repeats = repeats
        self._partitions, self._changing, self._retire_days = partitions, changing, retire_days
        self._is_behind, self._serving = is_behind, serving
        self._issues: dict[tuple[str, str], int] = {}  # zone -> the newest issue of an operator's plan

    def outlook(self, site: str, zone: str) -> ZoneOutlook | None:
        """Scenarios of a zone's newest forecast; None for a zone that is not ours or has none yet."""
        with self._changing:
            partition = self._owner(site, zone)
            return None if partition is None else zone_answers.outlook(partition.learner, site, zone)

    def what_if(self, site: str, zone: str, changes: Sequence[ChangeAsked]) -> ZoneWhatIf | None:
        """What changes do to a zone's newest forecast; None for a zone that is not ours or has none yet."""
        with self._changing:
            partition = self._owner(site, zone)
            question = None if partition is None else zone_answers.question(partition.learner, site, zone)
        return None if question is None else question.answer(changes)

    def baseline(self, site: str, zone: str, origin_ms: int, now: F32) -> F32 | None:
        """The climatology's forecasts [N, H, M, Q] for targets ``now [N, M]``; None for a zone that is not ours."""
        with self._changing:
            partition = self._owner(site, zone)
            return None if partition is None else zone_answers.baseline(partition.learner, site, zone, origin_ms, now)

    def past(self, site: str, zone: str, hours: int) -> PastRows | None:
        """Ends and targets of a zone's newest rows; None for a zone that is not ours."""
        with self._changing:
            partition = self._owner(site, zone)
            return None if partition is None else zone_answers.past(partition.learner, site, zone, hours)

    def plan(self, site: str, zone: str) -> list[ZonePlan] | None:
        """The newest plan of each source that holds for a zone, or for ``_site``; None for one that is not ours."""
        with self._changing:
            partition = self._owner_of_site(site) if zone == SITE_ZONE else self._owner(site, zone)
            return None if partition is None else partition.learner.plans.of_zone(site, zone)

    def next_issue(self, site: str, zone: str, source: str, now_ms: int) -> int | None:
        """When an operator's next plan for a zone, or for ``_site``, is issued: now, or later than the newest of its
        source that was read, and than what was answered here for that zone. So no two plans have the same, whichever
        replicas of the API publish them. None for a site that is not ours.
        """
        with self._changing:
            owner = self._owner_of_site(site)
            if owner is None:
                return None
            newest_ms = owner.learner.plans.newest_of(site, zone, source, now_ms + FUTURE_TOLERANCE_MS)
            given = next_issue_ms(next_issue_ms(now_ms, newest_ms), self._issues.get((site, zone), 0))
            self._issues[site, zone] = given
            return given

    def mixtures(self) -> list[ZoneMixture]:
        """What the newest forecast of each zone was mixed from, and which models took part."""
        with self._changing:
            found = [one for partition in self._partitions.values() for one in zone_answers.mixtures(partition)]
        for one in found:
            one["serving"].update(self._serving())
        return found

    def alert_rules(self, site: str) -> SiteRulesShown | None:
        """The rules of a site; None for one that is not ours."""
        with self._changing:
            owner = self._owner_of_site(site)
            return None if owner is None else owner.alerts.rules(site)

    def alert_rules_of_all(self) -> list[SiteRulesShown]:
        """The rules of all sites; none while the log holds more than was read, for it may change them."""
        if self._is_behind():
            return []
        with self._changing:
            return [p.alerts.rules(site) for p in self._partitions.values() for site in p.windows.sites]

    def quality(self, asked: tuple[str, str] | None) -> list[ZoneQuality]:
        """How good the forecasts of one zone have been, or how long each is known; none for a zone that is not ours."""
        with self._changing:
            if asked is None:
                return [one for partition in self._partitions.values() for one in zone_answers.quality(partition, None)]
            partition = self._owner(*asked)
            return [] if partition is None else zone_answers.quality(partition, asked)

    def silent(self) -> list[SilentZone]:
        """The zones, and sites as their ``_site``, that no sample came of for ``stream.retire_days`` of the stream's
        time; none while the log holds more than was read.
        """
        with self._changing:
            retire_ms = round(self._retire_days * DAY_MS)
            found = [one for p in self._partitions.values() for one in p.windows.silent(retire_ms)]
        if not self._retire_days or self._is_behind():
            return []
        return [SilentZone(site=site, zone=one.zone, until_ms=one.until_ms) for site, one in found]

    def repeated_plans(self) -> list[PlanMessage]:
        """Yesterday's setpoints as plans, for zones whose settings say so; none while the log holds more."""
        if not self._repeats or self._is_behind():
            return []
        with self._changing:
            learners = [partition.learner for partition in self._partitions.values()]
            return [plan for learner in learners for plan in zone_answers.repeated_plans(learner, self._repeats)]

    def _owner_of_site(self, site: str) -> Partition | None:
        return next((p for p in self._partitions.values() if site in p.windows.sites), None)

    def _owner(self, site: str, zone: str) -> Partition | None:
        return next((p for p in self._partitions.values() if (site, zone) in p.learner.parts.rings.zones), None)
