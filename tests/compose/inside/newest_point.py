"""Runs in the service's container: the time in ms up to which InfluxDB has rows of all zones, in Flux; else 0."""

from __future__ import annotations

import json


def main() -> None:
    """Ask and print."""
    from influxdb_client import InfluxDBClient

    from services.config import load_settings

    influx = load_settings().influx
    assert influx.token_file is not None
    flux = (
        f'from(bucket: "{influx.bucket}") |> range(start: 2000-01-01T00:00:00Z, stop: 2100-01-01T00:00:00Z)'
        ' |> filter(fn: (r) => r._measurement == "zone_climate" and r._field == "air_temp_c") |> last()'
    )
    token = influx.token_file.read_text().strip()
    with InfluxDBClient(influx.url, token, org=influx.org, timeout=20_000) as client:
        times = [record["_time"].timestamp() for table in client.query_api().query(flux) for record in table.records]
    print(json.dumps(round(1000 * min(times, default=0))))


if __name__ == "__main__":
    main()
