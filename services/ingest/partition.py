"""Steps 5, 7 and 10 of the way of a reading for one partition: its windows, rings, climatology and live scores.

Windows, rings, climatology and counts are a function of the partition's records; :meth:`Partition.state` holds all of
them, so that a shard that continues from a snapshot goes on exactly as if it had never stopped. The live scores also
depend on when a forecast came: one that was issued between the snapshot and a crash counts as issued at its origin,
one that was still waiting is issued, and counts, after the restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.log import Record
from models.baselines import Climatology
from models.features import day_bins, targets_of
from models.scoring import LiveScore
from models.spec import ForecastSpec, Place
from services.ingest.forecasting import Origin
from services.ingest.rings import Rings
from services.ingest.windows import PartitionWindows
from services.store.forecasts import IssuedForecast
from services.store.rows import DeadLetter, SiteStep

__all__ = ["Partition"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]


class Partition:
    """State of one partition before the record at ``offset``; starts empty, at offset 0."""

    def __init__(
        self, number: int, spec: ForecastSpec, windows: PartitionWindows, ring_steps: int,
        place_of: Callable[[str], Place],
    ) -> None:  # fmt: skip
        self.number, self.offset = number, 0
        self._spec, self._place_of = spec, place_of
        self.windows = windows
        self.rings = Rings(spec.step_ms, ring_steps, len(spec.channels))
        self.climatology = Climatology(spec)
        self.scores = LiveScore(spec)
        self.counts: Counter[str] = Counter()  # accepted, duplicates, late, rows, zone_rows, forecasts ...
        self.rejected: Counter[str] = Counter()
        self.values_refused: Counter[str] = Counter()
        self.letters: list[DeadLetter] = []  # not yet durable
        self.latest: dict[str, SiteStep] = {}  # the newest closed step of each site
        self.stream_ms: dict[str, int] = {}  # receive time of the newest record of each site
        self.kept_ms: dict[str, int] = {}  # rows up to here are in the history and better than what is left of the log
        self._issued: dict[tuple[str, int], list[IssuedForecast]] = {}

    def take(self, records: Sequence[Record], origins_a_site: int) -> tuple[list[SiteStep], list[Origin]]:
        """Take the next records; what they closed, and of each site's last ``origins_a_site`` steps the origins."""
        closed = self.windows.feed(records)
        self.offset = records[-1].offset + 1
        self.stream_ms.update({record.site: record.receive_ms for record in records})
        self.letters += closed.dead_letters
        self.rejected.update(closed.rejected)
        self.values_refused.update(closed.values_refused)
        self.counts.update(accepted=closed.accepted, duplicates=closed.duplicates, late=closed.late)
        self.counts.update({f"{kind}_records": n for kind, n in closed.other_records.items()})
        left = Counter(step.site for step in closed.steps)
        origins = []
        for step in closed.steps:
            self._learn(step)
            left[step.site] -= 1
            if left[step.site] < origins_a_site and step.zones:
                origins.append(self.origin(step))
        return closed.steps, origins

    def _learn(self, step: SiteStep) -> None:
        self.counts.update(rows=len(step.devices), zone_rows=len(step.zones), steps=1)
        self.latest[step.site] = step
        if not step.zones:
            return
        indices = self._indices(step)
        targets = targets_of(step.values, self._spec)
        self.rings.write(indices, step.end_ms, step.values)
        self.climatology.learn(indices, targets, self._day_bins(step))
        self.scores.learn(indices, targets)
        for issued in self._issued.pop((step.site, step.end_ms), []):
            if issued.zones == step.zones:
                self.issued(self.origin(step), issued.quantiles)

    def origin(self, step: SiteStep) -> Origin:
        """The origin of a step; to be taken before the next step of its site is learned."""
        indices = self._indices(step)
        baseline = self.climatology.predict(indices, targets_of(step.values, self._spec), self._day_bins(step))
        return Origin(self.number, step.site, step.end_ms, step.zones, indices, step.values, step.ages_s, baseline)

    def issued(self, origin: Origin, quantiles: F32) -> None:
        """Remember a forecast, so that it is scored when its truth comes; the newest of an origin counts."""
        age = (self.latest[origin.site].end_ms - origin.end_ms) // self._spec.step_ms
        self.scores.issue(origin.indices, quantiles, origin.baseline, age)

    def expect(self, forecasts: Sequence[IssuedForecast]) -> None:
        """Forecasts that were issued after the snapshot: they count again when the replay reaches their origin."""
        for forecast in forecasts:
            self._issued.setdefault((forecast.site, forecast.origin_ms), []).append(forecast)

    def window(self, site: str, zone: str) -> tuple[F32, int, F32] | None:
        """A zone's look-back [L, C], its newest row's end and the climatology's forecast [H, M, Q] from there."""
        step = self.latest.get(site)
        if step is None or zone not in step.zones:
            return None
        at = step.zones.index(zone)
        origin = self.origin(step)
        one = origin.indices[at : at + 1]
        values = self.rings.window(one, np.array([step.end_ms]), self._spec.lookback_steps)[0]
        return values, step.end_ms, origin.baseline[at]

    def baseline(self, site: str, zone: str, origin_ms: int, now: F32) -> F32:
        """The climatology's forecast [H, M, Q] for targets ``now`` [M] at any origin, from what it knows today."""
        index = np.array([self.rings.index(site, zone)], np.int64)
        bins = day_bins(self._place_of(site), np.array([origin_ms], np.int64), self._spec)
        forecast: F32 = self.climatology.predict(index, now[None], bins)[0]
        return forecast

    def past(self, site: str, zone: str, hours: int) -> tuple[list[int], dict[str, list[float | None]]]:
        """The ends and targets of a zone's rows of the last ``hours``, for charts; None where missing."""
        ends, rows = self.rings.recent(self.rings.index(site, zone), hours * 3_600_000 // self._spec.step_ms)
        targets = targets_of(rows, self._spec).T
        return ends.tolist(), {
            name: [None if np.isnan(v) else round(float(v), 4) for v in column]
            for name, column in zip(self._spec.targets, targets, strict=True)
        }

    def state(self) -> dict[str, Any]:
        """Everything but the dead letters, as maps, lists and arrays."""
        return {
            "windows": self.windows.state(), "rings": self.rings.state(),
            "climatology": self.climatology.state_dict(), "scores": self.scores.state_dict(),
            "stream_ms": dict(self.stream_ms), "kept_ms": dict(self.kept_ms), "counts": dict(self.counts),
            "rejected": dict(self.rejected), "values_refused": dict(self.values_refused),
            "latest": [
                {"site": s.site, "end_ms": s.end_ms, "zones": list(s.zones), "values": s.values, "ages_s": s.ages_s}
                for s in self.latest.values()
            ],
        }  # fmt: skip

    def load(self, offset: int, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot; raises ``ValueError`` where it was made under other settings."""
        self.offset = offset
        self.windows.load(state["windows"])
        self.rings.load(state["rings"])
        self.climatology.load_state_dict(state["climatology"])
        self.scores.load_state_dict(state["scores"])
        self.counts, self.rejected = Counter(state["counts"]), Counter(state["rejected"])
        self.values_refused = Counter(state["values_refused"])
        self.stream_ms, self.kept_ms = dict(state["stream_ms"]), dict(state["kept_ms"])
        self.latest = {
            s["site"]: SiteStep(self.number, s["site"], s["end_ms"], tuple(s["zones"]), s["values"], s["ages_s"])
            for s in state["latest"]
        }

    def _indices(self, step: SiteStep) -> I64:
        indices = [self.rings.index(step.site, zone) for zone in step.zones]
        while len(self.climatology) < len(self.rings.zones):
            self.climatology.add_zone()
            self.scores.add_zone()
        return np.array(indices, np.int64)

    def _day_bins(self, step: SiteStep) -> I64:
        ends = np.full(len(step.zones), step.end_ms, np.int64)
        return day_bins(self._place_of(step.site), ends, self._spec)
