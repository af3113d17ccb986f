"""Which actor the API asks for a site, and what it says of one that does not answer."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from services.config import load_settings
from services.messages import shard_actor
from services.messages.sentences import codes_of
from services.runtime.named_actors import NamedActors
from services.serve.api.problems import ProblemError
from services.serve.backend import ray_backend, stored_reads
from services.serve.backend.ray_backend import RayBackend, shard_of
from tests.patience import patience_s


def test_a_site_is_asked_for_where_its_shard_tells_it() -> None:
    """For every site, and with sites for each of the live states."""
    settings = load_settings(log={"partitions": 16}, stream={"shards": 5}, ray={"live_states": 3})
    backend, sites = RayBackend(settings, None), [f"s{n}" for n in range(200)]
    told = {shard_actor(shard): settings.live_state_of(shard) for shard in range(5)}
    assert [backend.live_state_of(site) for site in sites] == [told[shard_of(site, settings)] for site in sites]
    assert {backend.live_state_of(site) for site in sites} == {0, 1, 2}
    assert (backend.live_states, backend.shards) == (3, 5)


def test_an_order_that_nobody_answers_may_be_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gave it is told to look first; where there was no retrainer to give it to, to try again."""
    backend = RayBackend(load_settings(), None)
    given: list[tuple[Any, ...]] = []

    class Rollback:
        async def remote(self, *arguments: Any) -> None:
            given.append(arguments)
            await asyncio.Event().wait()

    class Retrainer:
        rollback = Rollback()

    async def there(_actors: NamedActors, _name: str) -> Any:
        return Retrainer()

    async def away(_actors: NamedActors, name: str) -> Any:
        raise ValueError(name)

    monkeypatch.setattr(ray_backend, "ORDER_S", 0.01)
    monkeypatch.setattr(NamedActors, "find", there)
    with pytest.raises(ProblemError, match="look at /models first") as error:
        asyncio.run(backend.order("rollback", "trees", ""))
    assert (error.value.status, error.value.headers, given) == (503, None, [("trees", "")])
    monkeypatch.setattr(NamedActors, "find", away)
    with pytest.raises(ProblemError, match="try again in a few seconds") as error:
        asyncio.run(backend.order("rollback", "trees", ""))
    assert (error.value.status, error.value.headers, len(given)) == (503, {"Retry-After": "5"}, 1)


def test_a_shard_that_does_not_know_a_zone_yet_is_to_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API knows the zone, and its shard was restarted: a 404 would say that there is no such zone."""
    backend = RayBackend(load_settings(), None)

    class Nothing:
        def __init__(self, answer: Any = None) -> None:
            self._answer = answer

        async def remote(self, *_: Any) -> Any:
            return self._answer

    class Shard:
        what_if = outlook = baseline = plan = next_issue = alert_rules = Nothing()
        quality = Nothing([])

    async def there(_actors: NamedActors, _name: str) -> Any:
        return Shard()

    monkeypatch.setattr(NamedActors, "find", there)

    async def run() -> list[Any]:
        return await asyncio.gather(
            backend.what_if("demo", "z1", []), backend.outlook("demo", "z1"), backend.plan("demo", "z1"),
            backend.baseline("demo", "z1", 0, np.zeros((1, 3), np.float32)), backend.quality(("demo", "z1")),
            backend.next_issue("demo", "z1", "operator", 0), backend.alert_rules("demo"), return_exceptions=True,
        )  # fmt: skip

    answers = asyncio.run(run())
    assert {(one.status, one.headers["Retry-After"]) for one in answers} == {(503, "5")}
    assert all(str(one).endswith("yet; try again in a few seconds") for one in answers)
    codes = [said["code"] for one in answers for said in codes_of([str(one)], with_parts=False).values()]
    assert codes == [
        *("forecast_not_made",) * 2, *("zone_not_known",) * 4, "site_not_known"
    ], "so the page says it in its language"  # fmt: skip


def test_a_storage_that_hangs_holds_up_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask for what it keeps: an order goes out at once, and they are told after their time."""
    backend, released, published = RayBackend(load_settings(), None), threading.Event(), list[str]()

    def hangs(*_: Any) -> list[Any]:
        released.wait(patience_s(60))
        return []

    monkeypatch.setattr(stored_reads, "changes_of", hangs)
    monkeypatch.setattr(stored_reads, "read_dead_letters", hangs)
    monkeypatch.setattr(stored_reads, "count_dead_letters", hangs)
    monkeypatch.setattr(ray_backend, "publish", lambda _settings, _name, topic, _payload: published.append(topic))
    monkeypatch.setattr(stored_reads, "READ_S", patience_s(2))

    async def run() -> list[Any]:
        asked = [backend.alert_changes(f"a{n}") for n in range(50)]
        letters = [backend.dead_letters(None, 1) for _ in range(50)]
        reading = asyncio.gather(*asked, *letters, return_exceptions=True)
        await asyncio.sleep(0)
        async with asyncio.timeout(patience_s(1)):
            await backend.publish("hothouse/v1/demo/z1/operator/event", b"")
        return await reading

    try:
        answers = asyncio.run(run())
    finally:
        released.set()
    assert published == ["hothouse/v1/demo/z1/operator/event"]
    assert {(one.status, one.headers["Retry-After"]) for one in answers} == {(503, "5")}


def test_a_broker_that_hangs_holds_up_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is worked out in a thread, as a forecast's quantiles, waits for no order."""
    backend, released = RayBackend(load_settings(), None), threading.Event()
    monkeypatch.setattr(ray_backend, "publish", lambda *_: released.wait(patience_s(60)))

    async def run() -> int:
        orders = asyncio.gather(*(backend.publish("t", b"") for _ in range(50)))
        await asyncio.sleep(0)
        async with asyncio.timeout(patience_s(5)):
            answer = await asyncio.to_thread(lambda: 7)
        released.set()
        await orders
        return answer

    try:
        assert asyncio.run(run()) == 7
    finally:
        released.set()
