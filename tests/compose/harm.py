"""What is done to the containers, and when each is said to have recovered. Standard library only."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.compose.stack import Stack
from tests.compose.waiting import forecasts, until

__all__ = ["CUTS", "KILLS", "LOSSES", "Harm", "harm", "kill_system"]

RECOVER_S = 240.0
AWAY_S = 8.0
GAP_S = 3.0
WORKERS = 2
STEP_MS = 300_000


@dataclass(frozen=True, slots=True)
class Harm:
    """A kill of a container's main process; with ``network``, eight seconds off that network; with ``disk``, the
    container destroyed together with its disk, and another one made in its place. ``number`` is that of the container.
    """

    service: str
    network: str = ""
    disk: bool = False
    number: int = 1

    @property
    def words(self) -> str:
        """For the timeline."""
        which = self.service if self.number == 1 else f"{self.service} {self.number}"
        if self.disk:
            return f"{which} destroyed with its disk"
        return f"{which} off network {self.network}" if self.network else f"kill -9 {which}"

    @property
    def most_gap_s(self) -> float | None:
        """So long nobody may be without /predict: a part of the cluster is lost, and another answers."""
        return GAP_S if self.service in ("ray-worker", "ray-head", "service") else None


KILLS = (
    *map(Harm, ("gateway", "mosquitto", "kafka", "influxdb", "storage", "ray-worker")),
    Harm("ray-worker", number=2),
    *map(Harm, ("service", "ray-head", "front")),
)
LOSSES = (Harm("ray-worker", disk=True, number=WORKERS),)  # Compose gives a new container the highest number plus one
SYSTEM = (("ray-head", 1), *(("ray-worker", number + 1) for number in range(WORKERS)), ("service", 1))
CUTS = (
    Harm("gateway", "core"),
    Harm("mosquitto", "field"),
    Harm("kafka", "core"),
    Harm("influxdb", "core"),
    Harm("storage", "core"),
)


def harm(stack: Stack, what: Harm) -> float:
    """Do it and wait for the recovery; how many seconds from the harm, or the network's return, that took.

    Recovered: the container runs and is healthy, every zone's forecast is of a row that closed after the harm, rows
    as new are in InfluxDB, and both workers answer, with a replica each. A container that was killed must have been
    started again by the engine; one that was destroyed is another one, with an empty disk.
    """
    before = max(forecasts(stack).values())
    was = stack.inspect(what.service, what.number)
    if what.disk:
        stack.destroy(what.service, what.number)
        stack.compose("up", "--detach", "--no-deps", "--no-recreate", what.service)
    elif what.network:
        stack.cut(what.service, what.network)
        time.sleep(AWAY_S)
        stack.mend(what.service, what.network)
    else:
        stack.kill((what.service, what.number))
    began_s = time.monotonic()

    def runs() -> bool:
        found = stack.inspect(what.service, what.number)
        again = found["Id"] != was["Id"] if what.disk else found["RestartCount"] > was["RestartCount"]
        return _healthy(found) and (again or bool(what.network))

    until(runs, f"{what.service} runs again", RECOVER_S)
    _await_forecasts(stack, before, replicas=what.most_gap_s is not None)
    return time.monotonic() - began_s


def kill_system(stack: Stack) -> float:
    """SIGKILL to all containers of the Ray cluster and the service, as by the loss of their machine; how many seconds
    until they have recovered.
    """
    before = max(forecasts(stack).values())
    was = {part: stack.inspect(*part) for part in SYSTEM}
    began_s = time.monotonic()
    stack.kill(*SYSTEM)

    def run() -> bool:
        found = {part: stack.inspect(*part) for part in SYSTEM}
        return all(_healthy(now) and now["RestartCount"] > was[part]["RestartCount"] for part, now in found.items())

    until(run, "the system runs again", RECOVER_S)
    _await_forecasts(stack, before, replicas=True)
    return time.monotonic() - began_s


def _healthy(container: Mapping[str, Any]) -> bool:
    state = container["State"]
    return bool(state["Running"] and state["Health"]["Status"] == "healthy")


def _await_forecasts(stack: Stack, before: int, *, replicas: bool) -> None:
    """Return once what is said of recovery holds, of rows after that event time."""
    # What was on its way closes a row or two; the third was made of what came after.
    until(lambda: min(stack.origins().values(), default=0) >= before + 3 * STEP_MS, "forecasts go on", RECOVER_S)
    until(lambda: stack.newest_point() >= before + 3 * STEP_MS, "rows come into InfluxDB", RECOVER_S)
    # Else the next harm would meet one that is left alone.
    until(lambda: stack.workers_that_answer() == WORKERS, "each worker answers", RECOVER_S)
    if replicas:
        until(lambda: stack.replicas_that_run(WORKERS, 60.0) == WORKERS, "each worker has its replica", RECOVER_S)
