"""Step 16 of the way of a reading, in a shard: which trees its partitions forecast with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from models.online.online_forecaster import OnlineForecaster
from models.spec import ForecastSpec
from models.trees.family import Trees
from models.trees.forest import Forest
from services.errors import ModelFilesError
from services.ingest.figures import Failures
from services.ingest.models_in_use.model_in_use import ModelInUse
from services.messages import ONLINE_VERSION
from services.store.forests import Forests
from services.store.pointer import NOWHERE, Pointed
from services.store.storage import Storage, StorageAddress

__all__ = ["HasTrees", "TreesInUse"]


class HasTrees(Protocol):
    """The part of a ``PartitionLearner`` that concerns trees."""

    @property
    def forecaster(self) -> OnlineForecaster:
        """The forecaster of its zones."""

    def use_trees(self, forest: Forest) -> None:
        """Use these trees from now on."""


class TreesInUse(ModelInUse[HasTrees, Forest]):
    """See :class:`ModelInUse`."""

    name = "trees"

    def __init__(
        self, storage: Storage | Path, spec: ForecastSpec, failures: Failures, clock_s: Callable[[], float],
        where: StorageAddress | None = None,
    ) -> None:  # fmt: skip
        super().__init__(storage, spec, failures, clock_s, where)
        self._older = Forests(storage)

    def _pointed(self) -> Pointed:
        """What the pointer names; where it was never moved, the newest trees of a release that had no pointer."""
        pointed = super()._pointed()
        if pointed == NOWHERE and (name := self._older.newest()):
            return Pointed(NOWHERE.generation, name, "")
        return pointed

    def _load(self, pointed: Pointed, learner: HasTrees) -> Forest:
        regressors = learner.forecaster.regressors
        if pointed.version == ONLINE_VERSION:
            return Forest(len(self._spec.horizons_min), len(self._spec.targets))
        if not pointed.folder:
            return self._older.load(pointed.version, self._spec, regressors)
        model = self._artefact(pointed)
        if not isinstance(model, Trees):
            raise ModelFilesError(f"{pointed.version} is a {type(model).__name__}, no trees")
        if model.regressors != regressors:
            raise ModelFilesError(f"{pointed.version} takes {model.regressors} regressors, rows now give {regressors}")
        return model.forest

    def _used(self, learner: HasTrees) -> Forest:
        return learner.forecaster.forest

    def _use(self, learner: HasTrees, model: Forest) -> None:
        learner.use_trees(model)

    def _arrays(self, model: Forest) -> Mapping[str, Any]:
        return model.state_dict() if len(model) else {}
