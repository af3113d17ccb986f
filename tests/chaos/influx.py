"""What a chaos experiment left in InfluxDB, against its history."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from influxdb_client import InfluxDBClient

from services.config import Settings
from services.forecast_spec import forecast_spec
from services.store.history import History

__all__ = ["influx_differences"]

_Key = tuple[str, str, int, str]  # site, zone, end_ms, channel


def influx_differences(influx: Mapping[str, str], settings: Settings, sites: Sequence[str]) -> tuple[int, list[str]]:
    """How many values of these sites are there, and each that differs from the history's zone rows."""
    channels = forecast_spec(settings).channels
    wanted: dict[_Key, float] = {
        (row["site"], row["zone"], row["end_ms"], channel): row[channel]
        for row in History(settings.storage_folder, channels, settings.stream.step_s).read(sites=sites).to_pylist()
        for channel in channels
        if row[channel] is not None and math.isfinite(row[channel])
    }
    found: dict[_Key, float] = {}
    with InfluxDBClient(url=influx["url"], token=influx["token"], org=influx["org"]) as client:
        for site in sites:
            query = (
                f'from(bucket: "{influx["bucket"]}") |> range(start: -6h, stop: 1h)'
                f' |> filter(fn: (r) => r._measurement == "zone_climate" and r.site == "{site}")'
            )
            for record in (r for table in client.query_api().query(query) for r in table.records):
                end_ms = round(record.get_time().timestamp() * 1000)
                found[site, record["zone"], end_ms, record.get_field()] = record.get_value()
    wrong = [
        f"InfluxDB {key}: {found.get(key)} instead of {wanted.get(key)}"
        for key in sorted(wanted.keys() | found.keys())
        if wanted.get(key) != found.get(key)
    ]
    return len(found), wrong
