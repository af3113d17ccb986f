"""Step 6 of the way of a reading: the series store that the settings name, and what it missed before a restart."""

from __future__ import annotations

from collections.abc import Sequence

from services.config import Settings
from services.forecast_spec import forecast_spec
from services.store.delivered import Delivered
from services.store.forecasts import IssuedForecasts
from services.store.history import History
from services.store.influx.history_points import HistoryPoints
from services.store.series import InfluxWriter, NullSeries, SeriesWriter
from services.store.storage import storage_of

__all__ = ["series_writer"]

READER = 0
"""Forecasts are only read here; any partition will do."""


def series_writer(settings: Settings, partitions: Sequence[int]) -> SeriesWriter:
    """The writer to InfluxDB, if one is configured, otherwise one that does nothing.

    It first sends what InfluxDB may lack of the history and the issued forecasts of these ``partitions``.
    """
    influx = settings.influx
    if not influx.url:
        return NullSeries()
    spec = forecast_spec(settings)
    rows = History(storage_of(settings), spec.channels).zones
    delivered = Delivered(storage_of(settings), partitions, settings.log.partitions)
    return InfluxWriter(
        influx.url, influx.org, influx.bucket, lambda: influx.secret, spec.channels, influx.queue_points,
        source=HistoryPoints(rows, IssuedForecasts(storage_of(settings), READER), spec),
        delivered=delivered.note, gaps=delivered.gaps(rows),
    )  # fmt: skip
