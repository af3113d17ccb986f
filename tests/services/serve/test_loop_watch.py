"""An event loop that is held up is told, with what ran meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from services.serve import loop_watch
from services.serve.loop_watch import watch_loop

HELD_S = 0.6


def hold_up() -> None:
    """What no event loop should wait for."""
    time.sleep(HELD_S)


def test_where_it_was_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The function by its name, and for how long."""

    def told() -> list[str]:
        return [text for text in caplog.messages if "in hold_up" in text]

    async def story() -> None:
        watch_loop(limit_s=0.2, every_s=0.02)
        while not told():  # a machine that is busy may let the thread look too late
            hold_up()
            await asyncio.sleep(0.1)  # the thread tells it once the loop goes on

    asyncio.run(story())
    assert float(told()[0].split(" held up for ")[1].split()[0]) > HELD_S / 2


def test_a_loop_that_goes_on_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """However much it does in small pieces; here a limit that no busy machine reaches."""

    async def story() -> None:
        watch_loop(limit_s=60.0, every_s=0.01)
        for _ in range(20):
            time.sleep(0.005)
            await asyncio.sleep(0)

    asyncio.run(story())
    assert caplog.messages == []


def test_the_thread_ends_with_the_loop() -> None:
    """A closed loop is watched no more."""
    before = set(threading.enumerate())

    async def story() -> None:
        watch_loop(every_s=0.01)

    asyncio.run(story())
    [thread] = set(threading.enumerate()) - before
    assert thread.name == "loop-watch"
    thread.join(60)
    assert not thread.is_alive()
    assert loop_watch.LIMIT_S > loop_watch.EVERY_S
