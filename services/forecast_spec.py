"""What this installation forecasts: the settings and the vocabulary as one ``ForecastSpec``.

Ingest, learning and serving build the spec here, so that rows, models and requests agree on shape and order.
"""

from __future__ import annotations

from edge.wire.vocabulary import VOCABULARY
from models.durations import HOUR_MS
from models.spec import ForecastSpec, Place
from services.config import Settings

__all__ = ["forecast_spec", "place_of"]


def forecast_spec(settings: Settings) -> ForecastSpec:
    """The shape of every row, model and forecast of this installation; channels in vocabulary order."""
    step_ms = settings.stream.step_s * 1000
    return ForecastSpec(
        channels=tuple(VOCABULARY),
        targets=settings.forecast.targets,
        horizons_min=settings.forecast.horizons_min,
        step_ms=step_ms,
        lookback_steps=settings.forecast.lookback_hours * HOUR_MS // step_ms,
        angles=tuple(name for name, metric in VOCABULARY.items() if metric.kind == "angle"),
        counters=tuple(name for name, metric in VOCABULARY.items() if metric.kind == "counter"),
    )


def place_of(settings: Settings, site: str) -> Place:
    """Where a site stands, for sun and calendar."""
    found = settings.site(site)
    return Place(found.timezone, found.clock, found.latitude, found.longitude)
