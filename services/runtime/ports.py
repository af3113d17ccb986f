"""TCP ports that nobody listens on."""

from __future__ import annotations

import errno
import random
import socket
from contextlib import suppress
from itertools import cycle

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
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise StartError(f"port {port} on {host} is taken", advice) from error
            why = error.strerror or error
            raise StartError(f"nothing can listen at {host}, port {port}: {why}", advice) from error
