"""What the demo sees of the system: only what its public API says."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import httpx

from edge.timing import Periodic
from services.demo.outlook_line import QUESTION, TARGET, NextDay
from services.ingest.figures import ShardFigures
from services.messages import (
    RETRAINER_ACTOR,
    GatewayFigures,
    LearningFigures,
    LiveEvent,
    ModelRow,
    ShownAlert,
    ZoneForecast,
)
from services.serve.api.answer_types import StatusAnswer
from services.serve.components import Figures, retrainers_of, shards_of
from services.serve.models.model_pointer import PointerAnswer

__all__ = ["DemoWatch", "Seen"]

TIMEOUT_S = 3.0
READY_EVERY_S = 0.25
OUTLOOK_EVERY_S = 2.0
"""Scenarios are drawn for each question: in a demonstration every look would have new ones."""


@dataclass(slots=True)
class Seen:
    """One look at the system; ``forecasts`` and ``outlooks`` by ``(site, zone)`` as ``/predict`` answered."""

    components: dict[str, Figures] = field(default_factory=dict)
    models: list[ModelRow] = field(default_factory=list)
    events: list[LiveEvent] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    pointer: PointerAnswer = field(default_factory=PointerAnswer)
    forecasts: dict[tuple[str, str], ZoneForecast] = field(default_factory=dict)
    outlooks: dict[tuple[str, str], NextDay] = field(default_factory=dict)
    alerts: list[ShownAlert] = field(default_factory=list)  # that fire, what needs somebody first

    @property
    def shards(self) -> list[ShardFigures]:
        """The figures of all shards; as JSON, so that the horizons of live errors are texts."""
        return list(shards_of(dict(sorted(self.components.items()))).values())

    @property
    def retrainer(self) -> LearningFigures | None:
        """The figures of the retrainer; ``None`` until it reported."""
        return retrainers_of(self.components).get(RETRAINER_ACTOR)

    @property
    def gateway(self) -> GatewayFigures | None:
        """The figures of the gateway; ``None`` until it was reported on."""
        return cast("GatewayFigures | None", self.components.get("gateway"))

    def total(self, name: Literal["samples", "accepted", "zone_rows", "forecasts", "backlog", "plans"]) -> int:
        """The sum of a figure over the shards."""
        return sum(shard[name] for shard in self.shards)


class DemoWatch:
    """Asks the API; a look that fails leaves the last one standing and says why in ``problem``."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False)
        self.seen = Seen()
        self.problem = ""
        self._outlooks_due = Periodic(OUTLOOK_EVERY_S)

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
            alerts = self._client.get("/alerts", params={"state": "firing"}).raise_for_status().json()["alerts"]
        except (httpx.HTTPError, ValueError, KeyError) as error:
            self.problem = f"{type(error).__name__}: {error}"
            return self.seen
        self.seen = replace(self.seen, forecasts=forecasts, alerts=alerts)
        if self._outlooks_due.due(time.monotonic()):
            timezones = {(zone["site"], zone["zone"]): zone["timezone"] for zone in zones}
            outlooks = {key: self._outlook(key, timezones[key], forecasts[key]["origin"]) for key in forecasts}
            self.seen = replace(self.seen, outlooks=outlooks)
        return self.seen

    def _outlook(self, key: tuple[str, str], timezone: str, origin: str) -> NextDay:
        """What scenarios say of a zone's next night and day, or why nothing is said."""
        found = NextDay(timezone=timezone, origin=origin, events=[], problem="")
        asked = {"site": key[0], "zone": key[1], "targets": TARGET, "events": QUESTION}
        try:
            answer = self._client.get("/predict", params=asked)
            body = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            return {**found, "problem": type(error).__name__}
        if answer.status_code != httpx.codes.OK:
            return {**found, "problem": str(body.get("detail", answer.status_code))}
        if TARGET not in body["forecasts"]:
            return {**found, "problem": "the air temperature is not forecast"}
        return {**found, "origin": body["origin"], "events": body["events"]}

    def _look_at_status(self) -> bool:
        """Renew all but the forecasts; False when that failed."""
        try:
            status: StatusAnswer = self._client.get("/status").raise_for_status().json()
            self.seen = Seen(
                components=status["components"],
                models=status["models"],
                events=status["events"],
                errors=status["errors"],
                pointer=status["slot"],
                forecasts=self.seen.forecasts,
                outlooks=self.seen.outlooks,
                alerts=self.seen.alerts,
            )
        except (httpx.HTTPError, ValueError, KeyError) as error:
            self.problem = f"{type(error).__name__}: {error}"
            return False
        self.problem = ""
        return True

    def wait_until_ready(self, patience_s: float) -> bool:
        """Wait until the log is read to its end, every zone can be predicted, and the gateway takes what devices send:
        before, a broker that does not know it yet keeps nothing for it. False when for ``patience_s`` nothing of that
        came nearer, however long the whole takes: a slow machine reads the same history in several times the seconds.
        """
        nearest: tuple[bool, int, int, bool] | None = None
        deadline_s = time.monotonic() + patience_s
        while time.monotonic() < deadline_s:
            if self._look_at_status():
                zones = {zone for shard in self.seen.shards for zone in shard["zones"]}
                backlog = self.seen.total("backlog")
                missing = len(zones) - len(self.look().forecasts) if zones and backlog == 0 else len(zones)
                deaf = not (self.seen.gateway is not None and self.seen.gateway.get("connected"))
                left = (not zones, backlog, missing, deaf)
                if left == (False, 0, 0, False):
                    return True
                if nearest is None or left < nearest:
                    nearest, deadline_s = left, time.monotonic() + patience_s
            time.sleep(READY_EVERY_S)  # whoever looks takes time from what is awaited
        return False
