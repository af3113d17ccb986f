"""Step 16 of the way of a reading, in a shard: which network that was fine-tuned corrects its partitions' forecasts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from models.network.tuned_network import TunedNetwork
from models.online.online_forecaster import OnlineForecaster
from services.errors import ModelFilesError
from services.ingest.models_in_use.model_in_use import ModelInUse
from services.messages import ONLINE_VERSION
from services.store.pointer import Pointed

__all__ = ["HasTuned", "TunedInUse"]

Arrays = Mapping[str, npt.NDArray[np.float32]]


class HasTuned(Protocol):
    """The part of a ``PartitionLearner`` that concerns the network that is fine-tuned."""

    @property
    def forecaster(self) -> OnlineForecaster:
        """The forecaster of its zones."""

    def tune(self, arrays: Arrays) -> None:
        """Follow this network from now on; none where there are no arrays."""


class TunedInUse(ModelInUse[HasTuned, Arrays]):
    """See :class:`ModelInUse`. Of learners whose forecaster fine-tunes."""

    name = "tuned"

    def _load(self, pointed: Pointed, learner: HasTuned) -> Arrays:
        if pointed.version == ONLINE_VERSION:
            return {}
        model = self._artefact(pointed)
        if not isinstance(model, TunedNetwork):
            raise ModelFilesError(f"{pointed.version} is a {type(model).__name__}, none that was fine-tuned")
        return model.arrays()

    def _used(self, learner: HasTuned) -> Arrays:
        tuned = learner.forecaster.corrections.tuned
        assert tuned is not None
        return tuned.arrays

    def _use(self, learner: HasTuned, model: Arrays) -> None:
        learner.tune(model)

    def _arrays(self, model: Arrays) -> Mapping[str, Any]:
        return model
