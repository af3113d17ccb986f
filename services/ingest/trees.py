"""Step 16 of the way of a reading, in a shard: which trees its partitions forecast with.

The storage's pointer names them, as the model pointer names the network. A shard that takes others up saves at once,
before it reads on: so every snapshot has the trees that its rows were learned with, and a replay after a crash never
goes over a change of trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from edge.timing import Backoff
from models import artefact
from models.online.online_forecaster import OnlineForecaster
from models.spec import ForecastSpec
from models.trees.family import Trees
from models.trees.forest import Forest
from services.errors import ModelFilesError
from services.ingest.figures import Failures
from services.messages import ONLINE_VERSION
from services.store.forests import Forests
from services.store.pointer import NOWHERE, Pointed, Pointer
from services.store.storage import Storage, StorageAddress, fetch_folder

__all__ = ["HasTrees", "TreesInUse"]

UNREGISTERED = "unregistered"
FIRST_PAUSE_S, LAST_PAUSE_S = 5.0, 300.0
"""Trees that could not be loaded are tried again after the first pause, then after twice as long each time, up to the
last."""


class HasTrees(Protocol):
    """The part of :class:`services.ingest.partition.Partition` that concerns trees."""

    forecaster: OnlineForecaster

    def grow_trees(self, forest: Forest) -> None:
        """Use these trees from now on."""


class TreesInUse:
    """Follows the pointer. One thread calls :meth:`look`; ``clock_s`` is monotonic, and paces what failed. ``where`` is
    the object store that keeps models, if there is one.
    """

    def __init__(
        self, storage: Storage | Path, spec: ForecastSpec, failures: Failures, clock_s: Callable[[], float],
        where: StorageAddress | None = None,
    ) -> None:  # fmt: skip
        self._where = where
        self._pointer, self._older = Pointer(storage, "trees"), Forests(storage)
        self._spec, self._failures, self._clock_s = spec, failures, clock_s
        self._in_use = self._failed = NOWHERE
        self._found = False  # trees in the snapshot that nothing on the storage names
        self._backoff = Backoff(FIRST_PAUSE_S, LAST_PAUSE_S)

    @property
    def version(self) -> str:
        """What forecasts are made with, once it was looked at; ``online`` without trees, and ``unregistered`` where
        they are those of a snapshot and nothing names them any more.
        """
        return UNREGISTERED if self._found else self._in_use.version

    def look(self, partitions: Sequence[HasTrees], save: Callable[[], None]) -> None:
        """Load the trees that the pointer names. If that fails, it is reported and tried again, after pauses that grow;
        the earlier trees stay.

        ``save`` makes the new state durable. Its errors are passed on, with the earlier trees in use.
        """
        now_s, pointed = self._clock_s(), self._failed
        try:
            pointed = self._pointed()
            self._found = pointed == NOWHERE and any(len(one.forecaster.forest) for one in partitions)
            if pointed == self._in_use:
                self._done(pointed)
                return
            if pointed == self._failed and not self._backoff.is_over(now_s):
                return
            loaded = [self._load(pointed, one.forecaster.regressors) for one in partitions]
        except ModelFilesError as error:
            if pointed != self._failed:
                self._backoff.reset()
            elif not self._backoff.is_over(now_s):
                return  # the pointer itself cannot be read
            self._failed = pointed
            self._backoff.failed(now_s)
            self._failures.failed("trees", error)
            return
        before = [one.forecaster.forest for one in partitions]
        if any(map(_differ, before, loaded)):  # else they are those of the snapshot
            try:
                _use(partitions, loaded)
                save()
            except BaseException:
                _use(partitions, before)
                raise
        self._done(pointed)

    def _done(self, pointed: Pointed) -> None:
        self._in_use, self._failed = pointed, NOWHERE
        self._backoff.reset()
        self._failures.works("trees")

    def _pointed(self) -> Pointed:
        """What the pointer names; where it was never moved, the newest trees of before there was one."""
        pointed = self._pointer.read()
        if pointed == NOWHERE and (name := self._older.newest()):
            return Pointed(NOWHERE.generation, name, "")
        return pointed

    def _load(self, pointed: Pointed, regressors: int) -> Forest:
        if pointed.version == ONLINE_VERSION:
            return Forest(len(self._spec.horizons_min), len(self._spec.targets))
        if not pointed.folder:
            return self._older.load(pointed.version, self._spec, regressors)
        try:
            fetch_folder(self._where, Path(pointed.folder))
            found = artefact.load(Path(pointed.folder), self._spec.hash)
            found.verify_golden()
        except Exception as error:  # a bad artefact of any kind must not end the shard
            raise ModelFilesError(f"{pointed.version} cannot be used: {error}") from error
        model = found.model
        if not isinstance(model, Trees):
            raise ModelFilesError(f"{pointed.version} is a model of kind {found.kind}, which cannot answer in a shard")
        if model.regressors != regressors:
            raise ModelFilesError(f"{pointed.version} takes {model.regressors} regressors, rows now give {regressors}")
        return model.forest


def _use(partitions: Sequence[HasTrees], forests: Sequence[Forest]) -> None:
    for partition, forest in zip(partitions, forests, strict=True):
        partition.grow_trees(forest)


def _differ(one: Forest, other: Forest) -> bool:
    a, b = one.state_dict(), other.state_dict()
    return set(a) != set(b) or any(_bytes(a[name]) != _bytes(b[name]) for name in a)


def _bytes(array: Any) -> tuple[Any, ...]:
    return array.dtype, array.shape, array.tobytes()
