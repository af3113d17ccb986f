"""Steps 7, 8 and 10 of the way of a reading for one partition: what it learns from closed steps, and what it forecasts.

All of it is a function of the rows and of the forecasts that were issued: what the network said, what became of it, and
after which row. So what a snapshot has lost can be grown again: a learner beside this one gets the same rows and
forecasts (``services.ingest.snapshots.regrow``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from models.durations import DAY_MS
from models.effects.seen_changes import same_clock, seen_columns
from models.features.inputs import day_bins, sun_sine, targets_of
from models.features.plans import BIN_MS
from models.online.basis import Basis
from models.online.online_forecaster import OnlineForecaster
from models.spec import ForecastSpec, Place
from models.trees.forest import Forest
from services.ingest.forecast_book import ForecastBook
from services.ingest.forecasting import ForecastOrigin
from services.ingest.learned.example_intake import ExampleIntake
from services.ingest.learned.learned_parts import LearnedParts, loaded
from services.ingest.paths.outlook import night_at
from services.ingest.plans.intake import PartitionPlans
from services.store.forecasts import IssuedForecast
from services.store.rows import ClosedStep, SiteStep

__all__ = ["PartitionLearner"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]


class PartitionLearner:
    """Knows nothing at first. Rows of a site come in their order.

    With ``fine_tunes`` it keeps examples, and may be given a network that was trained on them.
    """

    def __init__(
        self, partition: int, spec: ForecastSpec, ring_steps: int, place_of: Callable[[str], Place],
        *, fine_tunes: bool = False,
    ) -> None:  # fmt: skip
        self.spec, self.place_of = spec, place_of
        self._partition, self._ring_steps, self._fine_tunes = partition, ring_steps, fine_tunes
        self.parts = LearnedParts(spec, place_of, ring_steps, fine_tunes=fine_tunes)
        self.plans, self.examples = PartitionPlans(), ExampleIntake()
        self.latest: dict[str, SiteStep] = {}  # the newest closed step of each site
        self.bases: dict[str, Basis] = {}  # of the newest rows of each site
        self.issued = ForecastBook(spec.step_ms)
        self.revision = 0  # rises with each change of what is learned (see snapshots.parts.LEARNED)

    @property
    def forecaster(self) -> OnlineForecaster:
        """The forecaster of the partition's zones."""
        return self.parts.forecaster

    def learn(self, step: ClosedStep) -> None:
        """Take a closed step; what was issued of it before a crash then counts again."""
        before, step = self.latest.get(step.site), step.made()
        self.latest[step.site] = step
        self.examples.know(step.site, step.zones)
        if not step.zones:
            return
        self.revision += 1
        parts = self.parts
        self._skip_missed_rows(step, () if before is None else before.zones)
        indices, day_bin = self._indices(step), self._day_bins(step.site, step.end_ms, len(step.zones))
        step = self.latest[step.site] = parts.watch.without_faults(step, indices, day_bin)
        parts.rings.write(indices, step.end_ms, step.values)
        self._see_changes(step.site, indices, step.end_ms)
        plans = self.plans.of(step.site)
        ahead = None if plans is None else plans.ahead(step.end_ms, step.zones, self.spec)
        number, sun = self._number(step.end_ms), self._sun(step)
        learned = self.forecaster.learn(indices, number, step.values, day_bin, sun, ahead)
        parts.past.write(indices, step.end_ms, learned.targets)
        self._keep_examples(step, indices)
        parts.watch.learn(step, indices, learned.errors)
        parts.paths.learn(self.forecaster, learned, night_at(self.place_of(step.site), step.end_ms, self.spec))
        self.bases[step.site] = Basis(learned.step, learned.zones, learned.day_bin, learned.experts)
        parts.scores.learn(
            indices, learned.targets, self.forecaster.features.held(indices, number, self.spec.example_steps - 1)
        )
        self.plans.after_row(step.site, step.end_ms)
        for forecast in self.issued.take_waiting(step.site, step.end_ms):
            self._count(forecast)

    def _skip_missed_rows(self, step: SiteStep, before: Sequence[str]) -> None:
        """Tell live scores how many rows a zone missed that had left and is back: they count rows, not steps."""
        for zone in set(step.zones) - set(before):
            index = self.parts.rings.known(step.site, zone)
            newest_ms = None if index is None else self.parts.rings.newest_ms(index)
            if index is not None and newest_ms is not None:
                missed = self._number(step.end_ms) - self._number(newest_ms) - 1
                self.parts.scores.skip(np.array([index], np.int64), missed)

    def _see_changes(self, site: str, indices: I64, end_ms: int) -> None:
        """Count the changes of setpoints and weather from one day to the next, at the end of each half-hour."""
        length = max(BIN_MS // self.spec.step_ms, 1)
        half_ms = length * self.spec.step_ms
        if end_ms % half_ms or not same_clock(self.place_of(site), end_ms - half_ms, end_ms):
            return
        at = np.full(len(indices), end_ms, np.int64)
        today, before = (self.parts.rings.window(indices, at - back, length) for back in (0, DAY_MS))
        self.parts.seen_changes.learn(indices, *(seen_columns(rows, self.spec.channels) for rows in (today, before)))

    def _keep_examples(self, step: SiteStep, indices: I64) -> None:
        """Keep what the network that is fine-tuned was shown of the step, if it was shown anything."""
        tuned = self.forecaster.corrections.tuned
        if tuned and (shown := tuned.shown) is not None:
            names = dict(zip(indices.tolist(), step.zones, strict=True))
            self.examples.take(step.site, step.end_ms, [names[index] for index in shown.zones.tolist()], shown)

    def origin(self, site: str) -> ForecastOrigin:
        """The origin of a site's newest step."""
        step, basis = self.latest[site], self.bases[site]
        now = self.forecaster.now(basis.zones, basis.step, targets_of(step.values, self.spec))
        baseline = self.forecaster.climatology.predict(basis.zones, now, basis.day_bin)
        return ForecastOrigin(
            self._partition, site, step.end_ms, step.zones, basis.zones, step.values, step.ages_s, baseline,
            basis.day_bin, basis.experts, self._weaknesses(step),
        )  # fmt: skip

    def newest_origins(self) -> list[ForecastOrigin]:
        """The origins of the sites' newest rows, except for sites of which nothing was learned since they were lost."""
        return [self.origin(step.site) for step in self.latest.values() if step.zones and step.site in self.bases]

    def _weaknesses(self, step: SiteStep) -> Sequence[Sequence[str]]:
        """Why the zones' forecasts are weaker than they should be, besides old readings: sensor faults, stale plans."""
        stale = self.plans.stale(step.site, step.end_ms)
        if not stale:
            return step.faults
        faults = step.faults or [()] * len(step.zones)
        of_site = stale.get("", [])
        return [[*said, *stale.get(zone, ()), *of_site] for zone, said in zip(step.zones, faults, strict=True)]

    def is_past(self, origin: ForecastOrigin) -> bool:
        """Whether the truth of all that could be forecast from an origin has come, as after months without rows."""
        age_steps = self._number(self.latest[origin.site].end_ms - origin.end_ms)
        return age_steps >= self.spec.horizon_steps[-1]

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

    def path(self, origin: ForecastOrigin, quantiles: F32) -> F32:
        """The path of an issued forecast from an origin, ``[Z, T, M, Q]`` at the times of ``paths.knots``."""
        step = self._number(origin.end_ms)
        return self.forecaster.path(origin.indices, step, origin.day_bin, quantiles, self.parts.paths.knots)

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
        """Take a site's forecasts from before a crash, the newest issued last. Each that was issued after the
        snapshot is learned from again, once the replay has reached the row after which it was issued.
        """
        for forecast in forecasts:
            if self.issued.expect(forecast, self.latest[forecast.site].end_ms):
                self._count(forecast)  # perhaps the snapshot knows it: once more changes nothing

    def _count(self, forecast: IssuedForecast) -> None:
        """Learn from a forecast from before a crash, as if it had been issued now, after the newest row."""
        self.revision += 1
        indices = [self.parts.rings.index(forecast.site, zone) for zone in forecast.zones]
        zones, median = np.array(indices, np.int64), forecast.quantiles[..., 1]
        self.forecaster.remember(zones, self._number(forecast.origin_ms), median, forecast.network)
        self._score(zones, forecast)

    def _score(self, indices: I64, forecast: IssuedForecast) -> None:
        """Let live scores wait for its truth; not for zones that have left since, which have no rows to count by."""
        newest = self.latest[forecast.site].zones
        there = np.array([zone in newest for zone in forecast.zones], bool)
        quantiles, climatology = forecast.quantiles[there], forecast.climatology[there]
        self.parts.scores.issue(indices[there], quantiles, climatology, forecast.age_steps)

    def use_trees(self, forest: Forest) -> None:
        """Use these trees from now on."""
        self.revision += 1
        self.forecaster.forest = forest

    def tune(self, arrays: Mapping[str, F32]) -> None:
        """Follow this network, which was fine-tuned, from the next example on; none where there are no arrays."""
        self.revision += 1
        self.forecaster.tune(arrays)

    def know(self, zones: Sequence[tuple[str, str]]) -> None:
        """Let every part know these zones, by these numbers; those that it knows come first among them."""
        self.parts.add_zones(zones)

    def fresh(self) -> PartitionLearner:
        """One that has learned nothing, and knows the same zones by the same numbers; :meth:`adopt` takes its parts."""
        other = PartitionLearner(
            self._partition, self.spec, self._ring_steps, self.place_of, fine_tunes=self._fine_tunes
        )
        other.know(self.parts.rings.zones)
        return other

    def replay(self, step: SiteStep, issued: Sequence[IssuedForecast]) -> None:
        """Learn from a row of the history, and from the forecasts that were issued when it was the newest."""
        for forecast in issued:
            self.issued.wait(forecast, step.end_ms)
        self.learn(step)

    def adopt(self, other: PartitionLearner, parts: Collection[str]) -> None:
        """Take what ``other`` has learned; ``parts`` as in ``snapshots.parts.LEARNED``."""
        self.revision += 1
        self.parts.adopt(other.parts, parts)
        if "forecaster" in parts:
            self.examples.kept += other.examples.kept
        if {"forecaster", "bases"} & set(parts):
            self.bases = {
                site: basis for site, basis in other.bases.items()
                if basis.step == self._number(self.latest[site].end_ms)
                and len(basis.zones) == len(self.latest[site].zones)
            }  # fmt: skip
        if "plans" in parts:
            self.plans = other.plans

    def state(self) -> dict[str, Any]:
        """By parts (``services.ingest.snapshots.parts``); arrays are good until something is learned or issued."""
        return {
            "newest": {
                "zones": [list(zone) for zone in self.parts.rings.zones],
                "latest": [
                    {"site": s.site, "end_ms": s.end_ms, "zones": list(s.zones), "values": s.values,
                     "ages_s": s.ages_s, "faults": [list(said) for said in s.faults]}
                    for s in self.latest.values()
                ],
            },
            **self.parts.state(),
            "bases": {
                site: {"day_bin": basis.day_bin, "experts": basis.experts} for site, basis in self.bases.items()
            },
            "plans": self.plans.state(),
        }  # fmt: skip

    def load(self, parts: Mapping[str, Any], missing: dict[str, str]) -> None:
        """Take over what :meth:`state` gave, as far as it fits. Of other parts it puts into ``missing`` why they do
        not: they are new, and know the snapshot's zones.
        """
        newest = parts["newest"]
        self.latest = {
            s["site"]: SiteStep(
                self._partition, s["site"], s["end_ms"], tuple(s["zones"]), s["values"], s["ages_s"],
                faults=tuple(tuple(said) for said in s["faults"]),
            )
            for s in newest["latest"]
        }  # fmt: skip
        self.parts.load(parts, missing)
        self.plans = loaded(parts, "plans", PartitionPlans, PartitionPlans.load, missing)
        self.know([(site, zone) for site, zone in newest["zones"]])
        for step in self.latest.values():
            self.examples.know(step.site, step.zones)
        for site, basis in parts.get("bases", {}).items():
            step = self.latest[site]
            if len(basis["day_bin"]) == len(step.zones):
                self.bases[site] = Basis(self._number(step.end_ms), self._indices(step), **basis)

    def _indices(self, step: SiteStep) -> I64:
        indices = [self.parts.rings.index(step.site, zone) for zone in step.zones]
        if len(self.parts.rings.zones) > len(self.forecaster):
            self.know(self.parts.rings.zones)
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
