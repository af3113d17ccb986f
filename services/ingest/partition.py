"""Steps 5, 7, 8 and 10 of the way of a reading for one partition: its windows, rings, learners and live scores.

Windows, rings and counts are a function of the partition's records. Learners and live scores are a function of these
and of the forecasts that were issued: what the network said, what became of it, and after which row. All of that is
kept before a forecast is published, and :meth:`Partition.state` holds the rest, so that a shard that continues from a
snapshot goes on as if it had never stopped. Steps that were waiting at a crash are forecast after it, and count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.log import Record
from edge.wire.topic import SITE_ZONE
from models.effects.seen_changes import same_clock, seen_columns
from models.features.inputs import day_bins, sun_sine, targets_of
from models.features.plans import BIN_MS
from models.online.basis import Basis
from models.online.online_forecaster import OnlineForecaster
from models.spec import ForecastSpec, Place
from models.trees.forest import Forest
from services.ingest.alerts.partition_alerts import PartitionAlerts
from services.ingest.alerts.zone_look import PartitionView
from services.ingest.forecast_book import ForecastBook
from services.ingest.forecasting import ForecastOrigin
from services.ingest.learned.learned_parts import LearnedParts, loaded
from services.ingest.paths.outlook import night_at
from services.ingest.paths.zone_question import DAY_MS
from services.ingest.plans.intake import PartitionPlans
from services.ingest.plans.refused import refused_plans
from services.ingest.tuning.example_intake import ExampleIntake
from services.ingest.windows.partition_windows import PartitionWindows
from services.ingest.windows.site_zones import Silent
from services.messages import FirstRow
from services.store.forecasts import IssuedForecast
from services.store.rows import DeadLetter, SiteStep

__all__ = ["Partition"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]


class Partition:
    """State of one partition before the record at ``offset``; starts empty, at offset 0."""

    def __init__(
        self, number: int, spec: ForecastSpec, windows: PartitionWindows, ring_steps: int,
        place_of: Callable[[str], Place], *, fine_tunes: bool = False,
    ) -> None:  # fmt: skip
        """With ``fine_tunes`` it keeps examples, and may be given a network that was trained on them."""
        self.number, self.offset = number, 0
        self._fine_tunes = fine_tunes
        self.spec, self.place_of = spec, place_of
        self.windows = windows
        self.plans, self.examples = PartitionPlans(), ExampleIntake()
        self._ring_steps = ring_steps
        self.learned = LearnedParts(spec, place_of, ring_steps, fine_tunes=fine_tunes)
        self.alerts = self._new_alerts()
        self.counts: Counter[str] = Counter()  # accepted, duplicates, late, rows, zone_rows, forecasts ...
        self.rejected: Counter[str] = Counter()
        self.values_refused: Counter[str] = Counter()
        self.dead_letters: list[DeadLetter] = []  # not yet durable
        self.latest: dict[str, SiteStep] = {}  # the newest closed step of each site
        self.stream_ms: dict[str, int] = {}  # receive time of the newest record of each site
        self.kept_ms: dict[str, int] = {}  # rows up to here are in the history and better than what is left of the log
        self._bases: dict[str, Basis] = {}  # of the newest rows of each site
        self.issued = ForecastBook(spec.step_ms)
        self.revision = 0  # rises with each change of what is learned (see snapshots.parts.LEARNED)

    @property
    def forecaster(self) -> OnlineForecaster:
        """The forecaster of its zones."""
        return self.learned.forecaster

    def take(self, records: Sequence[Record], origins_a_site: int) -> tuple[list[SiteStep], list[ForecastOrigin]]:
        """:meth:`feed`, :meth:`prepare`, then :meth:`learn`."""
        steps = self.feed(records)
        self.prepare()
        return self.learn(steps, origins_a_site)

    def prepare(self) -> None:
        """Prepare room for the first rows of many zones, which mostly close at once, so that they do not wait for
        memory.
        """
        self.learned.prepare(self.windows.expected_zones)

    def feed(self, records: Sequence[Record]) -> list[SiteStep]:
        """Put the next records into windows; the steps that they closed, to be given to :meth:`learn` before the next.

        Nothing that is learned changes.
        """
        closed = self.windows.feed(records)
        self.offset = records[-1].offset + 1
        self.stream_ms.update({record.site: record.receive_ms for record in records})
        self.dead_letters += closed.dead_letters
        self.rejected.update(closed.rejected)
        self.values_refused.update(closed.values_refused)
        self.counts.update(accepted=closed.accepted, duplicates=closed.duplicates, late=closed.late)
        self.counts.update({f"{kind}_records": n for kind, n in closed.other_records.items()})
        self.counts.update(refused_plans(closed.plans_refused, closed.plan_metrics_refused))
        self.dead_letters += self.plans.feed(closed.plans)
        self.alerts.feed(closed.marks)
        return closed.steps

    def learn(
        self, steps: list[SiteStep], origins_a_site: int, pause: Callable[[], None] = lambda: None
    ) -> tuple[list[SiteStep], list[ForecastOrigin]]:
        """Take closed steps, with a ``pause`` before each, in which questions may be answered. Returns them, and the
        origins of each site's last ``origins_a_site`` steps.
        """
        left = Counter(step.site for step in steps)
        origins = []
        for number, step in enumerate(steps):
            pause()
            self._take_marks(number)
            self._take_plans(self.plans.before_row(step.site, step.end_ms))
            self.counts.update(rows=len(step.devices), zone_rows=len(step.zones), steps=1)
            left[step.site] -= 1
            self.issued.begin_row(step.site, step.end_ms)
            if step.step_ms != self.spec.step_ms:
                continue  # its site's settings were changed: nothing is forecast until ours follow
            self._learn(step)
            self.alerts.row(self.latest[step.site], self.offset - 1)
            # What was issued before a crash is not asked for again, but for the newest, which is shown as it was.
            is_issued = left[step.site] and self.issued.has_before(step.site, step.end_ms)
            if left[step.site] < origins_a_site and step.zones and not is_issued:
                origins.append(self.origin(step.site))
        self._take_marks(len(steps))
        self._take_plans(self.plans.take_rest())
        return steps, origins

    def _take_marks(self, steps: int) -> None:
        """Apply the ticks and orders of the read that came before its closed step number ``steps``."""
        self.dead_letters += self.alerts.take(steps, self._view)
        self.counts.update(self.alerts.counts)
        self.alerts.counts.clear()

    @property
    def _view(self) -> PartitionView:
        mine = self.learned
        return PartitionView(mine.forecaster, mine.paths, mine.rings, self.plans, mine.watch, self.latest, self._bases)

    def _take_plans(self, letters: Sequence[DeadLetter]) -> None:
        self.dead_letters += letters
        self.revision += bool(self.plans.counts)
        self.counts.update(self.plans.counts)
        self.plans.counts.clear()

    def _learn(self, step: SiteStep) -> None:
        """Take a closed step; what was issued of it before a crash then counts again."""
        before = self.latest.get(step.site)
        self.latest[step.site] = step
        self.examples.know(step.site, step.zones)
        if not step.zones:
            return
        self.revision += 1
        mine = self.learned
        self._catch_up(step, () if before is None else before.zones)
        indices, day_bin = self._indices(step), self._day_bins(step.site, step.end_ms, len(step.zones))
        step = self.latest[step.site] = mine.watch.without_faults(step, indices, day_bin)
        targets = targets_of(step.values, self.spec)
        mine.rings.write(indices, step.end_ms, step.values)
        mine.past.write(indices, step.end_ms, targets)
        self._see_changes(step.site, indices, step.end_ms)
        plans = self.plans.of(step.site)
        ahead = None if plans is None else plans.ahead(step.end_ms, step.zones, self.spec)
        number, sun = self._number(step.end_ms), self._sun(step)
        learned = self.forecaster.learn(indices, number, step.values, day_bin, sun, ahead)
        tuned = self.forecaster.corrections.tuned
        if tuned and (shown := tuned.shown) is not None:
            names = dict(zip(indices.tolist(), step.zones, strict=True))
            self.examples.take(step.site, step.end_ms, [names[index] for index in shown.zones.tolist()], shown)
        mine.watch.learn(step, indices, learned.errors)
        mine.paths.learn(self.forecaster, learned, night_at(self.place_of(step.site), step.end_ms, self.spec))
        self._bases[step.site] = Basis(learned.step, learned.zones, learned.day_bin, learned.experts)
        mine.scores.learn(indices, targets)
        self.plans.after_row(step.site, step.end_ms)
        for forecast in self.issued.take_waiting(step.site, step.end_ms):
            self._count(forecast)

    def _see_changes(self, site: str, indices: I64, end_ms: int) -> None:
        """Count the changes of setpoints and weather from one day to the next, at the end of each half-hour."""
        length = max(BIN_MS // self.spec.step_ms, 1)
        half_ms = length * self.spec.step_ms
        if end_ms % half_ms or not same_clock(self.place_of(site), end_ms - half_ms, end_ms):
            return
        at = np.full(len(indices), end_ms, np.int64)
        today, before = (self.learned.rings.window(indices, at - back, length) for back in (0, DAY_MS))
        self.learned.seen_changes.learn(indices, *(seen_columns(rows, self.spec.channels) for rows in (today, before)))

    def _catch_up(self, step: SiteStep, before: Sequence[str]) -> None:
        """Tell live scores how many rows a zone missed that had left and is back: they count rows, not steps."""
        for zone in set(step.zones) - set(before):
            index = self.learned.rings.known(step.site, zone)
            newest_ms = None if index is None else self.learned.rings.newest_ms(index)
            if index is not None and newest_ms is not None:
                missed = self._number(step.end_ms) - self._number(newest_ms) - 1
                self.learned.scores.skip(np.array([index], np.int64), missed)

    def has_left(self, site: str, zone: str, origin_ms: int) -> bool:
        """Whether a zone has left since the row that ends at ``origin_ms``."""
        return self.windows.zones(site).left_ms.get(zone, -1) >= origin_ms

    @property
    def left_ms(self) -> dict[tuple[str, str], int]:
        """(site, zone) of the zones that have left -> the end of the last row that each was in."""
        found = {}
        for site in self.windows.sites:
            for zone, end_ms in self.windows.zones(site).left_ms.items():
                if zone != SITE_ZONE:
                    found[site, zone] = end_ms
        return found

    @property
    def zones(self) -> list[tuple[str, str]]:
        """(site, zone) of the zones that are there, in the order in which they first came."""
        left = self.left_ms
        return [zone for zone in self.learned.rings.zones if zone not in left]

    def first_rows(self) -> list[FirstRow]:
        """The first row of each site that has samples of zones and no row of them yet."""
        waiting = [site for site in self.windows.sites if site not in self.latest or not self.latest[site].zones]
        rows = {site: row for site in waiting if (row := self.windows.first_row(site)) is not None}
        return [FirstRow(site=site, end_ms=end, closes_ms=closes) for site, (end, closes) in rows.items()]

    def faults_now(self) -> int:
        """How many sensors of the zones that are there are faulty now."""
        zones = list(self.zones)
        indices = np.array([self.learned.rings.index(*zone) for zone in zones], np.int64)
        return self.learned.watch.faults_now(indices, {site for site, _ in zones})

    def silent(self, retire_ms: int) -> list[tuple[str, Silent]]:
        """The zones that have been silent for this long, by the time of ticks, each with its site; for ``_site`` see
        ``Zones``.
        """
        return [
            (site, silent)
            for site in self.windows.sites
            for silent in self.windows.zones(site).silent()
            if silent.silent_ms >= retire_ms
        ]

    def origin(self, site: str) -> ForecastOrigin:
        """The origin of a site's newest step."""
        step, basis = self.latest[site], self._bases[site]
        targets = targets_of(step.values, self.spec)
        baseline = self.forecaster.climatology.predict(basis.zones, targets, basis.day_bin)
        return ForecastOrigin(
            self.number, site, step.end_ms, step.zones, basis.zones, step.values, step.ages_s, baseline,
            basis.day_bin, basis.experts, self._weaknesses(step),
        )  # fmt: skip

    def _weaknesses(self, step: SiteStep) -> Sequence[Sequence[str]]:
        """Why the zones' forecasts are weaker than they should be, besides old readings: sensor faults, stale plans."""
        stale = self.plans.stale(step.site, step.end_ms)
        if not stale:
            return step.faults
        faults = step.faults or [()] * len(step.zones)
        of_site = stale.get("", [])
        return [[*said, *stale.get(zone, ()), *of_site] for zone, said in zip(step.zones, faults, strict=True)]

    def answer(self, origin: ForecastOrigin, version: str, network: F32 | None) -> IssuedForecast:
        """The forecast from an origin, learned from when its truth comes; ``network [Z, H, M]`` is its median.

        The newest forecast of an origin counts. Keep it, then pass it to :meth:`put_issued`, before the next row is
        taken. What was issued of the origin before a crash, by the same version, stays as it was.
        """
        before = self.issued.of_before(origin, version)
        if before is not None:
            return before
        self.revision += 1
        quantiles = self.forecaster.predict(origin.basis(self.spec.step_ms), network)
        climatology = origin.baseline[..., 1]
        if network is None:
            network = np.full_like(climatology, np.nan)
        age_steps = self._number(self.latest[origin.site].end_ms - origin.end_ms)
        return IssuedForecast(
            origin.site, origin.end_ms, version, origin.zones, quantiles, network, climatology, age_steps
        )

    def was_shown(self, origin: ForecastOrigin, forecast: IssuedForecast) -> bool:
        """Whether a forecast was shown before a crash, and newer rows have closed since it was issued.

        A path that is drawn now would differ from the one that was shown, as learners have learned from those rows.
        """
        newer_ms = self.latest[origin.site].end_ms - origin.end_ms - forecast.age_steps * self.spec.step_ms
        return newer_ms > 0 and self.issued.of_before(origin, forecast.version) is not None

    def put_issued(self, origin: ForecastOrigin, forecast: IssuedForecast) -> None:
        """Remember what :meth:`answer` gave and was kept, for live scores and questions about it."""
        if self.issued.of_before(origin, forecast.version) is None:
            self._score(origin.indices, forecast)
        self.issued.put(origin, forecast)

    def expect(self, forecasts: Sequence[IssuedForecast]) -> None:
        """Take a site's forecasts of before a crash, the newest issued last. Each that was issued after the snapshot is
        learned from again, once the replay has reached the row after which it was issued.
        """
        for forecast in forecasts:
            if self.issued.expect(forecast, self.latest[forecast.site].end_ms):
                self._count(forecast)  # perhaps the snapshot knows it: once more changes nothing

    def path(self, origin: ForecastOrigin, quantiles: F32) -> F32:
        """The path of an issued forecast from an origin, ``[Z, T, M, Q]`` at the times of ``paths.knots``."""
        step = self._number(origin.end_ms)
        return self.forecaster.path(origin.indices, step, origin.day_bin, quantiles, self.learned.paths.knots)

    def grow_trees(self, forest: Forest) -> None:
        """Use these trees from now on."""
        self.revision += 1
        self.forecaster.forest = forest

    def tune(self, arrays: Mapping[str, F32]) -> None:
        """Follow this network, which was fine-tuned, from the next example on; none where there are no arrays."""
        self.revision += 1
        self.forecaster.tune(arrays)

    def state(self) -> dict[str, Any]:
        """Everything but the dead letters, by parts (``services.ingest.snapshots.parts``). The arrays of those that
        are learned are good until something is learned or issued, the others until the next record.
        """
        return {
            "windows": self.windows.state(),
            "figures": {
                "counts": dict(sorted(self.counts.items())), "rejected": dict(sorted(self.rejected.items())),
                "values_refused": dict(sorted(self.values_refused.items())),
                "stream_ms": dict(self.stream_ms), "kept_ms": dict(self.kept_ms),
            },
            "newest": {
                "zones": [list(zone) for zone in self.learned.rings.zones],
                "latest": [
                    {"site": s.site, "end_ms": s.end_ms, "zones": list(s.zones), "values": s.values,
                     "ages_s": s.ages_s, "faults": [list(said) for said in s.faults]}
                    for s in self.latest.values()
                ],
            },
            **self.learned.state(),
            "bases": {
                site: {"day_bin": basis.day_bin, "experts": basis.experts} for site, basis in self._bases.items()
            },
            "plans": self.plans.state(), "alerts": self.alerts.state(self.offset),
        }  # fmt: skip

    def load(self, offset: int, parts: Mapping[str, Any]) -> dict[str, str]:
        """Continue from a snapshot's parts. Those of ``LEARNED`` may be missing; it gives these, and why others of
        them do not fit: they are as of a new partition, and their zones are those of the snapshot.
        """
        self.offset = offset
        self.windows.load(parts["windows"])
        figures, newest = parts["figures"], parts["newest"]
        self.counts, self.rejected = Counter(figures["counts"]), Counter(figures["rejected"])
        self.values_refused = Counter(figures["values_refused"])
        self.stream_ms, self.kept_ms = dict(figures["stream_ms"]), dict(figures["kept_ms"])
        self.latest = {
            s["site"]: SiteStep(
                self.number, s["site"], s["end_ms"], tuple(s["zones"]), s["values"], s["ages_s"],
                faults=tuple(tuple(said) for said in s["faults"]),
            )
            for s in newest["latest"]
        }  # fmt: skip
        missing: dict[str, str] = {}
        self.learned.load(parts, missing)
        self.plans = loaded(parts, "plans", PartitionPlans, PartitionPlans.load, missing)
        self.alerts = loaded(parts, "alerts", self._new_alerts, PartitionAlerts.load, missing)
        self.know([(site, zone) for site, zone in newest["zones"]])
        for step in self.latest.values():
            self.examples.know(step.site, step.zones)
        for site, basis in parts.get("bases", {}).items():
            step = self.latest[site]
            if len(basis["day_bin"]) == len(step.zones):
                self._bases[site] = Basis(self._number(step.end_ms), self._indices(step), **basis)
        return missing

    def newest_origins(self) -> list[ForecastOrigin]:
        """The origins of the sites' newest rows, except for sites of which nothing was learned since they were lost."""
        return [self.origin(step.site) for step in self.latest.values() if step.zones and step.site in self._bases]

    def _new_alerts(self) -> PartitionAlerts:
        return PartitionAlerts(self.spec, self.place_of)

    def grown_again(self, zones: Sequence[tuple[str, str]]) -> Partition:
        """A new partition for :meth:`adopt` to take parts from, which knows ``zones`` by the same numbers."""
        other = Partition(
            self.number, self.spec, self.windows, self._ring_steps, self.place_of, fine_tunes=self._fine_tunes
        )
        other.know(zones)
        return other

    def know(self, zones: Sequence[tuple[str, str]]) -> None:
        """Let every part know these zones, by these numbers; those that it knows come first among them."""
        self.learned.add_zones(zones)

    def replay(self, step: SiteStep, issued: Sequence[IssuedForecast]) -> None:
        """Learn from a row of the history, and from the forecasts that were issued when it was the newest."""
        for forecast in issued:
            self.issued.wait(forecast, step.end_ms)
        self._learn(step)

    def adopt(self, other: Partition, parts: Collection[str]) -> None:
        """Take what ``other`` has learned; ``parts`` as in ``snapshots.parts.LEARNED``."""
        self.revision += 1
        self.learned.adopt(other.learned, parts)
        if "forecaster" in parts:
            self.examples.kept += other.examples.kept
        if {"forecaster", "bases"} & set(parts):
            self._bases = {
                site: basis for site, basis in other._bases.items()
                if basis.step == self._number(self.latest[site].end_ms)
                and len(basis.zones) == len(self.latest[site].zones)
            }  # fmt: skip
        if "plans" in parts:
            self.plans = other.plans

    def _count(self, forecast: IssuedForecast) -> None:
        """Learn from a forecast of before a crash, as if it had been issued now, after the newest row."""
        self.revision += 1
        indices = [self.learned.rings.index(forecast.site, zone) for zone in forecast.zones]
        zones, median = np.array(indices, np.int64), forecast.quantiles[..., 1]
        self.forecaster.remember(zones, self._number(forecast.origin_ms), median, forecast.network)
        self._score(zones, forecast)

    def _score(self, indices: I64, forecast: IssuedForecast) -> None:
        """Let live scores wait for its truth; not for zones that have left since, which have no rows to count by."""
        newest = self.latest[forecast.site].zones
        there = np.array([zone in newest for zone in forecast.zones], bool)
        quantiles, climatology = forecast.quantiles[there], forecast.climatology[there]
        self.learned.scores.issue(indices[there], quantiles, climatology, forecast.age_steps)

    def _indices(self, step: SiteStep) -> I64:
        indices = [self.learned.rings.index(step.site, zone) for zone in step.zones]
        if len(self.learned.rings.zones) > len(self.forecaster):
            self.know(self.learned.rings.zones)
        return np.array(indices, np.int64)

    def _number(self, ms: int) -> int:
        return ms // self.spec.step_ms

    def _day_bins(self, site: str, end_ms: int, count: int) -> I64:
        return np.repeat(day_bins(self.place_of(site), np.array([end_ms], np.int64), self.spec), count)

    def _sun(self, step: SiteStep) -> F32:
        """``[Z, 1 + H]``, now and at each horizon."""
        ahead = np.array((0, *self.spec.horizon_steps), np.int64) * self.spec.step_ms
        sine = sun_sine(self.place_of(step.site), step.end_ms + ahead)
        return np.broadcast_to(sine, (len(step.zones), len(ahead)))
