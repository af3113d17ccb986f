"""Steps 5 and 10 of the way of a reading for one partition: sensors that fail and signals that drift, in words.

Faulty values are taken out of a row before anybody learns or forecasts from it; what is stored stays as it was read.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypedDict
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import VOCABULARY
from models.alerts.facts import Fact
from models.evaluation.drift import Drift
from models.features.sensor_faults import SensorFaults
from models.spec import ForecastSpec, Place
from services.messages import DRIFTS
from services.store.rows import SiteStep

__all__ = ["ShownSignal", "SignalEvent", "SignalWatch"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

KEPT_EVENTS = 50


@dataclass(frozen=True, slots=True)
class SignalEvent:
    """Something that operators should know of, and that may start a retraining."""

    at_ms: int
    site: str
    zone: str | None  # None: the site as a whole
    kind: str  # a sensor fault's kind, "unit", "input drift" or "error drift"
    words: str


class ShownSignal(TypedDict):
    """A :class:`SignalEvent` as it is shown."""

    at_ms: int
    site: str
    zone: str | None
    kind: str
    words: str


class SignalWatch:
    """What is wrong in a partition's zones; zones are numbered as in its rings."""

    def __init__(self, spec: ForecastSpec, place_of: Callable[[str], Place]) -> None:
        self._spec, self._place_of = spec, place_of
        self._faults = SensorFaults(spec.channels, spec.step_ms)
        self._drift = Drift(spec.channels, spec.targets, spec.step_ms)
        self.counts: Counter[str] = Counter()  # by kind of event
        self._units: dict[str, int] = {}  # of a site, the sensors that send another unit now
        self._now: dict[str, dict[str, list[Fact]]] = {}  # of a site's newest step: what is wrong in each zone
        # Apart, so that a sensor that fails again and again does not push out the drift that a training waits for.
        self._told = {is_drift: deque[SignalEvent](maxlen=KEPT_EVENTS) for is_drift in (False, True)}

    def __len__(self) -> int:
        return len(self._faults)

    def add_zones(self, count: int = 1) -> None:
        """Make room for more zones."""
        self._faults.add_zones(count)
        self._drift.add_zones(count)

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all. Call it often; see ``ZoneArrays.prepare``."""
        self._faults.prepare(zones)
        self._drift.prepare(zones)

    def without_faults(self, step: SiteStep, indices: I64, day_bin: I64) -> SiteStep:
        """The step as learners are to see it, with what its sensors' faults are called; before the step is learned."""
        hour = int(day_bin[0]) * 24 // self._spec.steps_per_day
        clean, found = self._faults.learn(indices, step.end_ms // self._spec.step_ms, step.values, hour)
        names = dict(zip(indices.tolist(), step.zones, strict=True))
        for fault in found:
            words = fault.words(self._since(step.site, fault.since_step), VOCABULARY[fault.channel].unit)
            self._tell(SignalEvent(step.end_ms, step.site, names[fault.zone], fault.kind, words))
        faults: dict[str, list[str]] = {zone: [] for zone in step.zones}
        now: dict[str, list[Fact]] = {zone: [] for zone in step.zones}
        for fault in self._faults.active(indices):
            words = fault.words(self._since(step.site, fault.since_step), VOCABULARY[fault.channel].unit)
            since_ms = fault.since_step * self._spec.step_ms
            if fault.kind == "drop_out":  # its freshness says so already
                now[names[fault.zone]].append(Fact("silent_metric", since_ms, words))
                continue
            faults[names[fault.zone]].append(words)
            now[names[fault.zone]].append(Fact("sensor_fault", since_ms, words))
        self._take_units(step, faults, now)
        self._now[step.site] = {zone: facts for zone, facts in now.items() if facts}
        return replace(step, values=clean, faults=tuple(tuple(said) for said in faults.values()))

    def _take_units(self, step: SiteStep, faults: Mapping[str, list[str]], now: Mapping[str, list[Fact]]) -> None:
        """Sensors that send another unit, which windows have kept out; the weather station's concern every zone."""
        self._units[step.site] = len(step.units)
        for unit in step.units:
            is_site_wide = unit.zone == SITE_ZONE
            for zone, said in faults.items():
                if is_site_wide or zone == unit.zone:
                    said.append(unit.words())
                    now[zone].append(Fact("sensor_fault", unit.since_ms, unit.words()))
            if unit.since_ms == step.end_ms:
                self._tell(
                    SignalEvent(step.end_ms, step.site, None if is_site_wide else unit.zone, "unit", unit.words())
                )

    def learn(self, step: SiteStep, indices: I64, errors: F32) -> None:
        """Take a step's rows without faults, and the errors ``[Z, M]`` that matured in them."""
        number = step.end_ms // self._spec.step_ms
        names = dict(zip(indices.tolist(), step.zones, strict=True))
        for drifted in self._drift.update(step.site, indices, number, step.values, errors):
            zone = None if drifted.zone is None else names[drifted.zone]
            unit = VOCABULARY[drifted.signal].unit if drifted.signal in VOCABULARY else ""
            words = drifted.words(self._since(step.site, drifted.since_step), zone or "", unit)
            kind = "error drift" if drifted.is_error else "input drift"
            self._tell(SignalEvent(step.end_ms, step.site, zone, kind, words))

    def facts(self, site: str) -> Mapping[str, list[Fact]]:
        """What is wrong with sensors in the newest step that :meth:`without_faults` took, by zone."""
        return self._now.get(site, {})

    @property
    def events(self) -> list[SignalEvent]:
        """The newest ``KEPT_EVENTS`` faults and as many drifts, the oldest first."""
        return sorted((event for told in self._told.values() for event in told), key=lambda event: event.at_ms)

    def faults_now(self, indices: I64, sites: Iterable[str]) -> int:
        """How many sensors are faulty now: of these zones, and those of these sites that send another unit."""
        return len(self._faults.active(indices)) + sum(self._units.get(site, 0) for site in sites)

    def state(self) -> dict[str, Any]:
        """Everything that was learned and reported."""
        return {
            "faults": self._faults.state_dict(), "drift": self._drift.state_dict(), "counts": dict(self.counts),
            "events": [asdict(event) for event in self.events], "units": dict(self._units),
            # A tick that comes after a restart takes the facts of the row before it.
            "now": {
                site: {zone: [[fact.kind, fact.since_ms, fact.words] for fact in facts] for zone, facts in of.items()}
                for site, of in self._now.items()
            },
        }  # fmt: skip

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` gave; raises ``ValueError`` if it does not fit."""
        self._faults.load_state_dict(state["faults"])
        self._drift.load_state_dict(state["drift"])
        self.counts = Counter(state["counts"])
        self._units = dict(state["units"])
        self._now = {
            site: {zone: [Fact(*fact) for fact in facts] for zone, facts in of.items()}
            for site, of in state.get("now", {}).items()  # a state of before did not have it
        }
        for told in self._told.values():
            told.clear()
        for event in state["events"]:
            self._keep(SignalEvent(**event))

    def _tell(self, event: SignalEvent) -> None:
        self.counts[event.kind] += 1
        self._keep(event)

    def _keep(self, event: SignalEvent) -> None:
        self._told[event.kind in DRIFTS].append(event)

    def _since(self, site: str, step: int) -> str:
        moment = datetime.fromtimestamp(step * self._spec.step_ms / 1000, UTC)
        return moment.astimezone(ZoneInfo(self._place_of(site).timezone)).strftime("%Y-%m-%d %H:%M")
