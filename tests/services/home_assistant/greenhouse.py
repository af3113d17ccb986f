"""A zone's forecast, its night and an alert, as the live state and the shard give them, and the link over them."""

from __future__ import annotations

import queue
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge.mqtt.connection import MqttAddress
from edge.wire.vocabulary import VOCABULARY
from services.home_assistant.documents import About
from services.home_assistant.home_assistant_link import HomeAssistantLink, PublishedTopics, presence_topic
from services.home_assistant.publication import Publication
from services.messages import ForecastPath, ForecastPoint, ZoneForecast
from services.store.storage import FolderStorage
from tests.patience import until

__all__ = ["EVENTS", "ORIGIN_MS", "Greenhouse", "alert", "forecast"]

ORIGIN_MS = 1_646_154_000_000  # 2022-03-01 17:00 UTC
MINUTES = [5, 10, 20, 30, 45, *range(60, 1441, 30)]

EVENTS: list[dict[str, Any]] = [
    {"event": "night", "target": "air_temp_c", "p10": 11.6, "p50": 12.41, "p90": 13.3, "time": "2022-03-02T04:30:00Z",
     "earliest": "2022-03-02T02:00:00Z", "latest": "2022-03-02T06:00:00Z", "from": "2022-03-01T17:30:00Z",
     "to": "2022-03-02T06:30:00Z", "goes_on": False},
    {"event": "day", "target": "air_temp_c", "missing": "no day ends within the path"},
    {"event": "night_below", "target": "air_temp_c", "limit": 11.2, "chance": 0.18, "nights": 14},
    {"event": "day_above", "target": "air_temp_c", "missing": "too few days were seen as a whole: 3 of 7"},
]  # fmt: skip


def _point(minutes: int, value: float) -> ForecastPoint:
    time_ms = ORIGIN_MS + minutes * 60_000
    return ForecastPoint(
        horizon_min=minutes, time_ms=time_ms, time=f"2022-03-01T{17 + minutes // 60 % 7:02d}:00:00Z",
        p10=value - 1, p50=value, p90=value + 1,
    )  # fmt: skip


def forecast(zone: str = "north-1", origin_ms: int = ORIGIN_MS, now: dict[str, float | None] | None = None) -> Any:
    """A zone's newest forecast: air, humidity and outside temperature are read, CO₂ is not."""
    readings: dict[str, float | None] = dict.fromkeys(VOCABULARY) | {"vpd_kpa": None}
    readings |= {"air_temp_c": 18.3, "rh_pct": 81.0, "vpd_kpa": 0.4, "out_temp_c": 6.5} if now is None else now
    targets = {"air_temp_c": 17.2, "rh_pct": 84.0, "vpd_kpa": 0.31}
    band = {name: [round(17.123 + at / 10, 3) for at in range(len(MINUTES))] for name in ("p10", "p50", "p90")}
    return ZoneForecast(
        site="demo", zone=zone, origin_ms=origin_ms, origin="2022-03-01T17:00:00Z", step_s=300, model_version="v3",
        degraded=["co2_ppm: last reading 22 min before the origin"], now=readings,
        now_age_s={}, reports_every_s=0,
        freshness_s=dict.fromkeys(readings, 12.0),
        forecasts={name: [_point(minutes, value) for minutes in (5, 60, 1440)] for name, value in targets.items()},
        path=ForecastPath(horizon_min=MINUTES, targets=dict.fromkeys(targets, band)),
    )  # fmt: skip


def alert(state: str, change: int, rule: str = "condensation", **said: Any) -> dict[str, Any]:
    """An alert as `GET /alerts` has it."""
    return {
        "id": "6f0c1d2e3a4b5c6d", "change": change, "site": "demo", "zone": "north-1", "rule": rule, "kind": rule,
        "severity": "warning", "state": state, "chance": 0.72, "from_ms": ORIGIN_MS + 36_000_000,
        "until_ms": ORIGIN_MS + 45_000_000, "began_ms": ORIGIN_MS, "changed_ms": ORIGIN_MS, "seen_ms": ORIGIN_MS,
        "text": "condensation 72 % between 04:00 and 06:30; air 11.8 °C, fruit 10.9, dew point 11.2", **said,
    }  # fmt: skip


class Greenhouse:
    """The link over a live state that says what it is given."""

    def __init__(self, folder: Path, address: MqttAddress, prefix: str = "homeassistant") -> None:
        self._changes: queue.Queue[dict[str, Any]] = queue.Queue()
        about = About(presence_topic("us"), "0.1", 900, 1800)
        publication = Publication(prefix, about, lambda _: EVENTS, lambda _: "Europe/Amsterdam", lambda: 0.0)
        if not prefix:
            publication.published = PublishedTopics(FolderStorage(folder), "topics.json").read()
        self.link = HomeAssistantLink(
            address, "us", prefix, publication, self._wait, PublishedTopics(FolderStorage(folder), "topics.json")
        )

    def say(self, **changes: Any) -> None:
        """What the live state says next."""
        self._changes.put({"version": 1, **changes})

    def say_and_wait(self, **changes: Any) -> None:
        """The same; returns when the link has dealt with it."""
        for one in (changes, {}, {}):
            self.say(**one)
        until(self._changes.empty)

    def _wait(self, seen: Mapping[int, int]) -> dict[str, Any]:
        try:
            return self._changes.get(timeout=0.05)
        except queue.Empty:
            return {}
