"""Calls of named actors from the API's event loop, each with a time-out and with Ray's errors as problems.

Every call looks its actor up again, so that a restarted one is found. It has a time-out, because a stopped process
would never answer and nobody is found while the head of a cluster is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from services.errors import HothouseError
from services.runtime.named_actors import NamedActors
from services.serve.problem_error import ProblemError

__all__ = ["ANSWER_S", "ActorCalls", "within"]

ANSWER_S = 5.0
"""What an actor answers from memory takes no longer."""

T = TypeVar("T")


class ActorCalls:
    """Asks the named actors of one namespace; for one event loop."""

    def __init__(self, namespace: str) -> None:
        self._actors = NamedActors(namespace)

    async def ask(self, actor: str, verb: str, *arguments: Any, limit_s: float = ANSWER_S, who: str) -> Any:
        """What a named actor answers; it is looked up within the same time. ``who`` is what people call it.

        Raises the problems of :func:`within`.
        """

        async def asked() -> Any:
            return await getattr(await self.find(actor), verb).remote(*arguments)

        return await within(asked(), limit_s, who)

    async def find(self, name: str) -> Any:
        """The handle of an actor; a 503 problem where none has the name. Waits while the head is away: cancel it."""
        try:
            return await self._actors.find(name)
        except ValueError as error:
            words = f"{name} does not run now; try again in a few seconds"
            raise ProblemError(503, words, {"Retry-After": "5"}) from error


async def within(call: Awaitable[T], limit_s: float, who: str, unanswered: ProblemError | None = None) -> T:
    """Await a Ray call. What it raises becomes a problem: 409 for errors of ours, 422 for ``KeyError`` and
    ``ValueError``, and for no answer in time 503, or ``unanswered`` if given.
    """
    from ray.exceptions import RayError, RayTaskError

    try:
        async with asyncio.timeout(limit_s):
            return await call
    except RayTaskError as error:
        if isinstance(error.cause, HothouseError):
            raise ProblemError(409, str(error.cause)) from error
        if isinstance(error.cause, (KeyError, ValueError)):
            raise ProblemError(422, f"{who} refused: {error.cause}") from error
        raise
    except (RayError, TimeoutError) as error:
        words = f"{who} does not answer now; try again in a few seconds"
        raise unanswered or ProblemError(503, words, {"Retry-After": "5"}) from error
