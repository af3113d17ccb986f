"""TCP ports that nobody listens on."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from itertools import cycle

from edge.listening import why_not_free
from services.errors import StartError

__all__ = ["free_port", "refuse_taken"]

_QUIET_PORTS = range(20_000, 30_000)
"""Above those that Ray gives its workers, below those that Serve gives replicas and that most systems hand out."""
_untried = cycle(random.SystemRandom().sample(_QUIET_PORTS, len(_QUIET_PORTS)))


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nobody listens on at this moment, outside of the range that the system hands out."""
    for _ in _QUIET_PORTS:
        port = next(_untried)  # the next call gives another one, also while nobody listens on this one yet
        with socket.socket() as probe, suppress(OSError):
            probe.bind((host, port))
            return port
    raise StartError(f"every port from {_QUIET_PORTS.start} to {_QUIET_PORTS.stop - 1} is taken")


def refuse_taken(host: str, port: int, advice: str) -> None:
    """Raises :class:`StartError` with the ``advice`` where nothing can listen there at this moment."""
    why, _ = why_not_free(host, port)
    if why:
        raise StartError(why, advice)
