"""Step 9 of the way of a reading: what one API replica knows, ready to be sent.

The view takes the live state's changes and keeps each zone's answer as bytes, so that ``GET /predict`` only looks up
and sends. How old a forecast is, the stream of its site says (:mod:`services.serve.site_streams`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any

import msgspec

from models.features.report_gaps import silent_after_s
from services.ingest.figures import ShardFigures
from services.messages import STILL_READ, LiveEvent, ModelRow, ShownAlerts, ZoneForecast
from services.messages.sentences import codes_of
from services.observe.duration import in_words
from services.serve.components import Figures, left_in, shards_of
from services.serve.live_state import LiveStateChanges
from services.serve.problem_error import ProblemError
from services.serve.site_streams import SiteStreams

__all__ = ["ReadyForecast", "View", "input_age_s", "usable_for_s"]


@dataclass(frozen=True, slots=True)
class ReadyForecast:
    """A zone's newest forecast and the bytes that say it."""

    forecast: ZoneForecast
    body: bytes
    input_age_s: float  # of the freshest target's newest reading, at the origin


class View:
    """Built from the live states' changes; ``clock_s`` is monotonic. Not shared between threads.

    A live stream moves at least once a step; ``quiet_after_s`` is the wall time without that from which answers say
    so, at the latest when they are refused for it. ``wall_ms`` is given where receive times are those of the wall
    clock. Of the first ``live_states``, and of so many ``shards``, it waits to hear what they know.
    """

    def __init__(
        self, stale_after_s: float, quiet_after_s: float, clock_s: Callable[[], float],
        wall_ms: Callable[[], int] | None = None, live_states: int = 0, shards: int = 0,
    ) -> None:  # fmt: skip
        self._stale_after_s = stale_after_s
        self._quiet_after_s = min(quiet_after_s, stale_after_s)
        self._clock_s = clock_s
        self._streams = SiteStreams(stale_after_s, clock_s, wall_ms)
        self._unheard, self._awaited_shards = set(range(live_states)), shards
        self.versions: defaultdict[int, int] = defaultdict(int)  # live state -> the version that is known
        self.answers: dict[tuple[str, str], ReadyForecast] = {}
        self.stats: dict[str, Figures] = {}
        self._told_s: dict[str, float] = {}
        self._teller: dict[str, int] = {}  # component -> the live state that has its figures
        self.models: list[ModelRow] = []
        self.events: list[LiveEvent] = []
        self.alerts = ShownAlerts()
        self._by_zone: dict[str, list[tuple[str, str]]] = {}
        self._shards: dict[str, ShardFigures] = {}  # their newest figures, also in a view of some sites
        self._only: frozenset[str] | None = None

    def of_sites(self, sites: frozenset[str] | None) -> View:
        """A view as if there were these sites alone, without what is about the system; it does not follow the live
        state. ``None`` is all sites: the view itself.
        """
        if sites is None:
            return self
        view = copy(self)
        view._only = sites
        view.answers = {key: answer for key, answer in self.answers.items() if key[0] in sites}
        view.stats, view.events = {}, []
        view.alerts = ShownAlerts({id: alert for id, alert in self.alerts.items() if alert["site"] in sites})
        view._by_zone = {}
        for key in view.answers:
            view._by_zone.setdefault(key[1], []).append(key)
        view._streams = self._streams.of_sites(sites)
        return view

    def has(self, site: str) -> bool:
        """Whether it is about a site."""
        return self._only is None or site in self._only

    def component_age_s(self) -> dict[str, float]:
        """Component -> seconds since it last told its figures."""
        now_s = self._clock_s()
        return {component: round(now_s - told_s, 3) for component, told_s in self._told_s.items()}

    def stats_of(self, live_states: Collection[int]) -> dict[str, Figures]:
        """Component -> figures, of the components whose figures one of these live states has."""
        return {name: figures for name, figures in self.stats.items() if self._teller.get(name, 0) in live_states}

    def take(self, changes: LiveStateChanges) -> None:
        """Apply what a live state says; what others said stays."""
        index = changes.get("live_state", 0)
        self.versions[index] = changes["version"]
        self._unheard.discard(index)
        now_s = self._clock_s()
        for forecast in changes.get("forecasts", ()):
            key = (forecast["site"], forecast["zone"])
            before = self.answers.get(key)
            if before is None:
                self._by_zone.setdefault(forecast["zone"], []).append(key)
            is_new = before is None or forecast["origin_ms"] > before.forecast["origin_ms"]
            self.answers[key] = ReadyForecast(forecast, _said(forecast, forecast["degraded"]), input_age_s(forecast))
            self._streams.row(key[0], forecast["origin_ms"], is_new)
        for component, figures in changes.get("stats", {}).items():
            self.stats[component] = figures
            self._told_s[component], self._teller[component] = now_s, index
        shards = shards_of(changes.get("stats", {}))
        self._shards.update(shards)
        for figures in shards.values():
            for left in left_in(figures):
                self._take_off((left["site"], left["zone"]), left["left_ms"])
            self._streams.figures(figures)
        self.alerts.take(changes.get("alerts", ()))
        self.models = changes.get("models", self.models)
        self.events = changes.get("events", self.events)

    def find(self, zone: str, site: str | None = None) -> tuple[str, str]:
        """The ``(site, zone)`` that a client means by ``zone``, ``site/zone``, or both parameters.

        Raises a problem as :meth:`absent`, which names the zones there are, or a 422 problem where several sites have
        such a zone.
        """
        of_site, _, name = zone.rpartition("/")
        if of_site and site in (None, of_site):
            site, zone = of_site, name
        found = (
            self._by_zone.get(zone, [])
            if site is None
            else [key for key in self._by_zone.get(zone, []) if key[0] == site]
        )
        if len(found) == 1:
            return found[0]
        if found:
            choices = sorted("/".join(key) for key in found)
            raise ProblemError(
                422, f"several sites have a zone {zone}: ask for one of {', '.join(choices)}", zones=choices
            )
        known = sorted("/".join(key) for key in self.answers)
        named = f"{site}/{zone}" if site is not None else zone
        listed = f"; known are {', '.join(known[:20])}" if known else "; no zone has a forecast yet"
        if self._has_left(zone, site):
            raise ProblemError(
                404, f"the zone {named[:140]} has left and comes back with its next sample{listed}", zones=known
            )
        if self._is_known(zone, site):
            raise ProblemError(
                503, f"the zone {named[:140]} has no forecast yet; try again in a few seconds", {"Retry-After": "5"}
            )
        raise self.absent(f"there is no zone {named[:140]}{listed}", zones=known)

    def absent(self, detail: str, status: int = 404, **more: Any) -> ProblemError:
        """The problem of what there is not; of 503 until every live state and shard has said what there is."""
        if self._unheard:
            return ProblemError(
                503, "the live state does not answer now; try again in a few seconds", {"Retry-After": "5"}
            )
        if len(self._shards) < self._awaited_shards:
            return ProblemError(503, "the shards have not reported yet", {"Retry-After": "5"})
        return ProblemError(status, detail, **more)

    def body(self, key: tuple[str, str]) -> bytes:
        """The JSON answer for a zone. Raises a 503 problem with the reason where its forecast is too old."""
        answer, is_stale = self.answers[key], self.is_stale(key)
        if not is_stale and self._streams.quiet_s(key[0]) <= self._quiet_after_s:
            return answer.body
        degraded = self.degraded(key)
        if is_stale:
            raise ProblemError(
                503,
                f"the forecast of {'/'.join(key)} is too old to be used: {degraded[-1]}",
                {"Retry-After": "30"},
                origin=answer.forecast["origin"],
                degraded=degraded,
            )
        return _said(answer.forecast, degraded)

    def is_stale(self, key: tuple[str, str]) -> bool:
        """Whether a zone's forecast is too old to be used."""
        return self._is_old(key) or self._streams.quiet_s(key[0]) > self._stale_after_s

    def degraded(self, key: tuple[str, str]) -> list[str]:
        """Why a zone's forecast is worth less than it should be; empty when all is well."""
        (site, _), answer = key, self.answers[key]
        row_age_s, quiet_s = self._row_age_s(key), self._streams.quiet_s(site)
        reasons = list(answer.forecast["degraded"])
        if row_age_s > self._stale_after_s and self._streams.backlog(site):
            # Most rows get no forecast then, so that the age of the newest reading would only frighten.
            reasons.append(STILL_READ)
        elif self._is_old(key):
            reasons.append(f"the newest reading is {in_words(row_age_s + answer.input_age_s)} old")
        if quiet_s > self._quiet_after_s:
            reasons.append(f"nothing has come from this site for {in_words(quiet_s)}")
        return reasons

    def stream_ms(self, site: str) -> int | None:
        """How far a site's stream has got; ``None`` for one of which nothing came."""
        return self._streams.reached_ms(site)

    @property
    def sites(self) -> list[str]:
        """The sites of which something came."""
        return self._streams.sites

    def find_site(self, site: str) -> str:
        """A site of which something came; raises a problem as :meth:`absent`, which names those there are."""
        known = self.sites
        if site not in known:
            listed = ", ".join(known[:20]) or "none yet"
            raise self.absent(f"there is no site {site[:64]}; known are {listed}", sites=known)
        return site

    def behind(self, site: str) -> bool:
        """Whether the site's shard is reading what has piled up in the log, as after a start or an import."""
        return self._streams.behind(site)

    def goes_on(self, key: tuple[str, str]) -> bool:
        """Whether the zone has a usable forecast, or has to wait for one only because its stream has come forward over
        a gap or a backlog: a row of what comes now closes soon.
        """
        is_quiet = self._streams.quiet_s(key[0]) > self._stale_after_s
        return not is_quiet and (self._streams.has_just_resumed(key[0]) or not self.is_stale(key))

    def _take_off(self, key: tuple[str, str], left_ms: int) -> None:
        answer = self.answers.get(key)
        if answer is not None and answer.forecast["origin_ms"] <= left_ms:
            del self.answers[key]
            self._by_zone[key[1]].remove(key)

    def _has_left(self, zone: str, site: str | None) -> bool:
        left = [one for figures in self._shards.values() for one in left_in(figures)]
        return self._is_among([(one["site"], one["zone"]) for one in left], zone, site)

    def _is_known(self, zone: str, site: str | None) -> bool:
        """Whether a shard has such a zone, with a forecast or without."""
        names = [name.partition("/") for figures in self._shards.values() for name in figures.get("zones", ())]
        return self._is_among([(of, name) for of, _, name in names], zone, site)

    def _is_among(self, keys: Iterable[tuple[str, str]], zone: str, site: str | None) -> bool:
        return any(name == zone and site in (None, of) and self.has(of) for of, name in keys)

    def _row_age_s(self, key: tuple[str, str]) -> float:
        """How long ago the row of a zone's forecast ended, by the clock of its site's stream."""
        return self._streams.age_s(key[0], self.answers[key].forecast["origin_ms"])

    def _is_old(self, key: tuple[str, str]) -> bool:
        """Whether no row came for too long, or no reading, of which some zones have few."""
        answer, row_age_s = self.answers[key], self._row_age_s(key)
        reading_age_s, usable_s = row_age_s + answer.input_age_s, usable_for_s(answer.forecast, self._stale_after_s)
        return row_age_s > self._stale_after_s or reading_age_s > usable_s


def usable_for_s(forecast: ZoneForecast, stale_after_s: float) -> float:
    """How old the newest reading of a forecast may get: longer where the zone's sensors report seldom."""
    return silent_after_s(forecast["reports_every_s"], stale_after_s)


def input_age_s(forecast: ZoneForecast) -> float:
    """Age of the freshest reading among the targets, at the origin; 0 where the forecast carries no freshness."""
    ages = [forecast["freshness_s"].get(target) for target in forecast["forecasts"]]
    known = [age for age in ages if age is not None]
    return min(known, default=0.0)


def _said(forecast: ZoneForecast, degraded: list[str]) -> bytes:
    if not degraded:
        return msgspec.json.encode({**forecast, "degraded": degraded})
    return msgspec.json.encode({**forecast, "degraded": degraded, "codes": codes_of(degraded)})
