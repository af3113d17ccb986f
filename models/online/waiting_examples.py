"""Examples whose truth has not come yet: what was known at their origins, and what was forecast from there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from models.features.eight_bits import from_steps, in_steps
from models.half_precision import cut
from models.online.expert_mix import LIMIT
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays

__all__ = ["Matured", "WaitingExamples"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]


class Matured(NamedTuple):
    """Forecasts of ``P`` horizons whose truth comes with a step."""

    h: I64  # [P], the horizons
    origin_at: I64  # [P], the places of their origins
    at: I64  # [P], the places of what was forecast
    due: npt.NDArray[np.bool_]  # [Z, P], which zones had an example there


class WaitingExamples(ZoneArrays):
    """Rings of each zone. Origins have ``origins`` places, enough for the longest horizon. A forecast has a place of
    its own for each horizon, ``places`` in all, because those of short horizons need not be kept for long.
    """

    def __init__(self, spec: ForecastSpec, width: tuple[int, int], experts: int, capacity: int) -> None:
        """``width``: how many regressors an origin has, and how many each of its horizons; ``experts``: how many
        answers are mixed.
        """
        self.stride = spec.example_steps
        self._steps = np.array(spec.horizon_steps, dtype=np.int64)
        # An origin of horizon h waits in one of this many places until its truth comes.
        self._slots = self._steps // self.stride + 1
        self._first = np.concatenate([[0], np.cumsum(self._slots)[:-1]])
        self.places, self.origins = int(self._slots.sum()), int(self._slots.max())
        targets, (common, ahead) = len(spec.targets), width
        super().__init__(
            capacity,
            stamp=((self.origins,), np.int32, -1),  # the step of the origin
            common=((self.origins, common), np.int8, 0),
            ahead=((self.places, ahead), np.int8, 0),
            experts=((self.places, targets, experts), np.int8, 0),  # how far each is off the climatology
            median=((self.places, targets), np.float16, np.nan),  # what they were mixed to
            base=((self.places, targets), np.float16, np.nan),  # what the climatology said
        )

    def is_origin(self, step: int) -> bool:
        """Whether examples are taken at this step."""
        return step % self.stride == 0

    def at(self, step: int) -> I64:
        """The places of the forecasts from origin ``step``, ``[H]``."""
        return np.asarray(self._first + step // self.stride % self._slots)

    def keep_base(self, zones: I64, step: int, base: F32) -> None:
        """An example begins: what the climatology says of its horizons, ``[Z, H, M]``."""
        self["stamp"][zones, step // self.stride % self.origins] = step
        self["base"][zones[:, None], self.at(step)] = cut(base)

    def keep(self, zones: I64, step: int, regressors: tuple[F32, F32], deviations: F32, median: F32) -> None:
        """The rest of it: regressors of the origin ``[Z, D]`` and of its horizons ``[Z, H, E]``, how far the experts
        are off the climatology in its units ``[Z, H, M, K]``, and their mixture ``[Z, H, M]``.
        """
        common, ahead = regressors
        zone, at = zones[:, None], self.at(step)
        self["common"][zones, step // self.stride % self.origins] = in_steps(common)
        self["ahead"][zone, at] = in_steps(ahead)
        self["experts"][zone, at] = in_steps(deviations, LIMIT)
        self["median"][zone, at] = cut(median)

    def kept(self, zones: I64, step: int) -> tuple[I64, I64, I64]:
        """Which forecasts from origin ``step`` have a place still, that no newer origin took: places in ``zones``,
        horizons and places of forecasts, ``[N]`` each.
        """
        newest = self["stamp"][zones].max(axis=1) // self.stride
        z, h = np.nonzero(newest[:, None] - step // self.stride < self._slots)
        return z, h, self.at(step)[h]

    def amend(self, zones: I64, at: I64, median: F32, last: _Array) -> None:
        """Another mixture ``[N, M]`` and another answer of the last expert ``[N, M]`` for these forecasts."""
        self["median"][zones, at] = cut(median)
        self["experts"][zones, at, :, -1] = in_steps(last, LIMIT)

    def made_at(self, zones: I64, origins: I64, h: I64) -> tuple[I64, npt.NDArray[np.bool_]]:
        """The places of the forecasts from ``origins [P]`` for the horizons ``h [P]``, and which zones have them,
        ``[Z, P]``.
        """
        place = origins // self.stride
        stamp = self["stamp"][zones[:, None], place % self.origins]
        return np.asarray(self._first[h] + place % self._slots[h]), stamp == origins

    def matured(self, zones: I64, step: int) -> Matured | None:
        """The forecasts whose truth comes with the row of ``step``; ``None`` where there are none."""
        origins = step - self._steps
        h = np.flatnonzero((origins >= 0) & (origins % self.stride == 0))
        at, due = self.made_at(zones, origins[h], h)
        return Matured(h, origins[h] // self.stride % self.origins, at, due) if due.any() else None

    def off(self, name: str, zones: I64, matured: Matured, y: F32) -> F32:
        """Truth ``y [Z, M]`` less the ``median`` or the ``base``, ``[Z, P, M]``; where a zone had no example at an
        origin it counts as unknown.
        """
        said = self[name][zones[:, None], matured.at]
        return np.where(matured.due[..., None], y[:, None] - said, np.float32(np.nan))

    def regressors(self, zones: I64, matured: Matured) -> F32:
        """Those of the origin and of the horizon, ``[Z, P, D + E]``."""
        zone = zones[:, None]
        common, ahead = self["common"][zone, matured.origin_at], self["ahead"][zone, matured.at]
        return np.concatenate([from_steps(common), from_steps(ahead)], axis=-1)

    def deviations(self, zones: I64, matured: Matured) -> F32:
        """How far the experts were off the climatology, in its units, ``[Z, P, M, K]``."""
        return from_steps(self["experts"][zones[:, None], matured.at], LIMIT)
