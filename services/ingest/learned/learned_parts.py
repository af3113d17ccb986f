"""Steps 5, 7, 8 and 10 of the way of a reading: what a partition has learned of its zones, as parts with a name each.

A snapshot holds each part by itself. One that cannot be read is new, and is grown again beside the others until it can
be exchanged. All parts number the zones alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from models.durations import HOUR_MS
from models.effects.seen_changes import SeenChanges
from models.evaluation.scoring import LiveScore
from models.online.online_forecaster import OnlineForecaster
from models.paths.paths import Paths
from models.pretraining.shipped_arrays import pretrained
from models.spec import ForecastSpec, Place
from services.ingest.learned.rings import Rings
from services.ingest.learned.signal_watch import SignalWatch

__all__ = ["PAST_HOURS", "LearnedParts", "loaded"]

_T = TypeVar("_T")

PAST_HOURS = 48
"""Hours of targets that are kept for charts. Of the other channels only what forecasts need is kept."""

_ROOM_ZONES = 1024
"""Zones that have room from the start. Unused room takes no memory, and growing copies all that was learned."""


class LearnedParts:
    """Rows, faults and drift, learners, paths, changes that were seen, and live scores of a partition's zones; nothing
    is known at first. Bases, plans and alerts, which can be grown again as well, are the partition's own.

    The attributes have the names of the parts. ``rings`` holds rows of ``ring_steps`` steps of all channels, ``past``
    rows of targets. With ``fine_tunes`` the forecaster follows a network that was fine-tuned, once it is given one.
    """

    def __init__(
        self, spec: ForecastSpec, place_of: Callable[[str], Place], ring_steps: int, *, fine_tunes: bool
    ) -> None:
        past_steps = PAST_HOURS * HOUR_MS // spec.step_ms
        self._new: dict[str, Callable[[], Any]] = {
            "rings": lambda: Rings(spec.step_ms, ring_steps, len(spec.channels), np.float16),
            "past": lambda: Rings(spec.step_ms, past_steps, len(spec.targets), np.float16),
            "forecaster": lambda: OnlineForecaster(spec, _ROOM_ZONES, pretrained(), fine_tunes=fine_tunes),
            "scores": lambda: LiveScore(spec, _ROOM_ZONES),
            "watch": lambda: SignalWatch(spec, place_of),
            "paths": lambda: Paths(spec, _ROOM_ZONES),
            "seen_changes": lambda: SeenChanges(_ROOM_ZONES),
        }
        self.rings: Rings = self._new["rings"]()
        self.past: Rings = self._new["past"]()
        self.forecaster: OnlineForecaster = self._new["forecaster"]()
        self.scores: LiveScore = self._new["scores"]()
        self.watch: SignalWatch = self._new["watch"]()
        self.paths: Paths = self._new["paths"]()
        self.seen_changes: SeenChanges = self._new["seen_changes"]()

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all."""
        for part in self._of_zones:
            part.prepare(zones)

    def add_zones(self, zones: Sequence[tuple[str, str]]) -> None:
        """Let every part know these zones, by these numbers; those that it knows come first among them."""
        for rings in (self.rings, self.past):
            for zone in zones:
                rings.index(*zone)
        for part in self._of_zones:
            new = len(zones) - len(part)
            if new > 0:
                part.add_zones(new)

    def state(self) -> dict[str, Any]:
        """Each part's state; arrays are good until something is learned or issued."""
        return {
            "rings": self.rings.state(), "past": self.past.state(), "watch": self.watch.state(),
            "forecaster": self.forecaster.state_dict(copy=False), "scores": self.scores.state_dict(copy=False),
            "paths": self.paths.state_dict(copy=False), "seen_changes": self.seen_changes.state_dict(copy=False),
        }  # fmt: skip

    def load(self, parts: Mapping[str, Any], missing: dict[str, str]) -> None:
        """Take over the parts that fit. Of others it puts into ``missing`` why they do not; they are new."""
        new = self._new
        self.rings = loaded(parts, "rings", new["rings"], Rings.load, missing)
        self.past = loaded(parts, "past", new["past"], Rings.load, missing)
        self.forecaster = loaded(parts, "forecaster", new["forecaster"], OnlineForecaster.load_state_dict, missing)
        self.scores = loaded(parts, "scores", new["scores"], LiveScore.load_state_dict, missing)
        self.watch = loaded(parts, "watch", new["watch"], SignalWatch.load, missing)
        self.paths = loaded(parts, "paths", new["paths"], Paths.load_state_dict, missing)
        self.seen_changes = loaded(parts, "seen_changes", new["seen_changes"], SeenChanges.load_state_dict, missing)

    def adopt(self, other: LearnedParts, names: Collection[str]) -> None:
        """Take the parts of these names from ``other``; names of what is the partition's own change nothing here.
        Trees and networks stay as they are: what was grown again has not met them.
        """
        before = self.forecaster
        for name in self._new.keys() & set(names):
            setattr(self, name, getattr(other, name))
        if self.forecaster is not before:
            self.forecaster.take_trained(before)

    @property
    def _of_zones(self) -> tuple[OnlineForecaster, SignalWatch, LiveScore, Paths, SeenChanges]:
        return self.forecaster, self.watch, self.scores, self.paths, self.seen_changes


def loaded(
    parts: Mapping[str, Any], name: str, new: Callable[[], _T], load: Callable[[_T, Any], None],
    missing: dict[str, str],
) -> _T:  # fmt: skip
    """The part of this name; a new one where it does not fit, and ``missing`` then says why."""
    part = new()
    try:
        if name not in parts:
            raise ValueError("it cannot be read")
        load(part, parts[name])
    except (KeyError, TypeError, ValueError) as error:
        missing[name] = str(error)
        return new()  # a part of it may have been loaded
    return part
