"""Step 9 of the way of a reading: what a zone's state topic says: readings, forecast, night and day, health.

Each part that is an entity has ``value`` and ``attributes``. Home Assistant keeps at most 16 KiB of attributes an
entity, so what would be longer is thinned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from models.durations import MINUTE_MS
from services.messages import ForecastPath, ModelRow, ZoneForecast

__all__ = ["MAX_ATTRIBUTES_BYTES", "site_state", "zone_state"]

MAX_ATTRIBUTES_BYTES = 16_000
"""Home Assistant's recorder drops the attributes of an entity from 16,384 bytes on."""
SHOWN_MIN = 60
"""A forecast's value is that of the horizon nearest to this one."""


def zone_state(
    forecast: ZoneForecast, events: Sequence[Mapping[str, Any]], readings: Collection[str], timezone: str
) -> dict[str, Any]:
    """The state of a zone; ``events`` are what ``/predict`` answers to ``night, day, night_below, day_above`` of one
    target, ``readings`` are the metrics that the zone has.
    """
    told = {event["event"]: event for event in events}
    return {
        "origin": forecast["origin"],
        "readings": {metric: forecast["now"].get(metric) for metric in sorted(readings)},
        "forecast": {
            target: _ahead(points, forecast.get("path"), target, timezone)
            for target, points in forecast["forecasts"].items()
        },
        "night": _extreme(told, "night", "night_below", "below", timezone, forecast),
        "day": _extreme(told, "day", "day_above", "above", timezone, forecast),
        "health": {
            "value": "ON" if forecast["degraded"] else "OFF",
            "attributes": _bounded({
                "reasons": list(forecast["degraded"]),
                "age_s": {metric: forecast["freshness_s"].get(metric) for metric in sorted(readings)},
            }, "reasons"),
        },
    }  # fmt: skip


def site_state(
    forecast: ZoneForecast, readings: Collection[str], models: Sequence[ModelRow], problems: Sequence[str]
) -> dict[str, Any]:
    """What is of a whole site: the weather, the model that served, and what fails."""
    version = forecast["model_version"]
    row = next((row for row in models if row["version"] == version), None)
    about = {} if row is None else {
        "stage": row["stage"], "why": row["reason"][:1000], "kind": row["kind"],
        "rows_until": row["trained_on"].get("to"),
    }  # fmt: skip
    return {
        "readings": {metric: forecast["now"].get(metric) for metric in sorted(readings)},
        "model": {"value": version, "attributes": about},
        "problem": {"value": "ON" if problems else "OFF",
                    "attributes": _bounded({"reasons": list(problems)}, "reasons")},
    }  # fmt: skip


def _ahead(points: Sequence[Any], path: ForecastPath | None, target: str, timezone: str) -> dict[str, Any]:
    shown = min(points, key=lambda point: abs(point["horizon_min"] - SHOWN_MIN))
    attributes: dict[str, Any] = {
        "minutes_ahead": shown["horizon_min"], "time": _local(shown["time"], timezone),
        "p10": shown["p10"], "p90": shown["p90"],
    }  # fmt: skip
    if path is not None and target in path["targets"]:
        band, begin_ms = path["targets"][target], shown["time_ms"] - shown["horizon_min"] * MINUTE_MS
        columns = (path["horizon_min"], band["p10"], band["p50"], band["p90"])
        attributes["path"] = [
            [_local(datetime.fromtimestamp(begin_ms / 1000 + 60 * minutes, UTC).isoformat(), timezone),
             *(round(value, 2) for value in values)]
            for minutes, *values in zip(*columns, strict=True)
        ]  # fmt: skip
    return {"value": round(shown["p50"], 2), "attributes": _bounded(attributes, "path")}


def _extreme(
    told: Mapping[str, Mapping[str, Any]], span: str, crossing: str, side: str, timezone: str, forecast: ZoneForecast
) -> dict[str, Any]:
    """The least of the night or the most of the day, when, and the chance that it is beyond an unusual limit."""
    said = told.get(span, {"missing": "it is not known yet"})
    if "missing" in said:
        return {"value": None, "attributes": {"missing": said["missing"]}}
    attributes: dict[str, Any] = {"p10": round(said["p10"], 2), "p90": round(said["p90"], 2)}
    attributes |= {name: _local(said[name], timezone) for name in ("time", "earliest", "latest", "from", "to")}
    is_today = attributes["time"][:10] == _local(forecast["origin"], timezone)[:10]
    attributes["day"] = "today" if is_today else "tomorrow"
    beyond = told.get(crossing, {})
    if "chance" in beyond:
        attributes |= {"limit": round(beyond["limit"], 2), "side": side, "chance": beyond["chance"]}
    return {"value": round(said["p50"], 2), "attributes": attributes}


def _bounded(attributes: dict[str, Any], longest: str) -> dict[str, Any]:
    """The attributes, with every second item of ``longest`` left out as often as it takes.

    >>> len(_bounded({"path": [["x" * 100]] * 1000}, "path")["path"])
    125
    """
    while len(msgspec.json.encode(attributes)) > MAX_ATTRIBUTES_BYTES and len(attributes[longest]) > 1:
        attributes = {**attributes, longest: attributes[longest][::2]}
    return attributes


def _local(time: str, timezone: str) -> str:
    """A time as the site's clock shows it, with its offset."""
    zone = UTC if timezone == "UTC" else ZoneInfo(timezone)
    return datetime.fromisoformat(time).astimezone(zone).isoformat(timespec="minutes")
