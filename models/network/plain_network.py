"""Step 7 of the way of a reading: a pre-trained network, asked with NumPy alone.

What :class:`~models.network.pretrained.PretrainedNetwork` computes in torch, for who only asks: the learners of a shard
and of the library know no torch. It gives the median only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from models.network.house_features import HORIZONS_MIN, TARGETS, HouseFeatures
from models.spec import QUANTILES, ForecastSpec

__all__ = ["FARTHEST", "PlainNetwork"]

F32 = npt.NDArray[np.float32]

FARTHEST = 3.0
"""The median moves by no more than this many widths of the baseline's interval."""

_LAYERS = ("encode", "narrow", "look", "decode", "head")


class PlainNetwork:
    """The network of ``arrays``, those of a pre-trained artefact, for the rows of ``spec``.

    ``channels`` names the last axis of its windows (see :class:`HouseFeatures`). Raises ``ValueError`` where arrays do
    not fit these features.
    """

    def __init__(
        self, spec: ForecastSpec, arrays: Mapping[str, npt.NDArray[Any]], channels: Sequence[str] | None = None
    ) -> None:
        self.features = HouseFeatures(spec, channels)
        try:
            layers = {name: np.ascontiguousarray(arrays[f"{name}.weight"].T, np.float32) for name in _LAYERS}
            self._bias = {name: arrays[f"{name}.bias"].astype(np.float32) for name in _LAYERS}
            horizon, self._trust = arrays["horizon"], np.float32(arrays["trust"])
        except KeyError as error:
            raise ValueError(f"these are no arrays of a pre-trained network: {error} is missing") from error
        width, ahead = self.features.width, self.features.ahead_width
        shapes = (len(layers["encode"]), len(layers["look"]), len(horizon))
        if shapes != (2 * width, 2 * ahead, len(HORIZONS_MIN)):
            raise ValueError(f"arrays of shape {shapes} are of other features than {(2 * width, 2 * ahead)}")
        self._layers = layers
        self._horizon = self.features.position @ horizon.astype(np.float32)
        self._places = self.features.targets_known()
        median = [target * len(QUANTILES) for target in range(len(TARGETS))]  # the first of each is the shift's
        self._head, self._head_bias = layers["head"][:, median], self._bias["head"][median]
        self._targets = len(spec.targets)

    def shift(self, window: F32, now: F32, calendar: F32, sun: F32, yesterday: F32, future: F32, baseline: F32) -> F32:
        """How far the median of ``baseline [N, H, M, Q]`` is to be moved, ``[N, H, M]``, in the targets' units; 0 for
        targets that no house of the fleet has, and where the baseline is unknown.

        Arguments are the arrays of :class:`~models.features.inputs.Inputs`.
        """
        return self.shift_of(*self.features(window, now, calendar, sun, yesterday, future, baseline), baseline)

    def shift_of(self, origin: F32, ahead: F32, baseline: F32) -> F32:
        """The same from features that were made before."""
        common = np.maximum(self._through("encode", origin), 0) @ self._layers["narrow"] + self._bias["narrow"]
        shown = self._through("look", ahead)
        shown += common[:, None] + self._horizon
        np.maximum(shown, 0, out=shown)
        shown += np.maximum(shown @ self._layers["decode"] + self._bias["decode"], 0)
        out = np.clip(shown @ self._head + self._head_bias, -FARTHEST, FARTHEST) * self._trust
        shift = np.zeros((*out.shape[:2], self._targets), np.float32)
        for place, target in self._places:
            shift[..., place] = out[..., target]
        shift *= baseline[..., -1] - baseline[..., 0]
        return np.where(np.isfinite(shift), shift, np.float32(0))

    def _through(self, name: str, x: F32) -> F32:
        """A layer of which half the inputs say what is missing."""
        missing = np.isnan(x)
        weights, width = self._layers[name], x.shape[-1]
        return (
            np.where(missing, np.float32(0), x) @ weights[:width]
            + missing.astype(np.float32) @ weights[width:]
            + self._bias[name]
        )
