"""Steps 9 and 16 of the way of a reading: the loop, a long poll, that keeps API and Forecaster replicas up to date."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from edge.timing import Backoff

__all__ = ["follow", "until_told"]

_log = logging.getLogger(__name__)
FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 2.0
WARN_EVERY = 30
"""One in this many failed tries is a warning: an actor that restarts is there after a few."""

News = TypeVar("News")


async def until_told(ask: Callable[[], Awaitable[News]], name: str) -> News:
    """What ``ask`` answers, once it does; an error of it (the actor is away) is waited out with growing pauses.

    ``ask`` looks the actor up anew each time it is called, so that a restarted actor is found.
    """
    backoff = Backoff(FIRST_DELAY_S, LONGEST_DELAY_S)
    tries = 0
    while True:
        tries += 1
        try:
            return await ask()
        except Exception as error:  # whatever Ray raises while an actor restarts
            delay_s = backoff.next_s()
            level = logging.WARNING if tries % WARN_EVERY == 0 else logging.INFO
            _log.log(level, "%s does not answer, asking again in %.1f s: %s", name, delay_s, error)
            await asyncio.sleep(delay_s)


async def follow(ask: Callable[[], Awaitable[News]], take: Callable[[News], Awaitable[None]], name: str) -> None:
    """Ask until there is an answer, take it, and ask again, until the owner cancels it.

    ``take`` handles its own errors: one that gets out ends this loop, and its owner's health check then fails.
    """
    while True:
        await take(await until_told(ask, name))
