"""An API replica and the live state that it follows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from services.messages import ZoneForecast
from services.serve.api.auth import Keys
from services.serve.api.problems import ProblemError
from services.serve.api.state import ApiState
from services.serve.live_state import LiveState, LiveStateChanges
from tests.patience import patience_s
from tests.services.serve.fakes import ORIGIN_MS, SPEC, FakeBackend, zone_forecast


class Restarting(FakeBackend):
    """The live state can be another one, and takes nothing back ``refused`` times."""

    def __init__(self, refused: int = 0) -> None:
        super().__init__(LiveState(1000, lambda: ORIGIN_MS))
        self.refused = refused

    async def changes(self, seen_version: int) -> LiveStateChanges:
        return await self.live_state.wait(seen_version, 0.05)

    async def restore(self, forecasts: Sequence[ZoneForecast]) -> None:
        self.refused -= 1
        if self.refused >= 0:
            raise ProblemError(503, "the live state does not answer now")
        await super().restore(forecasts)


def replica(backend: FakeBackend) -> ApiState:
    """One that follows what ``backend`` says."""
    return ApiState(backend, Keys("k" * 32), SPEC, 1800)


def test_a_replica_starts_with_what_is_known() -> None:
    """Its first request is answered as by those that have long run."""

    async def story() -> None:
        backend = Restarting()
        await backend.live_state.publish([zone_forecast("north-1")])
        one = replica(backend)
        await one.start()
        assert one.view.find("north-1") == ("demo", "north-1")
        await one.stop()

    asyncio.run(story())


def test_a_replica_that_starts_after_the_live_state_was_lost_knows_what_others_know() -> None:
    """The next step may be five minutes away; until then those that live have the only copy."""

    async def story() -> None:
        backend = Restarting(refused=1)
        await backend.live_state.publish([zone_forecast("north-1")])
        old = replica(backend)
        await old.start()
        backend.live_state = LiveState(2000, lambda: ORIGIN_MS)
        async with asyncio.timeout(patience_s(30)):
            while not (await backend.live_state.wait(0, 0)).get("forecasts"):
                await asyncio.sleep(0.02)
        new = replica(backend)
        await new.start()
        key = new.view.find("north-1")
        assert new.view.answers[key].body == old.view.answers[key].body
        assert backend.refused < 0
        for one in (old, new):
            await one.stop()

    asyncio.run(story())
