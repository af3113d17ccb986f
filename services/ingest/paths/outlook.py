"""Steps 8 and 9 of the way of a reading: what a zone's scenarios say, made when somebody asks."""

from __future__ import annotations

import numpy as np

from models.features.inputs import day_bins, sun_sine, targets_of
from models.online.online_forecaster import OnlineForecaster
from models.paths.past_nights import DAY, NIGHT
from models.paths.paths import IsNight, Paths, night_by_clock
from models.spec import ForecastSpec, Place
from services.ingest.forecasting import ForecastOrigin
from services.messages import F32, I64, Extreme, ZoneOutlook

__all__ = ["night_at", "zone_outlook"]

KINDS = {"night": NIGHT, "day": DAY}


def night_at(place: Place, end_ms: int, spec: ForecastSpec) -> IsNight:
    """Whether the sun is below the horizon so many steps after ``end_ms``; by the clock where the place is unknown."""

    def is_night(steps: I64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        times = end_ms + steps * spec.step_ms
        if place.latitude is None or place.longitude is None:
            return night_by_clock(day_bins(place, times, spec), spec.steps_per_day)
        return np.asarray(sun_sine(place, times) < 0)

    return is_night


def zone_outlook(
    paths: Paths, forecaster: OnlineForecaster, spec: ForecastSpec, origin: ForecastOrigin, quantiles: F32, zone: str,
    is_night: IsNight,
) -> ZoneOutlook:  # fmt: skip
    """Scenarios of a zone from an origin of which ``quantiles [Z, H, M, Q]`` were issued; its next night and day."""
    at = slice(origin.zones.index(zone), origin.zones.index(zone) + 1)
    index, bins, step = origin.indices[at], origin.day_bin[at], origin.end_ms // spec.step_ms
    path = forecaster.path(index, step, bins, quantiles[at], paths.knots)
    drawn = paths.scenarios(index, step, int(bins[0]), path, origin.site, [zone])
    extremes = {}
    for name, kind in KINDS.items():
        span = paths.span(kind, is_night)
        if span is None:
            continue
        values, times = paths.extremes(index, bins, drawn[:, :, span[0] : span[1]], kind, span)
        extremes[name] = Extreme(
            first=span[0], last=span[1] - 1, values=values[:, 0], at=times[:, 0],
            past=paths.nights.past(int(index[0]), kind),
        )  # fmt: skip
    return ZoneOutlook(
        origin_ms=origin.end_ms, now=targets_of(origin.values[at], spec)[0], steps=paths.knots.steps,
        scenarios=drawn[:, 0], extremes=extremes,
    )  # fmt: skip
