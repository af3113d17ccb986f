"""Step 6 of the way of a reading: the series store of the settings, and the rows that a restart must send it."""

from __future__ import annotations

from collections.abc import Sequence

from services.config import Settings
from services.forecast_spec import forecast_spec
from services.store.delivered import Delivered
from services.store.history import History
from services.store.series import InfluxWriter, NullSeries, SeriesWriter

__all__ = ["series_writer"]


def series_writer(settings: Settings, partitions: Sequence[int]) -> SeriesWriter:
    """The writer to InfluxDB, if one is configured, otherwise one that does nothing. Rows that it may have missed are
    queued first.
    """
    influx = settings.influx
    if not influx.url:
        return NullSeries()
    token = influx.token.get_secret_value() if influx.token else ""
    if not token and influx.token_file is not None:
        token = influx.token_file.read_text().strip()
    channels = forecast_spec(settings).channels
    delivered = Delivered(settings.storage, partitions, settings.log.partitions)
    missing = list(delivered.missing(History(settings.storage, channels, settings.stream.step_s)))
    writer = InfluxWriter(
        influx.url, influx.org, influx.bucket, token, channels, influx.queue_points, delivered=delivered.note
    )
    for steps in missing:
        writer.rows(steps)
    return writer
