"""Step 16 of the way of a reading: the model pointer names the champion, and the replicas follow it.

The slow loop touches the fast loop here only: the retrainer calls ``set``, each Forecaster replica waits for a newer
generation, loads it beside what it serves, and reports what came of it. The model pointer is one small file, so that a
restarted actor, or a restarted system, serves on with the champion it had.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from services.messages import ForecasterFigures, ServedModel
from services.store.pointer import Pointed, Pointer
from services.store.storage import StorageAddress, open_storage

__all__ = ["ModelPointer", "ModelPointerStatus", "PointerAnswer", "ReplicaReport"]

FORGET_REPLICA_S = 60.0


class ReplicaReport(TypedDict):
    """What one replica serves; ``error`` says why it does not serve the champion, empty when it does."""

    generation: int
    version: str
    error: str


class ModelPointerStatus(TypedDict):
    """The champion, and what each replica that is alive serves."""

    champion: ServedModel
    replicas: dict[str, ReplicaReport]


class PointerAnswer(TypedDict, total=False):
    """:class:`ModelPointerStatus`, or the ``error`` that kept the model pointer from telling it."""

    champion: ServedModel
    replicas: dict[str, ReplicaReport]
    error: str


class ModelPointer:
    """The champion, kept in the storage. All calls are idempotent.

    Raises :class:`ModelFilesError` at construction when the file is there but cannot be understood. The
    operator must then say which model serves; there is no default.
    """

    def __init__(self, storage: StorageAddress | Path, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._pointer = Pointer(storage if isinstance(storage, Path) else open_storage(storage), "network")
        self._clock_s = clock_s
        self._champion = _champion(self._pointer.read(), network_soon=False)
        self._moving = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._replicas: dict[str, tuple[float, ReplicaReport]] = {}

    async def get(self) -> ServedModel:
        """The champion now."""
        return self._champion

    async def set(self, version: str, folder: str) -> ServedModel:
        """Make a version the champion; durable when this returns. Setting what is set already changes nothing."""
        async with self._moving:
            if (self._champion["version"], self._champion["folder"]) == (version, folder):
                return self._champion
            # In a thread: a storage that is away is asked for a while, and others want an answer meanwhile.
            moved = await asyncio.to_thread(self._pointer.move, version, folder, self._champion["generation"] + 1)
            champion = _champion(moved, network_soon=self._champion["network_soon"])
            async with self._changed:
                self._champion = champion
                self._changed.notify_all()
            return champion

    async def expect_network(self) -> None:
        """Tell replicas, with their next look, that a network may have to be served soon; forgotten at a restart."""
        self._champion = ServedModel(**{**self._champion, "network_soon": True})

    async def wait(self, seen_generation: int, timeout_s: float) -> ServedModel:
        """The champion as soon as its generation differs from ``seen_generation``, or after ``timeout_s``."""
        async with self._changed:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait_for(lambda: self._champion["generation"] != seen_generation)
            except TimeoutError:
                pass  # the caller sees the same generation and asks again
        return self._champion

    async def report(self, replica_id: str, generation: int, version: str, error: str = "") -> bool:
        """A replica says what it serves; true for the first that serves this champion's generation."""
        first = error == "" and all(
            found["generation"] != generation or found["error"] for found in self._alive().values()
        )
        self._replicas[replica_id] = (
            self._clock_s(),
            ReplicaReport(generation=generation, version=version, error=error),
        )
        return first

    async def status(self) -> ModelPointerStatus:
        """For operators; a replica that has not reported for a minute is left out."""
        return ModelPointerStatus(champion=self._champion, replicas=self._alive())

    async def figures(self) -> ForecasterFigures:
        """What the replicas that are alive serve, together."""
        found = list(self._alive().values())
        errors = [report["error"] for report in found if report["error"]]
        return ForecasterFigures(
            champion=self._champion["version"], serving=", ".join(sorted({report["version"] for report in found})),
            replicas=len(found), replicas_failing=len(errors),
            last_error=f"{self._champion['version']} cannot be loaded: {errors[0]}" if errors else "",
        )  # fmt: skip

    def _alive(self) -> dict[str, ReplicaReport]:
        oldest = self._clock_s() - FORGET_REPLICA_S
        self._replicas = {name: entry for name, entry in self._replicas.items() if entry[0] >= oldest}
        return {name: report for name, (_, report) in self._replicas.items()}


def _champion(pointed: Pointed, *, network_soon: bool) -> ServedModel:
    return ServedModel(
        generation=pointed.generation, version=pointed.version, folder=pointed.folder, network_soon=network_soon
    )
