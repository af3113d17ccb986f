"""Steps 8 and 13 of the way of a reading: the family of networks that are fine-tuned to a site.

Such a network is that of the package with other weights. It answers in the shards, with NumPy alone, and corrects what
is forecast there (:mod:`models.online.corrections.tuned_correction`); torch is needed to train it
(:mod:`models.pretraining.fine_tuner`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from models.network.plain_network import PlainNetwork
from models.online.corrections.house_memory import channels_of
from models.spec import ForecastSpec

if TYPE_CHECKING:
    from models.families import F32, I64, Arrays, Model
    from models.features.windows import WindowSet

__all__ = ["CorrectionInputs", "TunedFamily", "TunedNetwork"]

FOLLOWED = 0.5
"""How much of it is followed where no zone has learned that yet: half of it gains most (ADR 48)."""


@dataclass(frozen=True, slots=True)
class CorrectionInputs:
    """What the network looks at in ``N`` examples, and the forecasts that it corrects."""

    origin: npt.NDArray[np.float16]  # [N, D], features of :class:`models.network.house_features.HouseFeatures`
    ahead: npt.NDArray[np.float16]  # [N, H, E]
    baseline: npt.NDArray[np.float32]  # [N, H, M, Q]


class TunedNetwork:
    """A network of ``arrays``. Raises ``ValueError`` where they do not fit the schema."""

    def __init__(self, spec: ForecastSpec, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.spec, self._arrays = spec, arrays
        self._network = PlainNetwork(spec, arrays, channels_of(spec))

    @property
    def options(self) -> dict[str, Any]:
        """None: its sizes are those of its arrays."""
        return {}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Its weights."""
        return {name: array.copy() for name, array in self._arrays.items()}

    def answer(self, inputs: CorrectionInputs) -> F32:
        """The forecasts ``[N, H, M, Q]`` with half of what it says, which moves all quantiles alike."""
        origin, ahead = inputs.origin.astype(np.float32), inputs.ahead.astype(np.float32)
        shift = self._network.shift_of(origin, ahead, inputs.baseline)
        return np.asarray(inputs.baseline + np.float32(FOLLOWED) * shift[..., None], np.float32)


class TunedFamily:
    """See :class:`models.families.ModelFamily`. Equal examples give equal weights; each begins with the package's."""

    refits = True

    def make(self, spec: ForecastSpec, options: Mapping[str, Any]) -> TunedNetwork:
        """The network that comes with the package."""
        from models.pretraining.shipped_arrays import pretrained

        return TunedNetwork(spec, pretrained().arrays)

    def fit(
        self, cases: WindowSet, origins: I64, settings: Mapping[str, Any], *, cut_ms: int, start: Model | None = None
    ) -> TunedNetwork:
        """Raises ``TypeError``: rows are not what it learns from, but examples that shards keep."""
        raise TypeError("it is fine-tuned on the examples that shards keep, by a job of its own")

    def load(self, spec: ForecastSpec, options: Mapping[str, Any], arrays: Arrays) -> TunedNetwork:
        """The network with these weights."""
        return TunedNetwork(spec, arrays)
