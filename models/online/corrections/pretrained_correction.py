"""Step 8 of the way of a reading: what a pre-trained network adds to a forecast, as far as it has been right.

The network has seen simulated houses only. What it says of a real one, a shift of the forecast that the learners would
issue without it, is followed in part. Which part is learned for each zone, target and horizon: of a few shares each
weighs its error so far to a high negative power. The errors begin as those on simulated houses that the network was not
trained on, then come the zone's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from models.durations import DAY_MS
from models.features.inputs import clear_sky_w_m2
from models.network.house_features import hats
from models.network.plain_network import PlainNetwork
from models.online.basis import StepRows
from models.online.corrections.house_memory import HouseMemory, channels_of
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays, whose_turn

__all__ = ["Pretrained", "PretrainedCorrection"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_Bool = npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]

SHARES = np.linspace(0, 1, 5, dtype=np.float32)
"""Shares of the network's shift that are compared."""

POWER = 20.0
"""Each weighs its error to this negative power. The errors of neighbouring shares are nearly the same, so that a low
power would hardly tell them apart."""

OWN = 32.0
"""Errors on simulated houses weigh as much as this many examples of a zone's own. Those of other zones are not asked:
on recordings that changes nothing, and a zone's forecast does not hang on what its neighbours are told of plans."""

DAYS = 2.0
"""How long errors are remembered: in a zone's first days the forecast that is corrected becomes another every day."""

MOST_ZONES = 512
"""With more zones than this, this many at a time are asked of the network; the others keep what was said last."""

FINENESS = 250.0
"""Shares are followed in steps of a two hundred and fiftieth."""

LIMIT = 4.0
"""No forecast is moved by more than this many times the usual error on simulated houses: the network counts in widths
of intervals, and in a house that nothing foresees these are very wide."""


@dataclass(frozen=True, slots=True, eq=False)
class Pretrained:
    """A pre-trained network's arrays, and its errors in simulated zones that it was not trained on, as shares of the
    errors of the forecast without it: with half of its shift and with all of it, ``[G, 4]`` by ``HORIZONS_MIN`` and
    ``TARGETS`` of :mod:`models.network.house_features`.
    """

    arrays: Mapping[str, _Array]
    half: F64
    whole: F64


class PretrainedCorrection:
    """What the network adds to the forecasts of many zones, vectorised over them.

    Each step, in this order: :meth:`learn` with the truths that came and :meth:`see` with the new rows; at examples
    :meth:`ask` or :meth:`end`, and :meth:`keep` what was asked. :meth:`added` is what counts until the next example.
    ``slots`` and places are those of the forecaster's examples.
    """

    def __init__(
        self, spec: ForecastSpec, stride: int, slots: int, made: Pretrained, capacity: int = 16, days: float = DAYS,
        memory: HouseMemory | None = None,
    ) -> None:  # fmt: skip
        """``days``: how long errors are remembered. A ``memory`` is another's, who shows it rows and keeps it."""
        self._spec, self._stride = spec, stride
        self._network = PlainNetwork(spec, made.arrays, channels_of(spec))
        self._owns_memory = memory is None
        self.memory = HouseMemory(spec, stride, capacity) if memory is None else memory
        self._steps = np.array((0, *spec.horizon_steps), dtype=np.int64)
        features = self._network.features
        cells = (len(spec.horizons_min), len(spec.targets))
        self._size, expected = np.ones(cells), np.ones((*cells, len(SHARES)))
        grid = hats(np.array(spec.horizons_min, dtype=np.float64)).astype(np.float64)
        for place, known in features.targets_known():
            self._size[:, place] = features.error[:, known]
            half, whole = (grid @ errors[:, known] for errors in (made.half, made.whole))
            bend = 2 * whole + 2 - 4 * half  # other shares lie on the parabola through these
            expected[:, place] = 1 + np.outer(whole - 1 - bend, SHARES) + np.outer(bend, SHARES**2)
        self._farthest = (LIMIT * self._size).astype(np.float32)
        self._prior = (OWN * expected * self._size[..., None]).astype(np.float32)
        self._keep = np.float32(np.exp(-stride / (days * spec.steps_per_day)))
        targets = len(spec.targets)
        self._zones = ZoneArrays(
            capacity,
            said=((slots, targets), np.float16, 0.0),
            followed=((slots, targets), np.uint8, 0),  # the share of it, in steps of FINENESS
            off=((*cells, len(SHARES)), np.float32, 0.0),  # sums of errors
            shift=(cells, np.float16, 0.0),
            share=(cells, np.uint8, 0),
        )

    def add_zones(self, count: int = 1) -> None:
        """Make room for more zones."""
        if self._owns_memory:
            self.memory.add_zones(count)
        self._zones.add(count)

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all. Call it often; see ``ZoneArrays.prepare``."""
        if self._owns_memory:
            self.memory.prepare(zones)
        self._zones.prepare(zones)

    def learn(self, indices: I64, h: I64, at: I64, due: _Bool, y: F32, base: F32) -> None:
        """Truths ``y [Z, M]`` of horizons ``h [P]``, whose forecasts waited at ``at [P]``, for zones ``due [Z, P]``:
        without this network they were ``base [Z, P, M]``.
        """
        s, zone = self._zones, indices[:, None]
        said = s["said"][zone, at].astype(np.float32)
        off = np.abs((base - y[:, None])[..., None] + said[..., None] * SHARES)  # [Z, P, M, S]
        known = np.isfinite(off) & due[..., None, None]
        off = np.where(known, off, np.float32(0))
        here = np.asarray(known.any(axis=-1, keepdims=True))
        s["off"][zone, h] = s["off"][zone, h] * np.where(here, self._keep, np.float32(1)) + off

    def see(self, rows: StepRows) -> None:
        """Take the rows of one step."""
        self.memory.see(rows.zones, rows.step, rows.values, rows.foreseen)

    def ask(self, rows: StepRows, base: F32, most: F32) -> tuple[I64, F32, F32]:
        """Ask the network how ``base [Z, H, M, Q]``, the forecast from ``rows`` without it, is to be moved; they were
        seen already.

        At ``most [Z, M]`` of what it says is followed. Returns the places in ``rows`` of the zones that were asked, and
        what the network looked at.
        """
        count = len(rows.zones)
        turn = np.arange(count)[whose_turn(count, MOST_ZONES, rows.step // self._stride)]
        asked, step, memory = rows.of(turn), rows.step, self.memory
        future = np.empty((len(turn), len(self._spec.horizons_min), 0), np.float32)
        if asked.foreseen is not None and np.isfinite(asked.foreseen).any():
            memory.remember_planned()
            future = memory.foreseen_off(asked.zones, step, asked.foreseen)
        origin, ahead = self._network.features(
            memory.window(asked.zones, step), memory.now(asked.zones, step, asked.values),
            self._calendar(asked.day_bin), _light(asked.sun), memory.yesterday(asked.zones, step), future, base[turn],
        )  # fmt: skip
        shift = self._network.shift_of(origin, ahead, base[turn])
        self._zones["shift"][asked.zones] = np.clip(shift, -self._farthest, self._farthest)
        share = self._weigh(asked.zones) * most[turn][:, None]
        self._zones["share"][asked.zones] = np.rint(share * np.float32(FINENESS))
        return turn, origin, ahead

    def tune(self, arrays: Mapping[str, _Array]) -> None:
        """Ask another network from now on; raises ``ValueError`` if it does not fit."""
        self._network = PlainNetwork(self._spec, arrays, channels_of(self._spec))

    def end(self, indices: I64) -> None:
        """Add nothing more to the forecasts of zones whose first days are over; they need not be asked any more."""
        self._zones["share"][indices] = 0

    def keep(self, indices: I64, at: I64) -> None:
        """Remember what was said of an example, and what share of it is followed, until its truth comes."""
        s, zone = self._zones, indices[:, None]
        s["said"][zone, at], s["followed"][zone, at] = s["shift"][indices], s["share"][indices]

    def added(self, indices: I64) -> F32:
        """What is added to the median, ``[Z, H, M]``."""
        return self._part(self._zones["share"][indices], self._zones["shift"][indices])

    def said(self, indices: I64) -> F32:
        """How far the network would move the median, ``[Z, H, M]``, if it were followed altogether."""
        return np.asarray(self._zones["shift"][indices], dtype=np.float32)

    def moved(self, zones: I64, at: I64) -> F32:
        """What was added to the forecasts that wait at ``at [N]`` of ``zones [N]``, or of any that fit, ``[N, M]``."""
        return self._part(self._zones["followed"][zones, at], self._zones["said"][zones, at])

    def _part(self, share: _Array, said: _Array) -> F32:
        """The ``share`` of what was ``said``, the same to the last bit while it counts and when its truth comes."""
        return np.asarray(share * np.float32(1 / FINENESS) * said.astype(np.float32), dtype=np.float32)

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """Everything that was learned (see :meth:`ZoneArrays.state_dict`)."""
        memory = {"memory": self.memory.state_dict(copy)} if self._owns_memory else {}
        return {**memory, "zones": self._zones.state_dict(copy)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit."""
        if self._owns_memory:
            self.memory.load_state_dict(state["memory"])
        self._zones.load_state_dict(state["zones"])

    def _weigh(self, zones: I64) -> F32:
        """The share that is followed, as errors are known now, ``[Z, H, M]``."""
        error = self._prior + self._zones["off"][zones]
        weight = (error / error.min(axis=-1, keepdims=True)) ** np.float32(-POWER)
        return np.asarray((weight @ SHARES) / weight.sum(axis=-1), dtype=np.float32)

    def _calendar(self, day_bin: I64) -> F32:
        """As :class:`~models.features.inputs.Inputs` has it."""
        in_day = (day_bin[:, None] + self._steps) * self._spec.step_ms % DAY_MS
        angle = in_day * (2 * np.pi / DAY_MS)
        turns = (np.sin(angle), np.cos(angle), np.sin(2 * angle), np.cos(2 * angle))
        return np.stack(turns, axis=-1, dtype=np.float32)


def _light(sun: F32) -> F32:
    """Sines of the sun's elevation as :class:`~models.features.inputs.Inputs` has the sun."""
    elevation = np.rad2deg(np.arcsin(np.clip(sun, -1, 1)))
    clear = np.where(np.isnan(elevation), np.float32(np.nan), clear_sky_w_m2(elevation))
    return np.stack([elevation / 90, clear / 1000], axis=-1, dtype=np.float32)
