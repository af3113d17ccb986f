"""Step 9 of the way of a reading: which zones rules look at now, in turns (round robin).

Drawing scenarios takes some milliseconds a zone, too long for all zones of a large partition in one step. So each tick
of the log gives some zones a turn, first those that were looked at longest ago. Ticks are records of the log, some
sixty in a half hour. So a shard that reads the log again gives the same zones their turn at the same place.

The time of a tick does not matter. Otherwise a gateway whose clock was ahead would keep the zones of its neighbours
from their turn until real time has caught up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.alerts.foreseen import STEP_MS
from models.spec import ForecastSpec
from services.store.rows import SiteStep

__all__ = ["Turns"]

TICKS_A_STEP = 10
"""Ticks of a site in one step of rows (``edge.gateway.record_builder`` makes them)."""

ROOM = 0.8
"""All zones get their turn within this share of a half hour, because ticks may be late."""

LEAST = 4
"""Zones that get a turn at each tick, at least."""

_Zone = tuple[str, str]


class Turns:
    """When each zone was looked at, and which sites have ticked since zones had a turn."""

    def __init__(self, spec: ForecastSpec) -> None:
        self._ticks = max(round(ROOM * TICKS_A_STEP * STEP_MS / spec.step_ms), 1)
        self._looked: dict[_Zone, int] = {}  # the half hour
        self._ticked: dict[str, None] = {}  # in their order

    def tick(self, site: str) -> bool:
        """Take a tick of a site; whether zones get a turn now.

        Each site has ticks of its own, all at about the same times. A turn comes with the first site that ticks a
        second time: so there is one turn for each round of the sites' ticks.
        """
        if is_first := bool(self._ticked) and site not in self._ticked:
            self._ticked[site] = None
        else:
            self._ticked = {site: None}
        return not is_first

    def due(self, latest: Mapping[str, SiteStep]) -> dict[str, list[str]]:
        """The zones that have a turn, by site, of those of the sites' newest steps; each once a half hour."""
        there = [(step.site, zone) for step in latest.values() for zone in step.zones]
        halves = {site: step.end_ms // STEP_MS for site, step in latest.items()}
        due = [zone for zone in there if self._looked.get(zone, -1) < halves[zone[0]]]
        due.sort(key=lambda zone: self._looked.get(zone, -1))  # stable: else in their order
        chosen: dict[str, list[str]] = {}
        for site, zone in due[: max(LEAST, -(-len(there) // self._ticks))]:
            self._looked[site, zone] = halves[site]
            chosen.setdefault(site, []).append(zone)
        return chosen

    def forget(self, site: str, zone: str) -> None:
        """The zone has left."""
        self._looked.pop((site, zone), None)

    def state(self) -> dict[str, Any]:
        """For a snapshot; ``tick_ms`` is for the release before, should it come back."""
        looked = [[*zone, half] for zone, half in self._looked.items()]
        return {"looked": looked, "ticked": list(self._ticked), "tick_ms": -1}

    def load(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        self._looked = {(site, zone): half for site, zone, half in state["looked"]}
        self._ticked = dict.fromkeys(state.get("ticked", ()))  # the release before kept the time of a tick instead
