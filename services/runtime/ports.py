"""TCP ports: free ones, and those at which a start listens, which `hothouse up` and `hothouse doctor` look at."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from contextlib import suppress
from itertools import combinations, cycle
from typing import NamedTuple

from edge.listening import EVERYWHERE, why_no_broker, why_not_free
from services.config import Settings
from services.errors import StartError

__all__ = ["ListeningPort", "PortProblem", "free_port", "listening_ports", "refuse_taken", "shared_ports"]

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


class PortProblem(NamedTuple):
    """Why nothing can listen there, and what to do."""

    why: str
    advice: str


class ListeningPort(NamedTuple):
    """A port, and the setting that names it."""

    setting: str
    host: str
    port: int

    def problem(self) -> PortProblem | None:
        """Why nothing can listen there at this moment; ``None`` where something can."""
        if self.setting == "mqtt.port":
            why, advice = why_no_broker(self.host, self.port)
        else:
            why, _ = why_not_free(self.host, self.port)
            option = "--port, or " if self.setting == "api.port" else ""
            advice = f"Stop what listens there, or choose another: {option}{self.setting}."
        return PortProblem(why, advice) if why else None

    def collides(self, other: ListeningPort) -> bool:
        """Whether both cannot listen."""
        hosts = {"127.0.0.1" if host == "localhost" else host for host in (self.host, other.host)}
        return self.port == other.port and (len(hosts) == 1 or bool(hosts & set(EVERYWHERE)))


def listening_ports(settings: Settings) -> list[ListeningPort]:
    """Those that the settings name. Port 0, and a broker for this machine alone, take what is free."""
    api, mqtt, gateway = settings.api, settings.mqtt, settings.gateway
    found = []
    if api.port and not settings.ray.address:  # on a cluster HTTP is on its nodes
        found.append(ListeningPort("api.port", api.host, api.port))
    if mqtt.gateway == "here":
        if mqtt.listen and not mqtt.host:
            found.append(ListeningPort("mqtt.port", mqtt.listen, mqtt.port))
        if gateway.metrics_port:
            found.append(ListeningPort("gateway.metrics_port", gateway.metrics_host, gateway.metrics_port))
    return found


def shared_ports(ports: Sequence[ListeningPort]) -> list[PortProblem]:
    """Those that two settings name."""
    return [
        PortProblem(f"{one.setting} and {other.setting} are both {one.port}", "Give each a port of its own.")
        for one, other in combinations(ports, 2)
        if one.collides(other)
    ]


def refuse_taken(one: ListeningPort) -> None:
    """Raises :class:`StartError` where nothing can listen there at this moment."""
    if problem := one.problem():
        raise StartError(problem.why, problem.advice)
