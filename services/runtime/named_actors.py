"""Finding named actors from an event loop that must go on answering while the head of the cluster is away.

Ray knows the actors that a process has found before, but asks the head for any other, and waits for that: for as long
as the head is away, and with the thread that asks.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["NamedActors"]

THREADS = 128
"""More than there are live states, so that those that are not known yet hold up no other look-up while the head is
away. A thread is made when no other is free."""


class NamedActors:
    """The actors of one namespace, looked up anew each time so that a restarted one is found; for one event loop."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._asked: dict[str, asyncio.Future[Any]] = {}
        self._threads = ThreadPoolExecutor(THREADS, "named-actors")

    async def find(self, name: str) -> Any:
        """The handle; raises ``ValueError`` where no actor has the name. Waits while the head is away: cancel it then.

        Who asks for a name that is being looked up waits for that, so that a head that is away does not fill threads.
        """
        asked = self._asked.get(name)
        if asked is None:
            asked = asyncio.get_running_loop().run_in_executor(self._threads, _look_up, name, self._namespace)
            self._asked[name] = asked
            asked.add_done_callback(lambda done: self._found(name, done))
        return await asyncio.shield(asked)

    def _found(self, name: str, done: asyncio.Future[Any]) -> None:
        del self._asked[name]
        if not done.cancelled():
            done.exception()  # seen, also where nobody waits for it any more


def _look_up(name: str, namespace: str) -> Any:
    import ray

    return ray.get_actor(name, namespace)
