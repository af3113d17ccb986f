"""Looking actors up must hold nobody up. Ray itself is faked here."""

from __future__ import annotations

import asyncio
import threading

import pytest
import ray

from services.runtime.named_actors import THREADS, NamedActors


def test_an_event_loop_goes_on_while_the_head_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who looks an actor up waits; others do not, and those who give up and ask again fill no threads."""
    head_is_back, asked = threading.Event(), list[str]()

    def get_actor(name: str, namespace: str) -> str:
        asked.append(name)
        if name == "unknown" and not head_is_back.wait(30):
            raise AssertionError("the loop was held up")
        return f"{namespace}/{name}"

    monkeypatch.setattr(ray, "get_actor", get_actor)

    async def story() -> list[str]:
        actors = NamedActors("ours")
        for _ in range(3 * THREADS):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await actors.find("unknown")
        found = [await actors.find("known")]
        head_is_back.set()
        return [*found, await actors.find("unknown")]

    assert asyncio.run(story()) == ["ours/known", "ours/unknown"]
    assert asked.count("unknown") <= 2


def test_an_actor_is_looked_up_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that there was none of may be there now, and another may have its name."""
    there = iter([ValueError("no actor of that name"), "first", "second"])

    def get_actor(name: str, namespace: str) -> str:
        found = next(there)
        if isinstance(found, ValueError):
            raise found
        return found

    monkeypatch.setattr(ray, "get_actor", get_actor)

    async def story() -> None:
        actors = NamedActors("ours")
        with pytest.raises(ValueError, match="no actor"):
            await actors.find("shard-0")
        assert [await actors.find("shard-0"), await actors.find("shard-0")] == ["first", "second"]

    asyncio.run(story())
