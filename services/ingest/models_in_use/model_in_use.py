"""Step 16 of the way of a reading, in a shard: which model its partitions ask themselves when they forecast.

The storage's pointer names it, as the model pointer names the network. A shard that takes another up saves at once,
before it reads on: so every snapshot has the model that its rows were learned with, and a replay after a crash never
goes over a change of models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from edge.timing import Backoff
from models import artefact
from models.families import Model
from models.spec import ForecastSpec
from services.errors import ModelFilesError
from services.ingest.figures import Failures
from services.store.pointer import NOWHERE, Pointed, Pointer
from services.store.storage import Storage, StorageAddress, fetch_folder

__all__ = ["UNREGISTERED", "ModelInUse"]

UNREGISTERED = "unregistered"
FIRST_PAUSE_S, LAST_PAUSE_S = 5.0, 300.0
"""A model that could not be loaded is tried again after the first pause, then after twice as long each time, up to the
last."""

_L = TypeVar("_L")
_M = TypeVar("_M")


class ModelInUse(ABC, Generic[_L, _M]):
    """Follows the pointer of the expert ``name``, for the learners ``_L`` of partitions, which use models ``_M``.

    One thread calls :meth:`look`; ``clock_s`` is monotonic, and paces what failed. ``where`` is the object store that
    keeps models, if there is one.
    """

    name: str

    def __init__(
        self, storage: Storage | Path, spec: ForecastSpec, failures: Failures, clock_s: Callable[[], float],
        where: StorageAddress | None = None,
    ) -> None:  # fmt: skip
        self._where = where
        self._pointer = Pointer(storage, self.name)
        self._spec, self._failures, self._clock_s = spec, failures, clock_s
        self._in_use = self._failed = NOWHERE
        self._found = False  # a model in the snapshot that nothing on the storage names
        self._backoff = Backoff(FIRST_PAUSE_S, LAST_PAUSE_S)

    @property
    def version(self) -> str:
        """What forecasts are made with, once it was looked at; ``online`` without a model, and ``unregistered`` where
        it is that of a snapshot and nothing names it any more.
        """
        return UNREGISTERED if self._found else self._in_use.version

    def look(self, learners: Sequence[_L], save: Callable[[], None]) -> None:
        """Load the model that the pointer names. If that fails, it is reported and tried again, after pauses that grow;
        the earlier one stays.

        ``save`` makes the new state durable. Its errors are passed on, with the earlier model in use.
        """
        now_s, pointed = self._clock_s(), self._failed
        try:
            pointed = self._pointed()
            self._found = pointed == NOWHERE and any(self._arrays(self._used(one)) for one in learners)
            if pointed == self._in_use:
                self._done(pointed)
                return
            if pointed == self._failed and not self._backoff.is_over(now_s):
                return
            loaded = [self._load(pointed, one) for one in learners]
        except ModelFilesError as error:
            if pointed != self._failed:
                self._backoff.reset()
            elif not self._backoff.is_over(now_s):
                return  # the pointer itself cannot be read
            self._failed = pointed
            self._backoff.failed(now_s)
            self._failures.failed(self.name, error)
            return
        before = [self._used(one) for one in learners]
        if any(map(self._differ, before, loaded)):  # else they are those of the snapshot
            try:
                self._use_all(learners, loaded)
                save()
            except BaseException:
                self._use_all(learners, before)
                raise
        self._done(pointed)

    @abstractmethod
    def _load(self, pointed: Pointed, learner: _L) -> _M:
        """What a learner is to use; raises :class:`ModelFilesError`."""

    @abstractmethod
    def _used(self, learner: _L) -> _M:
        """What a learner uses now."""

    @abstractmethod
    def _use(self, learner: _L, model: _M) -> None:
        """Have a learner use it from now on."""

    @abstractmethod
    def _arrays(self, model: _M) -> Mapping[str, Any]:
        """What a snapshot has of it; empty where there is no model."""

    def _pointed(self) -> Pointed:
        return self._pointer.read()

    def _artefact(self, pointed: Pointed) -> Model:
        """The model in a folder, which gives its golden output here."""
        try:
            fetch_folder(self._where, Path(pointed.folder))
            found = artefact.load(Path(pointed.folder), self._spec.hash)
            found.verify_golden()
        except Exception as error:  # a bad artefact of any kind must not end the shard
            raise ModelFilesError(f"{pointed.version} cannot be used: {error}") from error
        return found.model

    def _done(self, pointed: Pointed) -> None:
        self._in_use, self._failed = pointed, NOWHERE
        self._backoff.reset()
        self._failures.works(self.name)

    def _use_all(self, learners: Sequence[_L], models: Sequence[_M]) -> None:
        for learner, model in zip(learners, models, strict=True):
            self._use(learner, model)

    def _differ(self, one: _M, other: _M) -> bool:
        a, b = self._arrays(one), self._arrays(other)
        return set(a) != set(b) or any(_bytes(a[name]) != _bytes(b[name]) for name in a)


def _bytes(array: Any) -> tuple[Any, ...]:
    return array.dtype, array.shape, array.tobytes()
