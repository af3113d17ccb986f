"""Step 5 of the way of a reading: event time -> one row a zone and step; pure, without clock, files or threads.

The rows are a function of the partition's records alone. A site has one watermark, the newest event time among its
samples (none trusted beyond its receive time) less the lateness, and all its zones close a step together once the
watermark reaches the step's end. A site that stays silent closes by receive time: when ticks went by for ``idle_ms``
without any new event time, the watermark is also the tick's receive time less lateness and idle. That time is a
gateway's clock, which may be ahead: so event time goes on from the newest sample no faster than ticks do, until a
silence of ``LONG_SILENCE_MS``. Only ticks measure silence. If two ticks are further apart than ``idle_ms``, and than
ticks should be, nobody listened between them, and the silence is counted from the second one. So the queue that a
broker hands over after the gateway or the log was away is not taken for silence, and its samples are not late. Step,
lateness and idle time are the site's (:mod:`services.ingest.windows.site_rules`): events of the log change them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from edge.log import Record
from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import Metric
from services.ingest.windows.batch import Run, in_columns, take_runs
from services.ingest.windows.closed import Closed, Feed, PlacedRecord
from services.ingest.windows.headers import HeaderTable
from services.ingest.windows.seen_origins import SeenOrigins
from services.ingest.windows.site_rules import SiteRules
from services.ingest.windows.site_windows import GAP_MS, LONG_SILENCE_MS, SiteWindows
from services.ingest.windows.site_zones import Silent, Zones

__all__ = ["GAP_MS", "LONG_SILENCE_MS", "Closed", "PartitionWindows"]

_Places = list[PlacedRecord]


class _Part(NamedTuple):
    """Records that a site takes at once: its samples between two others of its records, or one other record."""

    site: SiteWindows
    places: _Places
    run: Run | None  # of samples: where they are in the batch


class PartitionWindows:
    """Rows of one partition's sites.

    ``primary`` gives, per site, metric -> device whose value is the zone's; in a zone without that device, and for
    any other metric, it is the median over sensors (of angles, the vector mean). A metric that a zone has no sensor
    of comes from ``_site``. ``metric.2`` is another sensor of ``metric``.
    """

    def __init__(
        self, step_ms: int, lateness_ms: int, idle_ms: int, vocabulary: Mapping[str, Metric],
        primary: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:  # fmt: skip
        self.channels = tuple(vocabulary)
        self.initial_ms = step_ms, lateness_ms, idle_ms
        self._vocabulary = vocabulary
        self._primary = primary or {}
        self._sites: dict[str, SiteWindows] = {}
        self._origins: dict[str, SeenOrigins] = {}  # of a site
        self._heads = HeaderTable()

    def feed(self, records: Sequence[Record]) -> Closed:
        """Take the next records of the partition, in order; what they close comes back in closing order.

        Rows, counts, dead letters and :meth:`state` do not depend on how records are cut into calls.
        """
        feed = Feed()
        of_site: defaultdict[str, _Places] = defaultdict(list)
        for place in enumerate(records):
            of_site[place[1].site].append(place)
        by_site = {
            name: stretches
            for name, places in of_site.items()
            if (stretches := _stretches(self._without_copies(name, places, feed), feed))
        }
        begun: list[tuple[int, str]] = []
        while by_site:
            waiting = self._walk({name: places[0] for name, places in by_site.items()}, begun, feed)
            left = {name: [waiting.get(name, []), *places[1:]] for name, places in by_site.items()}
            by_site = {name: stretches for name, places in left.items() if (stretches := [p for p in places if p])}
        for _, name in sorted(begun):
            self._sites[name] = self._sites.pop(name)  # in the order of their first records
        return feed.result()

    def _walk(self, by_site: Mapping[str, _Places], begun: list[tuple[int, str]], feed: Feed) -> dict[str, _Places]:
        """Take records of all sites, their samples in one batch. Returns the records that were not taken: the next walk
        must begin with them.

        Sites are independent of each other, so each takes its records by itself. Where samples change the numbering of
        a site's names, the rest of its records wait for the next walk, as the batch was numbered before the change.
        """
        parts = self._parts(by_site)
        records = [record for part in parts if part.run for _, record in part.places]
        try:
            batch = iter(take_runs(records, [part.run for part in parts if part.run], self._heads))
        except msgspec.DecodeError:
            return _without_corrupt(by_site, feed)
        waiting: dict[str, _Places] = {}
        for part in parts:
            site, samples = part.site, next(batch) if part.run else None
            if site.name in waiting:
                waiting[site.name] += part.places
                continue
            if part.run and samples:
                rest = part.places[site.samples(samples, part.places, feed) :]
                if rest or site.names is not part.run.names:
                    waiting[site.name] = rest
                    self._heads.forget()
            else:
                _take_other(site, part.places[0], feed)
            if site.begun and site.name not in self._sites:
                self._sites[site.name] = site
                begun.append((part.places[0][0], site.name))
        return waiting

    def _parts(self, by_site: Mapping[str, _Places]) -> list[_Part]:
        """The records in parts, those of a site in their order; their samples make one batch."""
        parts: list[_Part] = []
        batched = 0
        for name, places in by_site.items():
            site = self._sites.get(name) or self._new_site(name)
            for holds_samples, group in groupby(places, _holds_samples):
                together = list(group)
                if holds_samples:
                    run = Run(site.names, site.settings.grid, batched, batched + len(together))
                    batched = run.stop
                    parts.append(_Part(site, together, run))
                else:
                    parts += [_Part(site, [place], None) for place in together]
        return parts

    def watermark_ms(self, site: str) -> int | None:
        """The end of the newest closed step of a site, ``None`` before its first sample."""
        state = self._sites.get(site)
        return None if state is None else state.closed_ms

    def rules(self, site: str) -> SiteRules:
        """How a site's rows are made; raises ``KeyError`` before its first sample or change."""
        return self._sites[site].settings

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites seen so far."""
        return tuple(self._sites)

    @property
    def expected_zones(self) -> int:
        """How many zones have samples in rows that are still open, or were lately."""
        return sum(len(site.names.zones) - (SITE_ZONE in site.names.zones) for site in self._sites.values())

    def zones(self, site: str) -> Zones:
        """Which zones a site has, and which have left; raises ``KeyError`` before its first sample or change."""
        return self._sites[site].zones

    @property
    def left_ms(self) -> dict[tuple[str, str], int]:
        """(site, zone) of the zones that have left -> the end of the last row that each was in."""
        return {
            (name, zone): end_ms
            for name, site in self._sites.items()
            for zone, end_ms in site.zones.left_ms.items()
            if zone != SITE_ZONE
        }

    def has_left(self, site: str, zone: str, origin_ms: int) -> bool:
        """Whether a zone has left since the row that ends at ``origin_ms``."""
        return self._sites[site].zones.left_ms.get(zone, -1) >= origin_ms

    def silent(self, retire_ms: int) -> list[tuple[str, Silent]]:
        """The zones that have been silent for this long, by the time of ticks, each with its site; for ``_site`` see
        ``Zones``.
        """
        return [
            (name, silent)
            for name, site in self._sites.items()
            for silent in site.zones.silent()
            if silent.silent_ms >= retire_ms
        ]

    def first_row(self, site: str) -> tuple[int, int] | None:
        """The end of a site's oldest open row with a sample of a zone, and the event time at which it closes."""
        return self._sites[site].first_row

    def _without_copies(self, site: str, places: _Places, feed: Feed) -> _Places:
        """Those of a site's records that did not come before."""
        origins = [record.origin for _, record in places if record.origin is not None]
        if not origins:
            return places
        seen = self._origins.setdefault(site, SeenOrigins())
        if len(origins) == len(places) and seen.are_next(origins):
            return places
        kept = [place for place in places if (origin := place[1].origin) is None or seen.is_new(origin)]
        feed.other("copied", len(places) - len(kept))
        return kept

    def _new_site(self, name: str) -> SiteWindows:
        return SiteWindows(name, self.initial_ms, self._vocabulary, self._primary.get(name, {}))

    def state(self) -> dict[str, Any]:
        """Everything that the next :meth:`feed` depends on, as maps, lists and arrays."""
        return {
            "sites": {name: site.state() for name, site in self._sites.items()},
            "origins": {site: self._origins[site].state() for site in sorted(self._origins)},
        }

    def begin_with(self, state: Mapping[str, Any]) -> list[SiteRules]:
        """Begin with the settings that sites had in :meth:`state`, and with nothing else of it; gives them."""
        self._heads.forget()
        self._sites = {name: self._new_site(name) for name in state["sites"]}
        for name, site in self._sites.items():
            site.settings.load(state["sites"][name]["settings"])
        return [site.settings for site in self._sites.values()]

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken; raises ``KeyError`` if something is missing."""
        sites = {name: self._new_site(name) for name in state["sites"]}
        for name, site in sites.items():
            site.load(state["sites"][name])
        self._origins = {site: SeenOrigins(seen) for site, seen in state["origins"].items()}
        self._sites = sites
        self._heads.forget()


def _stretches(places: _Places, feed: Feed) -> list[_Places]:
    """A site's samples, ticks, plans and events, cut after each event, which may change how later ones are taken.

    Records of refusals are counted here, and left out.
    """
    if {record.kind for _, record in places} == {"samples"}:
        return [places]
    stretches: list[_Places] = [[]]
    for place in places:
        kind = place[1].kind
        if kind == "refused":
            feed.refused(place)
            continue
        if kind in ("plan", "event"):
            feed.other(kind)
        stretches[-1].append(place)
        if kind == "event":
            stretches.append([])
    return [stretch for stretch in stretches if stretch]


def _take_other(site: SiteWindows, place: PlacedRecord, feed: Feed) -> None:
    """Take a plan, a tick or an event, at the time that it is for the site before that."""
    record, now_ms = place[1], site.now_ms(place[1].receive_ms)
    if record.kind == "plan":
        feed.plan(place, site.closed_ms, now_ms)
    elif record.kind == "tick":
        site.tick(place, feed)
        feed.mark(place, now_ms)
    else:
        feed.mark(place, now_ms, site.event(place, feed))


def _holds_samples(place: PlacedRecord) -> bool:
    return place[1].kind == "samples"


def _without_corrupt(by_site: Mapping[str, _Places], feed: Feed) -> dict[str, _Places]:
    """The same records without those that cannot be decoded or hold no sample; the samples that stay are in columns."""
    left: dict[str, _Places] = {}
    for name, places in by_site.items():
        for at, record in places:
            try:
                kept = in_columns(record) if record.kind == "samples" else record
            except msgspec.DecodeError as error:
                feed.corrupt((at, record), str(error))
                continue
            if kept is not None:
                left.setdefault(name, []).append((at, kept))
    return left
