"""What is done to the containers, and when each is said to have recovered. Standard library only."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.compose.stack import Stack
from tests.compose.waiting import forecasts, until

__all__ = ["CUTS", "KILLS", "Harm", "harm"]

RECOVER_S = 240.0
AWAY_S = 8.0
STEP_MS = 300_000


@dataclass(frozen=True, slots=True)
class Harm:
    """A kill of a container's main process, or, with ``network``, eight seconds off that network."""

    service: str
    network: str = ""

    @property
    def words(self) -> str:
        """For the timeline."""
        return f"{self.service} off network {self.network}" if self.network else f"kill -9 {self.service}"


KILLS = tuple(map(Harm, ("gateway", "mosquitto", "kafka", "influxdb", "ray-worker", "service", "ray-head")))
CUTS = (Harm("gateway", "core"), Harm("mosquitto", "field"), Harm("kafka", "core"), Harm("influxdb", "core"))


def harm(stack: Stack, what: Harm) -> float:
    """Do it and wait for the recovery; how many seconds from the harm, or the network's return, that took.

    Recovered: the container runs and is healthy, every zone's forecast is of a row that closed after the harm, and
    rows as new are in InfluxDB. A container that was killed must have been started again by the engine.
    """
    before = max(forecasts(stack).values())
    restarts = stack.inspect(what.service)["RestartCount"]
    if what.network:
        stack.cut(what.service, what.network)
        time.sleep(AWAY_S)
        stack.mend(what.service, what.network)
    else:
        stack.kill(what.service)
    began_s = time.monotonic()

    def runs() -> bool:
        found = stack.inspect(what.service)
        again = bool(what.network) or found["RestartCount"] > restarts
        return again and found["State"]["Running"] and found["State"]["Health"]["Status"] == "healthy"

    until(runs, f"{what.service} runs again", RECOVER_S)
    # What was on its way closes a row or two; the third was made of what came after.
    until(lambda: min(stack.origins().values()) >= before + 3 * STEP_MS, "forecasts go on", RECOVER_S)
    until(lambda: stack.newest_point() >= before + 3 * STEP_MS, "rows come into InfluxDB", RECOVER_S)
    return time.monotonic() - began_s
