"""What the demo sees of the system: only what its public API says."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

__all__ = ["DemoWatch", "Seen"]

TIMEOUT_S = 3.0
READY_EVERY_S = 0.25


@dataclass(slots=True)
class Seen:
    """One look at the system; ``forecasts`` by ``(site, zone)`` as ``/predict`` answered."""

    components: dict[str, dict[str, Any]] = field(default_factory=dict)
    models: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    pointer: dict[str, Any] = field(default_factory=dict)
    forecasts: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    @property
    def shards(self) -> list[dict[str, Any]]:
        """The figures of all shards."""
        return [figures for name, figures in sorted(self.components.items()) if name.startswith("shard-")]

    @property
    def retrainer(self) -> Mapping[str, Any]:
        """The figures of the retrainer; empty until it reported."""
        return self.components.get("retrainer", {})

    def total(self, name: str) -> int:
        """The sum of a figure over the shards."""
        return sum(int(shard.get(name) or 0) for shard in self.shards)


class DemoWatch:
    """Asks the API; a look that fails leaves the last one standing and says why in ``problem``."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False)
        self.seen = Seen()
        self.problem = ""

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def look(self) -> Seen:
        """Look once."""
        if not self._look_at_status():
            return self.seen
        try:
            zones = self._client.get("/zones").raise_for_status().json()["zones"]
            forecasts = {}
            for zone in zones:
                answer = self._client.get("/predict", params={"site": zone["site"], "zone": zone["zone"]})
                if answer.status_code == httpx.codes.OK:
                    forecasts[zone["site"], zone["zone"]] = answer.json()
        except (httpx.HTTPError, ValueError, KeyError) as error:
            self.problem = f"{type(error).__name__}: {error}"
            return self.seen
        self.seen = replace(self.seen, forecasts=forecasts)
        return self.seen

    def _look_at_status(self) -> bool:
        """Renew all but the forecasts; False when that failed."""
        try:
            status = self._client.get("/status").raise_for_status().json()
            self.seen = Seen(
                components=status["components"],
                models=status["models"],
                events=status["events"],
                errors=status["errors"],
                pointer=status["slot"],
                forecasts=self.seen.forecasts,
            )
        except (httpx.HTTPError, ValueError, KeyError) as error:
            self.problem = f"{type(error).__name__}: {error}"
            return False
        self.problem = ""
        return True

    def wait_until_ready(self, timeout_s: float) -> bool:
        """Wait until the log is read to its end, every zone can be predicted, and the gateway takes what devices send:
        before, a broker that does not know it yet keeps nothing for it. False when the time is over.
        """
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            self._look_at_status()
            zones = {zone for shard in self.seen.shards for zone in shard["zones"]}
            listens = self.seen.components.get("gateway", {}).get("connected")
            done = zones and self.seen.total("backlog") == 0
            if listens and done and len(self.look().forecasts) == len(zones):
                return True
            time.sleep(READY_EVERY_S)  # whoever looks takes time from what is awaited
        return False
