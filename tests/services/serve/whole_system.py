"""An API with everything that it can have, so that each route answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from services.learn.records import row_of
from services.messages import ModelSubmitted, Moved, TrainingAccepted
from services.serve.api.auth import Keys
from services.store.history import History
from services.store.rows import SiteStep
from tests.services.ingest.rig import Rig, day, filled
from tests.services.serve.fakes import ORIGIN_MS, SPEC, FakeBackend
from tests.services.serve.system import System

ANSWERS = {
    "trigger": TrainingAccepted(accepted=True, reason="operator"), "rollback": Moved(version="v1", before="v2"),
    "promote": Moved(version="v2", before="v1"), "submit": ModelSubmitted(accepted=True, version="v3", against="v2"),
}  # fmt: skip


class Answering(FakeBackend):
    """Orders are answered as the retrainer does."""

    async def order(self, verb: str, *arguments: str) -> Any:
        return ANSWERS[verb]


def whole_system(folder: Path) -> System:
    """A system with zones, rows, a model and a shard that shows all its figures; reading needs a key."""
    rig = Rig(folder / "shard", filled(list(day(2))))
    shard = rig.shard()
    rig.drain(shard)
    system = System(Keys("op-key", "read-key"), published=False)
    system.backend = system.state.backend = Answering(system.live_state)
    history = system.backend.history = History(folder, SPEC.channels)
    row = np.float32([[1, 50, 400, np.nan]])
    history.add([SiteStep(0, "demo", ORIGIN_MS - n * 300_000, ("north-1",), row, row * 0, []) for n in range(10)])
    history.flush()
    system.fill()

    async def show() -> None:
        await system.live_state.put_stats("shard-0", shard.stats())
        model = row_of(SimpleNamespace(version="1", tags={}, creation_timestamp=ORIGIN_MS), ["champion"])
        await system.live_state.set_models([model])
        await system.state._take(await system.live_state.wait(0, 0))

    asyncio.run(show())
    system.state.start = system.state.stop = nothing  # type: ignore[method-assign]  # what is shown is all that comes
    return system


async def nothing() -> None:
    """Follow no live state."""
