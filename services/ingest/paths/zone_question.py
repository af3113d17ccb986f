"""Step 9 of the way of a reading: what would become of a zone if a plan or the weather were another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from models.durations import MINUTE_MS
from models.effects.effect_artefact import shipped_effects
from models.effects.effect_support import TimesSeen
from models.effects.plan_change import GRID_MIN, PlanChange
from models.effects.situation import PATH_TARGETS, Situation, clock_moved_min, half_hours
from models.effects.zone_effect import changed_path, path_on_grid, zone_effect
from models.features.inputs import sun_sine, targets_of
from models.features.plans import BIN_MS, PLANNED, bins_ahead
from models.spec import ForecastSpec, Place
from services.messages import F32, I64, ChangeAsked, ZoneWhatIf

__all__ = ["ZoneQuestion", "asked_of", "zone_question"]


@dataclass(frozen=True, slots=True)
class ZoneQuestion:
    """A zone's newest forecast with what is known of the zone: all that an answer needs."""

    origin_ms: int
    version: str
    now: F32  # [M]
    minutes: I64  # [T]
    path: F32  # [T, M, Q]
    situation: Situation
    times_seen: TimesSeen
    spec: ForecastSpec

    def answer(self, changes: Sequence[ChangeAsked]) -> ZoneWhatIf:
        """What the changes do. Reads the network of effects when the first one asks."""
        asked = [asked_of(change, self.origin_ms) for change in changes]
        found = zone_effect(shipped_effects(), self.situation, asked, self.minutes, self.spec, self.times_seen)
        changed = None if found.effect is None else changed_path(self.path, found.effect, self.minutes, self.spec)
        return ZoneWhatIf(
            origin_ms=self.origin_ms, version=self.version, now=self.now, minutes=self.minutes, path=self.path,
            changed=changed, effect=found.effect, support=found.support.level, says=found.support.words,
            reasons=list(found.support.reasons),
        )  # fmt: skip


def asked_of(change: ChangeAsked, origin_ms: int) -> PlanChange:
    """A change in minutes after an origin."""
    begin, end = ((change[name] - origin_ms) / MINUTE_MS for name in ("begin_ms", "end_ms"))
    return PlanChange(change["metric"], change["how"], change["value"], begin, end)


def zone_question(
    spec: ForecastSpec, place: Place, origin_ms: int, version: str, rows: F32, path: F32, steps: I64,
    foreseen: F32 | None, times_seen: Callable[[str, float], int],
) -> ZoneQuestion:  # fmt: skip
    """Of a zone's rows ``[L, C]`` of the day up to the origin, its path ``[T, M, Q]`` at ``steps [T]``, and what is
    foreseen for it (``Plans.ahead``), None where nothing is.
    """
    minutes = np.asarray(steps * spec.step_ms // MINUTE_MS, np.int64)
    day, newest = half_hours(rows[None], spec.channels)
    now = targets_of(rows[-1], spec)
    ahead = np.full((bins_ahead(spec), len(PLANNED)), np.nan, np.float32) if foreseen is None else foreseen
    situation = Situation(
        day=day, now=newest, foreseen=ahead[None], into_bin_ms=np.array([(origin_ms - 1) % BIN_MS], np.int64),
        path=path_on_grid(path[..., 1], now, minutes, spec)[None],
        sun=sun_sine(place, origin_ms + GRID_MIN * MINUTE_MS)[None], clock_min=clock_moved_min(place, origin_ms)[None],
    )  # fmt: skip
    assert situation.path.shape[-1] == len(PATH_TARGETS)
    return ZoneQuestion(origin_ms, version, now, minutes, path, situation, times_seen, spec)
