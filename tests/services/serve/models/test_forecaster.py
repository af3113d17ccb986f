"""The Forecaster replica: one version an answer, swaps beside, bad artefacts stay out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.spec import Place
from services.errors import ModelFilesError
from services.messages import ASK_AGAIN, F32, I64, ForecasterFigures, ForecastRequest, ServedModel
from services.serve.models.forecaster import Forecaster, Load, warm_up
from tests.patience import patience_s
from tests.services.serve.fakes import ORIGIN_MS, SPEC
from tests.services.serve.models.links import Link

SHAPE = (len(SPEC.horizons_min), len(SPEC.targets), 3)


class Constant:
    """A model that answers one number."""

    def __init__(self, value: float) -> None:
        self.value = value

    def predict(self, values: F32, origin_ms: I64, places: Sequence[Place], baseline: F32) -> F32:
        return np.full((len(values), *SHAPE), self.value, np.float32)


class Clock:
    """Monotonic seconds that move when told."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def request(examples: int = 2) -> ForecastRequest:
    """A batch whose baseline is 7 everywhere."""
    return ForecastRequest(
        schema_hash=SPEC.hash, sites=["demo"] * examples,
        values=np.zeros((examples, SPEC.lookback_steps, len(SPEC.channels)), np.float32),
        origin_ms=np.full(examples, ORIGIN_MS, np.int64), baseline=np.full((examples, *SHAPE), 7, np.float32),
    )  # fmt: skip


def load(folder: str, schema_hash: str) -> Constant:
    """``folder`` is the number that the model answers."""
    if folder == "corrupt":
        raise ModelFilesError("golden output differs")
    return Constant(float(folder))


@asynccontextmanager
async def started(link: Link, load: Load = load) -> AsyncIterator[Forecaster]:
    """A replica that follows the pointer."""
    replica = Forecaster(SPEC, lambda _: Place(), load, link)
    await replica.start()
    try:
        yield replica
    finally:
        await replica.stop()


def test_the_climatology_answers_with_the_baseline(tmp_path: Path) -> None:
    """Before a model is champion the answer is the baseline, and its version says so."""

    async def run() -> None:
        async with started(Link(tmp_path)) as replica:
            reply = await replica.forecast(request())
            assert reply["version"] == "online"
            assert (reply["quantiles"] == 7).all()

    asyncio.run(run())


def test_a_champion_of_before_the_start_is_served_from_the_first_request(tmp_path: Path) -> None:
    """A replica that starts serves the model pointer's champion, not the climatology first."""

    async def run() -> None:
        link = Link(tmp_path)
        await link.pointer.set("v4", "4")
        async with started(link) as replica:
            assert (await replica.forecast(request()))["version"] == "v4"

    asyncio.run(run())


def test_waits_for_a_pointer_that_is_not_there_yet(tmp_path: Path) -> None:
    """After a power cut a replica may start before the service; Serve would give up one that fails then."""

    class Later(Link):
        misses = 2

        async def wait(self, seen_generation: int) -> ServedModel:
            if self.misses:
                self.misses -= 1
                raise ValueError("no actor is called slot")
            return await super().wait(seen_generation)

    async def run() -> None:
        link = Later(tmp_path)
        await link.pointer.set("v1", "7")
        async with started(link) as replica:
            assert (replica.version, link.misses) == ("v1", 0)

    asyncio.run(run())


def test_a_network_asks_for_rows_that_a_request_did_without(tmp_path: Path) -> None:
    """A request without rows is answered online; a network answers that it must be asked again."""

    async def run() -> None:
        link = Link(tmp_path)
        async with started(link) as replica:
            without = ForecastRequest(**{**request(), "values": request()["values"][:, :0]})
            assert (await replica.forecast(without))["version"] == "online"
            await link.news()
            await link.pointer.set("v1", "1")
            await link.news()
            assert (await replica.forecast(without))["version"] == ASK_AGAIN
            assert (await replica.forecast(request()))["version"] == "v1"

    asyncio.run(run())


def test_follows_the_pointer(tmp_path: Path) -> None:
    """A new champion serves as soon as it is loaded, and others are told once."""

    async def run() -> None:
        link = Link(tmp_path)
        async with started(link) as replica:
            await link.news()
            await link.pointer.set("v1", "1")
            assert await link.news() == ("v1", "", True)
            reply = await replica.forecast(request())
            assert (reply["version"], reply["quantiles"].max()) == ("v1", 1)
            assert (await link.pointer.status())["replicas"]["replica"]["version"] == "v1"

    asyncio.run(run())


def test_a_corrupt_artefact_leaves_the_old_model(tmp_path: Path) -> None:
    """A champion that cannot be loaded is reported with its reason; the version before it serves on."""

    async def run() -> None:
        link = Link(tmp_path)
        async with started(link) as replica:
            await link.news()
            await link.pointer.set("v1", "1")
            await link.news()
            await link.pointer.set("v2", "corrupt")
            assert await link.news() == ("v2", "golden output differs", False)
            assert (await replica.forecast(request()))["version"] == "v1"
            report = (await link.pointer.status())["replicas"]["replica"]
            assert (report["version"], report["error"]) == ("v1", "golden output differs")
            replica.check_health()

    asyncio.run(run())


def test_a_champion_that_failed_is_tried_again(tmp_path: Path) -> None:
    """With growing pauses, silently while the reason is the same; once it loads it serves and others are told."""

    async def run() -> None:
        link, clock, tries = Link(tmp_path), Clock(), 0
        away = True

        def unreliable(folder: str, schema_hash: str) -> Constant:
            nonlocal tries
            tries += 1
            if away:
                raise ModelFilesError("the storage is away")
            return load(folder, schema_hash)

        replica = Forecaster(SPEC, lambda _: Place(), unreliable, link, clock)
        champion = await link.pointer.set("v1", "1")
        await replica._take(champion)
        assert link.announced == [("v1", "the storage is away", False)]
        failing = ForecasterFigures(
            champion="v1", serving="online", replicas=1, replicas_failing=1,
            last_error="v1 cannot be loaded: the storage is away",
        )  # fmt: skip
        assert link.shown == failing
        for seconds, expected in ((0, 1), (4.9, 1), (0.1, 2), (5, 2), (5, 3), (19, 3), (1, 4)):
            clock.now_s += seconds
            await replica._take(champion)
            assert tries == expected
        assert len(link.announced) == 1
        clock.now_s += 3600
        await replica._take(champion)
        for _ in range(9):
            clock.now_s += 301
            await replica._take(champion)
        assert tries == 5 + 9, "no pause is longer than five minutes"
        away = False
        clock.now_s += 301
        await replica._take(champion)
        assert link.announced[1:] == [("v1", "", True)]
        assert link.shown == {**failing, "serving": "v1", "replicas_failing": 0, "last_error": ""}
        assert (await replica.forecast(request()))["version"] == "v1"
        clock.now_s += 3600
        await replica._take(champion)
        assert tries == 15
        await replica.stop()

    asyncio.run(run())


def test_requests_are_answered_while_a_model_loads(tmp_path: Path) -> None:
    """Loading happens beside: the old version answers until the new one is ready."""

    async def run() -> None:
        link, begun, go_on = Link(tmp_path), threading.Event(), threading.Event()

        def slowly(folder: str, schema_hash: str) -> Constant:
            begun.set()
            go_on.wait()
            return load(folder, schema_hash)

        async with started(link, slowly) as replica:
            await link.news()
            await link.pointer.set("v1", "1")
            try:
                assert await asyncio.to_thread(begun.wait, patience_s(60))
                assert (await replica.forecast(request()))["version"] == "online"
            finally:
                go_on.set()
            await link.news()
            assert (await replica.forecast(request()))["version"] == "v1"

    asyncio.run(run())


def test_health_fails_when_the_follower_has_ended(tmp_path: Path) -> None:
    """A replica that no longer follows the model pointer is unhealthy, so that Serve replaces it."""

    async def run() -> None:
        async with started(Link(tmp_path)) as replica:
            replica.check_health()
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="no longer follows"):
            replica.check_health()

    asyncio.run(run())


def test_another_schema_is_refused(tmp_path: Path) -> None:
    """A request that was made for other channels or horizons is an error, not a wrong forecast."""

    async def run() -> None:
        async with started(Link(tmp_path)) as replica:
            with pytest.raises(ValueError, match="schema"):
                await replica.forecast({**request(), "schema_hash": "other"})

    asyncio.run(run())


@pytest.mark.parametrize("answer", [np.zeros((1, 2)), np.full((1, *SHAPE), np.nan)])
def test_warming_up_finds_a_model_that_answers_nonsense(answer: Any) -> None:
    """A model whose output has the wrong shape, or is not finite, is refused before it serves."""

    class Wrong(Constant):
        def predict(self, values: F32, origin_ms: I64, places: Sequence[Place], baseline: F32) -> F32:
            return answer  # type: ignore[no-any-return]

    with pytest.raises(ModelFilesError):
        warm_up(Wrong(0), SPEC)
