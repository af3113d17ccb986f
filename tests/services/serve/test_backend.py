"""Which actor the API asks for a site, and what it says of one that does not answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import services.serve.api.backend as backend_module
from services.config import load_settings
from services.messages import shard_actor
from services.serve.api.backend import RayBackend, shard_of
from services.serve.api.problems import ProblemError


def test_a_site_is_asked_for_where_its_shard_tells_it() -> None:
    """For every site, and with sites for each of the live states."""
    settings = load_settings(log={"partitions": 16}, stream={"shards": 5}, ray={"live_states": 3})
    backend, sites = RayBackend(settings, None), [f"s{n}" for n in range(200)]
    told = {shard_actor(shard): settings.live_state_of(shard) for shard in range(5)}
    assert [backend.live_state_of(site) for site in sites] == [told[shard_of(site, settings)] for site in sites]
    assert {backend.live_state_of(site) for site in sites} == {0, 1, 2}
    assert backend.live_states == 3


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

    async def there(_name: str) -> Any:
        return Retrainer()

    async def away(name: str) -> Any:
        raise ValueError(name)

    monkeypatch.setattr(backend_module, "ORDER_S", 0.01)
    monkeypatch.setattr(backend._actors, "find", there)
    with pytest.raises(ProblemError, match="look at /models first") as error:
        asyncio.run(backend.order("rollback", "trees", ""))
    assert (error.value.status, error.value.headers, given) == (503, None, [("trees", "")])
    monkeypatch.setattr(backend._actors, "find", away)
    with pytest.raises(ProblemError, match="try again in a few seconds") as error:
        asyncio.run(backend.order("rollback", "trees", ""))
    assert (error.value.status, error.value.headers, len(given)) == (503, {"Retry-After": "5"}, 1)
