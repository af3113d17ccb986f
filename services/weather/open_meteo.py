"""The JSON that Open-Meteo answers with, and services like it, as a plan. Pure: time is an argument.

The format is that of https://open-meteo.com/en/docs: ``hourly`` holds ``time`` and a list a variable, of equal length,
null where the model says nothing; ``hourly_units`` names the units; an error is ``{"error": true, "reason": "…"}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec

from edge.wire.plan import METRICS_OF, PlanMessage, decode_plan, plan_topic
from edge.wire.topic import SITE_ZONE
from models.durations import DAY_MS, HOUR_MS

__all__ = ["DEVICE", "WeatherError", "plan_of_answer", "query"]

DEVICE = "weather-service"
"""In the topic of the plans."""

_MEAN_OF_HOUR_BEFORE = "radiation"
"""Ends the names of variables that are means of the hour before their time; the others are of that instant."""

_UNITS = {"W/m²": ("W/m²", "W/m^2"), "m/s": ("m/s", "ms"), "°": ("°",), "°C": ("°C",), "%": ("%",)}
_PAST_MS = 6 * HOUR_MS
"""Values that have passed tell how right the forecast is until now; they are kept for this many hours."""

_LAST_S = 253_402_300_799
"""The year 9999 ends then: what is later is not in seconds."""


class WeatherError(ValueError):
    """An answer is no forecast; the message says why, in one sentence. ``pause_s`` is how long the service asks to be
    left alone.
    """

    def __init__(self, message: str, pause_s: float = 0.0) -> None:
        super().__init__(message)
        self.pause_s = pause_s


def query(latitude: float, longitude: float, variables: Mapping[str, str], days: int) -> dict[str, str]:
    """The parameters of a request.

    >>> query(51.98, 4.53, {"temperature_2m": "out_temp_c"}, 3)["hourly"]
    'temperature_2m'
    """
    return {
        "latitude": f"{latitude:g}", "longitude": f"{longitude:g}", "hourly": ",".join(variables),
        "forecast_days": str(days), "timeformat": "unixtime", "timezone": "UTC", "wind_speed_unit": "ms",
    }  # fmt: skip


def plan_of_answer(
    content: bytes, site: str, variables: Mapping[str, str], source: str, fetched_ms: int
) -> tuple[PlanMessage, list[str]]:
    """The plan in an answer that came at ``fetched_ms``, and a sentence about each variable that is not in it.

    Raises :class:`WeatherError` where nothing of it can be used.
    """
    hourly, units = _hourly(content)
    times_ms = _times_ms(hourly)
    values: dict[str, list[tuple[int, float]]] = {}
    missing = []
    for variable, metric in variables.items():
        try:
            found = _series(hourly, units, variable, metric, len(times_ms))
        except WeatherError as error:
            missing.append(str(error))
            continue
        back_ms = HOUR_MS // 2 if variable.endswith(_MEAN_OF_HOUR_BEFORE) else 0
        path = [(ms - back_ms, value) for ms, value in zip(times_ms, found, strict=True) if value is not None]
        first_ms, last_ms = fetched_ms - _PAST_MS, fetched_ms + 15 * DAY_MS
        kept = [point for point in path if first_ms <= point[0] <= last_ms]
        if kept and kept[-1][0] > fetched_ms:
            values[metric] = kept
        else:
            when = f"it ends at {_iso(path[-1][0])}" if path else "it has no value"
            missing.append(f"{variable} says nothing of what is to come: {when}")
    if not values:
        raise WeatherError("; ".join(missing[:3]))
    body = {"issued": fetched_ms, "source": source, "kind": "weather", "values": values}
    decoded = decode_plan(plan_topic(site, SITE_ZONE, DEVICE), msgspec.json.encode(body), fetched_ms)
    wrong = [refusal.detail for refusal in decoded.refusals]
    if decoded.plan is None:
        raise WeatherError("; ".join([*wrong, *missing][:3]))
    return decoded.plan, [*missing, *wrong]


def _hourly(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        beginning = content[:40].decode(errors="replace").strip()
        what = "HTML" if beginning.startswith("<") else "no JSON"
        raise WeatherError(f"the service answered with {what}: {beginning!r}") from error
    if isinstance(found, dict) and found.get("error"):
        raise WeatherError(f"the service refuses: {str(found.get('reason', 'it says not why'))[:200]}")
    if not isinstance(found, dict) or not isinstance(found.get("hourly"), dict):
        raise WeatherError("the service's answer has no `hourly`, the table with a list a variable")
    units = found.get("hourly_units")
    return found["hourly"], units if isinstance(units, dict) else {}


def _times_ms(hourly: Mapping[str, Any]) -> list[int]:
    times = hourly.get("time")
    if not isinstance(times, list) or not times:
        raise WeatherError("`hourly` has no list `time`")
    if not all(isinstance(time, int) and not isinstance(time, bool) for time in times):
        raise WeatherError(f"`hourly.time` must be Unix times (timeformat=unixtime), it has {str(times[0])[:40]!r}")
    if not 0 <= min(times) <= max(times) <= _LAST_S:
        raise WeatherError(f"`hourly.time` must be in seconds since 1970, it has {str(times[-1])[:40]}")
    if any(later <= earlier for earlier, later in pairwise(times)):
        raise WeatherError("`hourly.time` does not rise")
    return [time * 1000 for time in times]


def _series(
    hourly: Mapping[str, Any], units: Mapping[str, Any], variable: str, metric: str, length: int
) -> list[float | None]:
    found = hourly.get(variable)
    if not isinstance(found, list):
        raise WeatherError(f"the answer lacks {variable}")
    if len(found) != length:
        raise WeatherError(f"{variable} has {len(found)} values for {length} times")
    unit = METRICS_OF["weather"][metric].unit
    if units.get(variable) not in (None, *_UNITS.get(unit, (unit,))):
        raise WeatherError(f"{variable} comes in {str(units[variable])[:20]}, {metric} is in {unit}")
    if not all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in found):
        raise WeatherError(f"{variable} holds something that is no number")
    return found


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")
