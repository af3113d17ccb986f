"""Step 8 of the way of a reading: what a network that is fine-tuned to a site adds to forecasts of any age.

It stands beside the other parts of an :class:`~models.online.online_forecaster.OnlineForecaster`, which learn nothing
of it. In a zone's first days the network of the package is followed as before; then this one takes over. Which share of
it is followed is learned for each zone, target and horizon, as for that one: a network that is no use costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from models.online.basis import StepRows
from models.online.corrections.house_memory import HouseMemory
from models.online.corrections.pretrained_correction import Pretrained, PretrainedCorrection
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays

__all__ = ["EVERY", "KEPT_DAYS", "Shown", "TunedCorrection"]

F16 = npt.NDArray[np.float16]
F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
_Bool = npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]

DAYS = 14.0
"""How long errors are remembered."""

GAIN = 0.02
"""With half of what it says the error is expected to be this much smaller, with all of it no smaller: it is asked where
little can be said."""

KEPT_DAYS = 60
"""How long examples are kept to be trained on."""

EVERY = 2
"""Each second example is: those between say nearly the same."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a network looked at at one step, in ``Z`` zones: an example to train it on, once the truth has come."""

    step: int
    zones: I64  # [Z]
    origin: F16  # [Z, D], features of :class:`models.network.house_features.HouseFeatures`
    ahead: F16  # [Z, H, E]
    base: F32  # [Z, H, M, Q], the forecasts without it

    def take(self, places: I64) -> Shown:
        """Those of the zones at ``places``."""
        return Shown(
            self.step, self.zones[places], self.origin[places], self.ahead[places], self.base[places]
        )  # fmt: skip


class TunedCorrection:
    """Of many zones, vectorised over them.

    Each step: :meth:`learn` with the truths that came; at examples :meth:`ask`. ``memory`` is shown all rows.
    :meth:`added` is what counts until the next example, and :meth:`keep` remembers it. ``slots``, places and ``stride``
    are those of the forecaster's examples. Until it is given a network of its own by :meth:`tune`, it asks that of the
    package, learns how far to follow it, and adds nothing.
    """

    def __init__(
        self, spec: ForecastSpec, stride: int, slots: int, made: Pretrained, memory: HouseMemory, capacity: int = 16
    ) -> None:  # fmt: skip
        self._stride, self._package = stride, made.arrays
        shape = np.ones_like(made.half)
        # Half of a gain is believed beforehand.
        expected = Pretrained(made.arrays, shape * (1 - 2 * GAIN), shape)
        self._correction = PretrainedCorrection(spec, stride, slots, expected, capacity, DAYS, memory)
        self._zones = ZoneArrays(capacity, added=((slots, len(spec.targets)), np.float16, 0.0))
        self.arrays: Mapping[str, _Array] = {}
        """Those of the network that is followed; none before :meth:`tune`."""
        self.shown: Shown | None = None
        """Of the newest step, where that gave an example to train on. It is no part of the state."""

    def add_zones(self, count: int = 1) -> None:
        """Make room for more zones."""
        self._correction.add_zones(count)
        self._zones.add(count)

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all. Call it often; see ``ZoneArrays.prepare``."""
        self._correction.prepare(zones)
        self._zones.prepare(zones)

    def tune(self, arrays: Mapping[str, _Array]) -> None:
        """Follow this network from the next example on, or none where there are no arrays.

        Raises ``ValueError`` if it does not fit.
        """
        self._correction.tune(arrays or self._package)
        self.arrays = {name: arrays[name] for name in sorted(arrays)}  # equal states are equal bytes

    def learn(self, indices: I64, h: I64, at: I64, due: _Bool, y: F32, base: F32) -> None:
        """Truths of forecasts that waited at ``at``: as :meth:`PretrainedCorrection.learn`."""
        self._correction.learn(indices, h, at, due, y, base)

    def ask(self, rows: StepRows, base: F32, at: I64) -> None:
        """Ask the network about an example, which is to wait at ``at [H]``; ``base [Z, H, M, Q]`` is what is forecast
        from ``rows`` without it.
        """
        most = np.ones((len(rows.zones), base.shape[2]), np.float32)
        turn, origin, ahead = self._correction.ask(rows, base, most)
        self._correction.keep(rows.zones, at)
        if rows.step // self._stride % EVERY == 0:
            looked_at = origin.astype(np.float16), ahead.astype(np.float16)
            self.shown = Shown(rows.step, rows.zones[turn], *looked_at, base[turn])

    def added(self, indices: I64, package: F32, young: F32) -> F32:
        """What is added to every quantile, ``[Z, H, M]``, instead of what the ``package``'s network adds.

        ``young [Z, M]`` is the weight of the first days. It is as :meth:`moved` gives it when its truth comes, to the
        last bit.
        """
        added = (1 - young)[:, None] * (self._correction.added(indices) - package)
        return np.asarray(added.astype(np.float16), np.float32)

    def keep(self, indices: I64, at: I64, added: F32) -> None:
        """Remember what is added to an example's forecast, ``[Z, H, M]``."""
        self._zones["added"][indices[:, None], at] = added

    def moved(self, zones: I64, at: I64) -> F32:
        """What was added to the forecasts that wait at ``at [N]`` of ``zones [N]``, or of any that fit, ``[N, M]``."""
        return np.asarray(self._zones["added"][zones, at], np.float32)

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """Everything that was learned, with the network that is followed (see :meth:`ZoneArrays.state_dict`)."""
        return {
            "correction": self._correction.state_dict(copy),
            "zones": self._zones.state_dict(copy),
            "arrays": dict(self.arrays),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit."""
        self._correction.load_state_dict(state["correction"])
        self._zones.load_state_dict(state["zones"])
        self.tune(state["arrays"])
