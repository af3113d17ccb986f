"""The traffic of a chaos experiment: sites whose devices speak all the time, and everything that they published."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edge.mqtt.connection import MqttAddress
from edge.simulator.publisher import Publisher
from edge.simulator.publisher.disturb import Disturbance
from edge.simulator.publisher.ledger import Ledger
from edge.simulator.publisher.pace import Pace
from edge.simulator.simulator_source import SimulatorSource
from edge.wire.plan import PlanMessage
from edge.wire.topic import SITE_ZONE
from tests.patience import patience_s

__all__ = ["RATES", "SteadySite", "Traffic", "read_messages"]

RATES = {
    "duplicates": 0.02, "late": 0.02, "malformed": 0.01, "future_ts": 0.01, "out_of_range": 0.01,
    "unknown_metric": 0.01,
}  # fmt: skip
"""Disturbances, in messages a true sample."""


class SteadySite:
    """A site with made-up readings every ``step_ms`` from now on until ``ended``: a ``PhysicalSite``."""

    timezone = "Europe/Amsterdam"
    latitude, longitude = 51.98, 4.53

    def __init__(self, name: str, zones: int, step_ms: int, seed: int) -> None:
        self.name, self.step_ms = name, step_ms
        self.zones = tuple(f"z{number}" for number in range(1, zones + 1))
        self.start_ms = time.time_ns() // 1_000_000
        self.ended = threading.Event()
        self._random = random.Random(f"{seed}/{name}")
        self._litres = 0.0

    def instants(self, to_ms: int) -> Iterator[tuple[int, Mapping[str, Mapping[str, float]]]]:
        """See ``PhysicalSite``."""
        at_ms, draw = self.start_ms, self._random.uniform
        while at_ms + self.step_ms <= to_ms and not self.ended.is_set():
            at_ms += self.step_ms
            self._litres = self._litres + draw(0, 0.1) if self._random.random() > 0.01 else 0.0
            readings = {
                zone: {
                    "air_temp_c": round(draw(18, 26), 2), "rh_pct": round(draw(55, 101.5), 2),
                    "co2_ppm": round(draw(400, 900)), "vent_lee_pct": round(draw(0, 100), 1),
                    "irrigation_l_m2": round(self._litres, 3),
                }
                for zone in self.zones
            }  # fmt: skip
            readings[SITE_ZONE] = {"out_temp_c": round(draw(0, 9), 2), "wind_dir_deg": round(draw(0, 360))}
            yield at_ms, readings

    def plans(self) -> list[PlanMessage]:
        """None: the account is of samples."""
        return []


class Traffic:
    """A publisher a site, each in a thread; from :meth:`start` to :meth:`finish`.

    ``folder`` gets a file a site with every message that was published.
    """

    def __init__(
        self, sites: Sequence[str], zones: int, step_ms: int, address: MqttAddress, folder: Path, seed: int,
        late_ms: int,
    ) -> None:  # fmt: skip
        self._sites = [SteadySite(name, zones, step_ms, seed) for name in sites]
        self.ledgers = [Ledger(messages_file=folder / f"{name}.messages") for name in sites]
        anchor = (time.time_ns() // 1_000_000, time.monotonic())
        publishers = [
            Publisher(
                SimulatorSource(site), address, ledger, Pace(1.0, anchor),
                disturbance=Disturbance(RATES, seed + number, late_ms),
            )
            for number, (site, ledger) in enumerate(zip(self._sites, self.ledgers, strict=True))
        ]  # fmt: skip
        self._threads = [threading.Thread(target=publisher.run, daemon=True) for publisher in publishers]

    def start(self) -> None:
        """Begin to publish."""
        for thread in self._threads:
            thread.start()

    def finish(self, timeout_s: float = 60.0) -> None:
        """Publish nothing new; returns when the broker has acknowledged everything. Raises ``TimeoutError``, after so
        many seconds of a quick machine.
        """
        for site in self._sites:
            site.ended.set()
        deadline_s = time.monotonic() + patience_s(timeout_s)
        for thread in self._threads:
            thread.join(deadline_s - time.monotonic())
        unfinished = [ledger.status for ledger in self.ledgers if not ledger.status["complete"]]
        if unfinished:
            raise TimeoutError(f"not everything was acknowledged: {unfinished}")

    def figures(self) -> dict[str, Any]:
        """Connections, messages sent and sent again, of all sites together."""
        names = ("connections", "published", "resent", "acked")
        return {name: sum(ledger.status[name] for ledger in self.ledgers) for name in names}


def read_messages(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """Kind, topic and payload of everything that was published."""
    for path in sorted(folder.glob("*.messages")):
        for line in path.read_bytes().splitlines():
            kind, topic, payload = line.split(b"\t", 2)
            yield kind.decode(), topic.decode(), payload
