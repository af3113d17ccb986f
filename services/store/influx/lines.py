"""Step 6 of the way of a reading: rows and forecasts as InfluxDB's line protocol.

``zone_climate`` (tags site, zone; a field a channel; time: the row's end) and ``forecast`` (tags site, zone, target,
horizon_min; fields p10, p50, p90, origin_ms, version; time: the forecast moment). Measurement, tags and time
name a point, so that sending it again changes nothing; a forecast that a newer version made of the same row replaces
the one before. As a tag the version would begin a series a zone, target and horizon with each swap; earlier releases
had the tag `model_version`. Times are milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from models.durations import MINUTE_MS
from services.messages import DECIMALS, ZoneForecast
from services.store.forecasts import IssuedForecast
from services.store.rows import ClosedStep

__all__ = ["forecast_lines", "issued_lines", "row_lines"]


def row_lines(channels: Sequence[str], steps: Iterable[ClosedStep]) -> list[str]:
    """A line a zone and step; a zone without any value in a step has none."""
    lines = []
    for step in steps:
        for zone, values in zip(step.zones, step.values.tolist(), strict=True):
            fields = _fields(dict(zip(channels, values, strict=True)))
            if fields:
                lines.append(f"zone_climate,site={_tag(step.site)},zone={_tag(zone)} {fields} {step.end_ms}")
    return lines


def forecast_lines(forecasts: Iterable[ZoneForecast]) -> list[str]:
    """A line a zone, target and horizon, as published."""
    lines = []
    for forecast in forecasts:
        where, version = _where(forecast["site"], forecast["zone"]), _text(forecast["model_version"])
        for target, points in forecast["forecasts"].items():
            for point in points:
                said = (point["p10"], point["p50"], point["p90"])
                lines += _forecast_line(where, target, point["horizon_min"], version, forecast["origin_ms"], said)
    return lines


def issued_lines(issued: IssuedForecast, horizons_min: Sequence[int], targets: Sequence[str]) -> list[str]:
    """The same lines of a forecast as it is kept; targets that could not be forecast at all have none."""
    lines, version = [], _text(issued.version)
    for zone, by_horizon in zip(issued.zones, issued.quantiles, strict=True):
        where = _where(issued.site, zone)
        for m, target in enumerate(targets):
            if np.isfinite(by_horizon[:, m]).all():
                for horizon_min, said in zip(horizons_min, by_horizon[:, m].tolist(), strict=True):
                    rounded = [round(value, DECIMALS) for value in said]
                    lines += _forecast_line(where, target, horizon_min, version, issued.origin_ms, rounded)
    return lines


def _where(site: str, zone: str) -> str:
    return f"site={_tag(site)},zone={_tag(zone)}"


def _forecast_line(
    where: str, target: str, horizon_min: int, version: str, origin_ms: int, said: Sequence[float | None]
) -> list[str]:
    fields = _fields(dict(zip(("p10", "p50", "p90"), said, strict=True)))
    tags = f"{where},target={_tag(target)},horizon_min={horizon_min}"
    time_ms = origin_ms + horizon_min * MINUTE_MS
    return [f"forecast,{tags} {fields},origin_ms={origin_ms}i,version={version} {time_ms}"] if fields else []


def _tag(text: str) -> str:
    for character in ("\\", ",", "=", " "):
        text = text.replace(character, "\\" + character)
    return text


def _text(text: str) -> str:
    r"""A field's text in line protocol.

    >>> _text('v"2')
    '"v\\"2"'
    """
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _fields(values: Mapping[str, float | None]) -> str:
    return ",".join(f"{name}={value!r}" for name, value in values.items() if value is not None and math.isfinite(value))
