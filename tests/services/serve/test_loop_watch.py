"""An event loop that is held up is told, with what ran meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from services.serve.loop_watch import watch_loop

HELD_S, LIMIT_S = 0.6, 0.2


def hold_up() -> None:
    """What no event loop should wait for."""
    time.sleep(HELD_S)


def watchers() -> set[threading.Thread]:
    """The threads that watch a loop."""
    return {thread for thread in threading.enumerate() if thread.name == "loop-watch"}


@pytest.fixture(autouse=True)
def _nobody_watches_on() -> Iterator[None]:
    """A watcher ends with its loop: none tells anything in the next test."""
    yield
    for thread in watchers():
        thread.join(60)
    assert not watchers()


def test_where_it_was_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The function by its name, and for how long."""

    def told() -> list[str]:
        return [text for text in caplog.messages if "in hold_up" in text]

    async def story() -> None:
        watch_loop(limit_s=LIMIT_S, every_s=0.02)
        while not told():  # a machine that is busy may let the thread look too late
            hold_up()
            await asyncio.sleep(0.1)  # the thread tells it once the loop goes on

    asyncio.run(story())
    assert float(told()[0].split(" held up for ")[1].split()[0]) >= LIMIT_S / 2


def test_a_loop_that_goes_on_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """However much it does in small pieces; here a limit that no busy machine reaches."""

    async def story() -> None:
        watch_loop(limit_s=60.0, every_s=0.01)
        for _ in range(20):
            time.sleep(0.005)
            await asyncio.sleep(0)

    asyncio.run(story())
    assert caplog.messages == []


def test_the_thread_ends_with_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    """A closed loop is watched no more, and that it ended is no hold-up."""

    async def story() -> set[threading.Thread]:
        watch_loop(limit_s=0.02, every_s=0.01)
        return watchers()

    [thread] = asyncio.run(story())
    thread.join(60)
    assert not thread.is_alive()
    assert [text for text in caplog.messages if "for -" in text] == []
