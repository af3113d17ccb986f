"""Step 9 of the way of a reading: the live state holds what is known now; API replicas follow it.

Shards publish forecasts and their figures, the retrainer its models and events; API replicas wait for what changed
and answer from their own memory. There may be several live states: a shard, and so a site, has one of them, and models
and events are with the first. A live state is memory only: after a restart API replicas give it back what they
know (:meth:`LiveState.restore`), it asks, through the answer of ``publish``, for the past that it lacks, and everything
else comes again with the next step.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from models.durations import HOUR_MS
from services.messages import LiveEvent, ModelRow, ShownAlert, ShownAlerts, ZoneForecast
from services.serve.components import Figures, left_in

__all__ = ["PAST_HOURS", "LiveState", "LiveStateChanges", "ZonePast"]

PAST_HOURS = 48
MAX_EVENTS = 200


class LiveStateChanges(TypedDict, total=False):
    """What changed since a version; only keys with something new are there."""

    version: int  # always
    identity: int  # of the live state that says so
    live_state: int  # its index; where it is not there, 0
    forecasts: list[ZoneForecast]
    stats: dict[str, Figures]  # component -> figures
    models: list[ModelRow]
    alerts: list[ShownAlert]  # that are new, changed or renewed
    events: list[LiveEvent]  # all that are kept, oldest first


class ZonePast(TypedDict):
    """A zone's past targets; times rise."""

    end_ms: list[int]
    values: dict[str, list[float | None]]


class LiveState:
    """Newest forecast and past of each zone of its shards, alerts, figures of each component, models, events.

    ``first_version`` must be larger than any version of an earlier live state, so that followers notice a restart: the
    actor passes microseconds since 1970. ``clock_ms`` stamps events that carry no ``time_ms``. ``index`` says which of
    the live states it is.
    """

    def __init__(self, first_version: int, clock_ms: Callable[[], int], index: int = 0) -> None:
        self._index = index
        self._version = self._first_version = first_version
        self._clock_ms = clock_ms
        self._changed = asyncio.Condition()
        self._forecasts: dict[tuple[str, str], tuple[int, ZoneForecast]] = {}
        self._stats: dict[str, tuple[int, Figures]] = {}
        self._models: tuple[int, list[ModelRow]] | None = None
        self._events: deque[LiveEvent] = deque(maxlen=MAX_EVENTS)
        self._events_version = 0
        self._alerts, self._alert_versions = ShownAlerts(), dict[str, int]()
        self._past: dict[tuple[str, str], _Track] = {}
        self._left_ms: dict[tuple[str, str], int] = {}  # end of the last row of a zone that has left

    async def publish(self, forecasts: Sequence[ZoneForecast]) -> list[tuple[str, str]]:
        """Show these forecasts, replacing each zone's last one unless it is older; append ``now`` to its past.

        Returns the ``(site, zone)`` whose past this live state was never given: the caller answers with ``put_past``.
        """
        async with self._changed:
            self._version += 1
            for forecast in forecasts:
                key = (forecast["site"], forecast["zone"])
                known = self._forecasts.get(key)
                if forecast["origin_ms"] <= self._left_ms.get(key, -1):
                    continue  # its zone has left since
                if known is None or known[1]["origin_ms"] <= forecast["origin_ms"]:
                    self._forecasts[key] = (self._version, forecast)
                    of_row = {name: v for name, v in forecast["now"].items() if name not in forecast["now_age_s"]}
                    self._track(key, tuple(forecast["forecasts"])).append(forecast["origin_ms"], of_row)
            self._changed.notify_all()
        asked = [(forecast["site"], forecast["zone"]) for forecast in forecasts]
        return [key for key in asked if key in self._past and not self._past[key].filled]

    async def restore(self, forecasts: Sequence[ZoneForecast]) -> None:
        """Show forecasts that an earlier live state had, of zones that nothing is known of."""
        async with self._changed:
            self._version += 1
            for forecast in forecasts:
                key = (forecast["site"], forecast["zone"])
                if key not in self._forecasts and forecast["origin_ms"] > self._left_ms.get(key, -1):
                    self._forecasts[key] = (self._version, forecast)
            self._changed.notify_all()

    async def put_past(
        self, site: str, zone: str, end_ms: Sequence[int], values: Mapping[str, Sequence[float | None]]
    ) -> None:
        """Replace a zone's past: for each target one value a time, times rising, ``None`` or NaN where missing."""
        track = _Track(tuple(values))
        for row, at in enumerate(end_ms):
            track.append(int(at), {name: column[row] for name, column in values.items()})
        newer = self._past.get((site, zone))
        if newer is not None:
            track.extend(newer)
        track.filled = True
        self._past[site, zone] = track

    async def past(self, site: str, zone: str) -> ZonePast:
        """The last 48 h of a zone's targets; empty for an unknown zone."""
        track = self._past.get((site, zone))
        return track.past() if track is not None else ZonePast(end_ms=[], values={})

    async def identity(self) -> int:
        """The first version, by which who sends knows this live state from a later one."""
        return self._first_version

    async def put_stats(self, component: str, stats: Figures) -> int:
        """Replace a component's figures, and take off the zones that have ``left``; the live state's
        :meth:`identity`.
        """
        async with self._changed:
            self._version += 1
            self._stats[component] = (self._version, stats)
            for left in left_in(stats):
                self._take_off((left["site"], left["zone"]), left["left_ms"])
            self._changed.notify_all()
        return self._first_version

    async def put_alerts(self, alerts: Sequence[ShownAlert]) -> None:
        """Show alerts, each in place of what it was before, unless it is older."""
        async with self._changed:
            self._version += 1
            for alert in self._alerts.take(alerts):
                self._alert_versions[alert["id"]] = self._version
            if len(self._alert_versions) > len(self._alerts):  # some that are over are not shown any more
                self._alert_versions = {id: self._alert_versions[id] for id in self._alerts}
            self._changed.notify_all()

    async def set_models(self, models: Sequence[ModelRow]) -> None:
        """Replace the table of registered models, newest first. The same table again is no change: retrainers show it
        every few seconds, and each open page would be told.
        """
        async with self._changed:
            if self._models is not None and self._models[1] == list(models):
                return
            self._version += 1
            self._models = (self._version, list(models))
            self._changed.notify_all()

    async def put_event(self, event: LiveEvent) -> None:
        """Add an event (``kind`` is retrain, swap, error, ...); the newest 200 are kept."""
        async with self._changed:
            self._version += 1
            self._events.append({"time_ms": self._clock_ms(), **event})
            self._events_version = self._version
            self._changed.notify_all()

    async def wait(self, seen_version: int, timeout_s: float) -> LiveStateChanges:
        """What changed after ``seen_version``, as soon as anything did, or nothing but the version after ``timeout_s``.

        A version that this live state never gave (0, or one of a live state to come) gets everything.
        """
        async with self._changed:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait_for(lambda: self._version != seen_version)
            except TimeoutError:
                pass  # the caller sees the same version and asks again
        return self._since(seen_version if seen_version <= self._version else 0)

    def _take_off(self, key: tuple[str, str], left_ms: int) -> None:
        self._left_ms[key] = left_ms
        known = self._forecasts.get(key)
        if known is not None and known[1]["origin_ms"] <= left_ms:
            del self._forecasts[key]
        if known is None or known[1]["origin_ms"] <= left_ms:
            self._past.pop(key, None)

    def _since(self, seen: int) -> LiveStateChanges:
        changes = LiveStateChanges(version=self._version, identity=self._first_version, live_state=self._index)
        if forecasts := [forecast for version, forecast in self._forecasts.values() if version > seen]:
            changes["forecasts"] = forecasts
        if stats := {name: figures for name, (version, figures) in self._stats.items() if version > seen}:
            changes["stats"] = stats
        if self._models is not None and self._models[0] > seen:
            changes["models"] = self._models[1]
        if alerts := [alert for id, alert in self._alerts.items() if self._alert_versions[id] > seen]:
            changes["alerts"] = alerts
        if self._events_version > seen:
            changes["events"] = list(self._events)
        return changes

    def _track(self, key: tuple[str, str], targets: tuple[str, ...]) -> _Track:
        track = self._past.setdefault(key, _Track(targets))
        track.widen(targets)
        return track


class _Track:
    """A zone's past: times and float32 targets, 48 h of them; ``filled`` once a whole past was given.

    In two flat arrays: objects of their own for each row take six times the memory.
    """

    def __init__(self, targets: tuple[str, ...]) -> None:
        self.targets = targets
        self.filled = False
        self._times = array("q")
        self._rows = array("f")  # a row behind the other

    def append(self, end_ms: int, values: Mapping[str, float | None]) -> None:
        if self._times and end_ms <= self._times[-1]:
            return  # the same step again: a forecast that was computed anew after a swap
        self._times.append(end_ms)
        self._rows.extend([np.nan if (value := values.get(name)) is None else value for name in self.targets])
        if over := bisect_left(self._times, end_ms - PAST_HOURS * HOUR_MS):
            del self._times[:over], self._rows[: over * len(self.targets)]

    def widen(self, targets: tuple[str, ...]) -> None:
        """Keep these targets too: a target that was never seen is not forecast, and one may appear at any time."""
        if more := tuple(name for name in targets if name not in self.targets):
            unknown = np.full((len(self._times), len(more)), np.nan, dtype=np.float32)
            self._rows = array("f", np.hstack([self._table(), unknown]).tobytes())
            self.targets += more

    def extend(self, other: _Track) -> None:
        self.widen(other.targets)
        for end_ms, row in zip(other._times, other._table().tolist(), strict=True):
            self.append(end_ms, dict(zip(other.targets, row, strict=True)))

    def past(self) -> ZonePast:
        shown = {
            name: [None if np.isnan(value) else round(float(value), 3) for value in column]
            for name, column in zip(self.targets, self._table().T, strict=True)
        }
        return ZonePast(end_ms=self._times.tolist(), values=shown)

    def _table(self) -> npt.NDArray[np.float32]:
        return np.array(self._rows, dtype=np.float32).reshape(len(self._times), len(self.targets))
