"""Answers as Open-Meteo gives them (https://open-meteo.com/en/docs, forecast API), made for a time."""

from __future__ import annotations

import json
from typing import Any

HOUR_S = 3_600
UNITS = {
    "time": "unixtime", "temperature_2m": "°C", "relative_humidity_2m": "%", "shortwave_radiation": "W/m²",
    "wind_speed_10m": "m/s", "wind_direction_10m": "°",
}  # fmt: skip

__all__ = ["HTML", "REFUSED", "UNITS", "answer", "document"]

HTML = b"<!DOCTYPE html><html><head><title>503 Service Temporarily Unavailable</title></head></html>"

REFUSED = json.dumps({
    "error": True, "reason": "Data corrupted at path ''. Cannot initialize SurfacePressureAndHeightVariable from "
    "invalid String value tempeture_2m.",
}).encode()  # fmt: skip


def document(now_ms: int, hours: int = 72, **hourly: Any) -> dict[str, Any]:
    """What the service says at ``now_ms``, from midnight UTC on; ``hourly`` replaces lists."""
    midnight = now_ms // 86_400_000 * 86_400
    times = [midnight + n * HOUR_S for n in range(hours)]
    table = {
        "time": times,
        "temperature_2m": [round(6 + n % 24 / 4, 1) for n in range(hours)],
        "relative_humidity_2m": [95 - n % 24 for n in range(hours)],
        "shortwave_radiation": [max(0.0, 400.0 - 60 * abs(n % 24 - 12)) for n in range(hours)],
        "wind_speed_10m": [round(3 + n % 7 / 10, 2) for n in range(hours)],
        "wind_direction_10m": [(200 + n) % 360 for n in range(hours)],
    }
    return {
        "latitude": 51.98, "longitude": 4.5200005, "generationtime_ms": 0.0940561294555664, "utc_offset_seconds": 0,
        "timezone": "GMT", "timezone_abbreviation": "GMT", "elevation": -2.0, "hourly_units": dict(UNITS),
        "hourly": table | hourly,
    }  # fmt: skip


def answer(now_ms: int, hours: int = 72, **hourly: Any) -> bytes:
    """The same as bytes."""
    return json.dumps(document(now_ms, hours, **hourly)).encode()
