"""Pairs of simulated runs as examples: what was known of a zone at an origin, and what a change then did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from models.durations import MINUTE_MS
from models.effects.plan_change import GRID_MIN, PlanChange
from models.effects.situation import EFFECT_TARGETS, PATH_TARGETS, SEEN, Situation, clock_moved_min, half_hours
from models.features.inputs import sun_sine
from models.features.plans import BIN_MS, BINS_BACK, PLANNED
from models.pretraining.fleet_chunk import FleetChunk
from models.psychrometrics import vpd_kpa

__all__ = ["EffectPairs", "RunPair", "pairs_of"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

BINS = BINS_BACK + 1 + 48 + 1


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two zones of a chunk that are one house: as it was, and with changes after the row ``origin``."""

    as_was: int
    as_changed: int
    origin: int
    changes: tuple[PlanChange, ...]


@dataclass(frozen=True, slots=True)
class EffectPairs:
    """``N`` pairs: the situation, whose path is what came, the changes, and what they did at times ``GRID_MIN``."""

    situation: Situation
    changes: list[tuple[PlanChange, ...]]
    effect: F32  # [N, G, EFFECT_TARGETS]; NaN where it was not measured
    house: I64  # [N] the site's number in the fleet

    @staticmethod
    def concatenate(parts: Sequence[EffectPairs]) -> EffectPairs:
        """All pairs, in order."""
        return EffectPairs(
            Situation.concatenate([part.situation for part in parts]), [one for part in parts for one in part.changes],
            np.concatenate([part.effect for part in parts]), np.concatenate([part.house for part in parts]),
        )  # fmt: skip


def pairs_of(chunk: FleetChunk, pairs: Sequence[RunPair]) -> EffectPairs:
    """The examples of a chunk of both runs. Rows are five minutes; a day before and after each origin is there."""
    rows = chunk.rows(SEEN)
    zones = np.array([pair.as_was for pair in pairs], np.int64)
    origin = np.array([pair.origin for pair in pairs], np.int64)
    window = rows[zones[:, None], origin[:, None] + np.arange(1 - len(GRID_MIN), 1)]
    day, now = half_hours(window, SEEN)
    after = origin[:, None] + np.arange(1, len(GRID_MIN) + 1)
    was = rows[zones[:, None], after]
    became = rows[np.array([pair.as_changed for pair in pairs], np.int64)[:, None], after]
    air, rh = SEEN.index("air_temp_c"), SEEN.index("rh_pct")
    effects = [became[..., SEEN.index(name)] - was[..., SEEN.index(name)] for name in PATH_TARGETS]
    effects.append(vpd_kpa(became[..., air], became[..., rh]) - vpd_kpa(was[..., air], was[..., rh]))
    assert len(effects) == len(EFFECT_TARGETS)
    end_ms = chunk.end_ms(zones, origin)
    whose = [(chunk.place(int(z)), int(end)) for z, end in zip(zones, end_ms, strict=True)]
    situation = Situation(
        day=day, now=now, foreseen=chunk.foreseen(zones, origin, PLANNED, BINS_BACK, BINS),
        into_bin_ms=np.asarray((end_ms - 1) % BIN_MS, np.int64),
        path=was[..., [SEEN.index(name) for name in PATH_TARGETS]],
        sun=np.stack([sun_sine(place, end + GRID_MIN * MINUTE_MS) for place, end in whose]),
        clock_min=np.stack([clock_moved_min(place, end) for place, end in whose]),
    )  # fmt: skip
    house = chunk.arrays["site"][chunk.arrays["zone_site"][zones]]
    return EffectPairs(
        situation, [pair.changes for pair in pairs], np.stack(effects, axis=-1).astype(np.float32), house
    )
