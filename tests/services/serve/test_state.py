"""An API replica and the live state that it follows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from services.messages import ZoneForecast
from services.serve.api import state as api_state
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

    async def changes(self, live_state: int, seen_version: int) -> LiveStateChanges:
        return await self.live_state.wait(seen_version, 0.05)

    async def restore(self, live_state: int, forecasts: Sequence[ZoneForecast]) -> None:
        self.refused -= 1
        if self.refused >= 0:
            raise ProblemError(503, "the live state does not answer now")
        await super().restore(live_state, forecasts)


class Two(FakeBackend):
    """Two live states, which can be other ones: the first has ``demo``, the second all other sites. Those in ``away``
    do not answer.
    """

    def __init__(self) -> None:
        super().__init__(LiveState(1000, lambda: ORIGIN_MS))
        self.live_states = 2
        self.each = [self.live_state, LiveState(1000, lambda: ORIGIN_MS, 1)]
        self.away: set[int] = set()

    def live_state_of(self, site: str) -> int:
        return int(site != "demo")

    async def changes(self, live_state: int, seen_version: int) -> LiveStateChanges:
        if live_state in self.away:
            raise ProblemError(503, "the live state does not answer now")
        for _ in range(20 * live_state):
            await asyncio.sleep(0)  # the second is slower
        return await self.each[live_state].wait(seen_version, 0.05)

    async def restore(self, live_state: int, forecasts: Sequence[ZoneForecast]) -> None:
        await self.each[live_state].restore(forecasts)

    async def known(self, live_state: int) -> list[str]:
        """The sites of which one has forecasts."""
        return [one["site"] for one in (await self.each[live_state].wait(0, 0)).get("forecasts", [])]


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


def test_a_live_state_that_is_lost_gets_its_own_sites_back_and_the_other_goes_on() -> None:
    """The replica answers for all sites meanwhile, hears from the other one, and gives it nothing."""

    async def story() -> None:
        backend = Two()
        await backend.each[0].publish([zone_forecast("north-1")])
        await backend.each[1].publish([zone_forecast("south-1", "other")])
        one = replica(backend)
        await one.start()
        assert set(one.view.answers) == {("demo", "north-1"), ("other", "south-1")}, "it has heard from both"
        kept = (await backend.each[0].wait(0, 0))["version"]
        backend.away = {1}
        backend.each[1] = LiveState(2000, lambda: ORIGIN_MS, 1)
        assert [one.view.find(zone)[0] for zone in ("north-1", "south-1")] == ["demo", "other"]
        backend.away = set()
        async with asyncio.timeout(patience_s(30)):
            while not await backend.known(1):
                assert one.view.find("south-1") == ("other", "south-1")
                await asyncio.sleep(0.02)
        assert await backend.known(1) == ["other"]
        assert await backend.known(0) == ["demo"]
        assert (await backend.each[0].wait(0, 0))["version"] == kept
        await backend.each[0].publish([zone_forecast("north-2")])
        async with asyncio.timeout(patience_s(30)):
            while ("demo", "north-2") not in one.view.answers:
                await asyncio.sleep(0.02)
        await one.stop()

    asyncio.run(story())


def test_a_live_state_that_is_away_is_named_and_the_other_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica starts with what one says, tells the age of each, and says that it does not follow all."""
    monkeypatch.setattr(api_state, "FIRST_NEWS_S", 0.3)

    async def story() -> None:
        backend, now_s = Two(), 100.0
        backend.away = {1}
        await backend.each[0].publish([zone_forecast("north-1")])
        await backend.each[0].put_stats("shard-0", {"zones": ["demo/north-1"]})
        one = ApiState(backend, Keys("k" * 32), SPEC, 1800, lambda: now_s)
        await one.start()
        assert one.view.find("north-1") == ("demo", "north-1")
        with pytest.raises(ProblemError) as refused:
            one.view.find("south-1")
        assert refused.value.status == 503, "the one that is away may know it"
        now_s += 40
        await backend.each[0].publish([zone_forecast("north-2")])
        async with asyncio.timeout(patience_s(30)):
            while one.live_state_age_s() != {"board-0": 0, "board-1": 40}:
                await asyncio.sleep(0.02)
        assert "does not answer" in one.readiness()["reasons"][0]
        assert one.readiness()["ready"]
        backend.away = set()
        async with asyncio.timeout(patience_s(30)):
            while one.quiet_s:
                await asyncio.sleep(0.02)
        assert one.readiness()["reasons"] == []
        with pytest.raises(ProblemError) as refused:
            one.view.find("south-1")
        assert refused.value.status == 404
        await one.stop()

    asyncio.run(story())
