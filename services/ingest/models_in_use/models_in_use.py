"""Step 16 of the way of a reading, in a shard: looks now and then which trees and which fine-tuned network to use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from edge.timing import Periodic
from models.spec import ForecastSpec
from services.config import Settings
from services.ingest.figures import Failures
from services.ingest.models_in_use.trees_in_use import HasTrees, TreesInUse
from services.ingest.models_in_use.tuned_in_use import HasTuned, TunedInUse
from services.store.storage import Storage, address_of

__all__ = ["TUNED_LOOKS", "ModelsInUse"]

TUNED_LOOKS = 6
"""A network that is fine-tuned changes every few days: it is looked for so many times less often than trees are."""


class HasModels(HasTrees, HasTuned, Protocol):
    """The part of a ``PartitionLearner`` that concerns models which were trained elsewhere."""


class ModelsInUse:
    """One thread calls :meth:`look`; ``clock_s`` is monotonic."""

    def __init__(
        self, settings: Settings, storage: Storage, spec: ForecastSpec, failures: Failures, clock_s: Callable[[], float]
    ) -> None:
        where = address_of(settings).remote
        self._trees = TreesInUse(storage, spec, failures, clock_s, where)
        self._tuned = TunedInUse(storage, spec, failures, clock_s, where)
        self._fine_tunes = settings.learn.tuned_every_days > 0
        self._tree_looks, self._tuned_looks = Periodic(storage.poll_s), Periodic(TUNED_LOOKS * storage.poll_s)

    @property
    def versions(self) -> dict[str, str]:
        """Expert -> the version that its forecasts are made with; ``online`` without a model."""
        return {"trees": self._trees.version, "tuned": self._tuned.version}

    def look(self, learners: Sequence[HasModels], save: Callable[[], None], now_s: float) -> None:
        """Have the learners use what the pointers name, as often as the storage is to be asked. ``save`` makes a change
        durable; its errors are passed on.
        """
        if self._tree_looks.due(now_s):
            self._trees.look(learners, save)
        if self._fine_tunes and self._tuned_looks.due(now_s):
            self._tuned.look(learners, save)
