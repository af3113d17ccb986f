"""What an InfluxDB holds as files of a recording: one Parquet a zone, a column a field."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from services.errors import HothouseError

if TYPE_CHECKING:
    from services.config.sections import InfluxSettings

__all__ = ["read_influx", "write_zones"]


def read_influx(url: str, org: str, settings: InfluxSettings, query: Path, zone_tag: str, folder: Path) -> None:
    """Ask, and write a file a zone into ``folder``; raises :class:`HothouseError` in one sentence."""
    from influxdb_client import InfluxDBClient

    try:
        secret = settings.secret
    except OSError as error:
        raise HothouseError(f"influx.token_file: {error}", "Name a file that can be read.") from error
    try:
        with InfluxDBClient(url=url, org=org, token=secret, timeout=600_000) as client:
            records = client.query_api().query_stream(query.read_text(), org=org)
            write_zones((record.values for record in records), zone_tag, folder)
    except HothouseError:
        raise
    except Exception as error:  # what a server or a network may answer is not a closed list
        raise HothouseError(
            f"InfluxDB at {url} does not answer the query: {str(error)[:300]}",
            "Try the query in InfluxDB's own page; the token is HOTHOUSE_INFLUX__TOKEN.",
        ) from error


def write_zones(records: Iterable[dict[str, Any]], zone_tag: str, folder: Path) -> None:
    """One file a zone: ``time`` (UTC) and a column a field. Raises :class:`HothouseError` where a record has no zone,
    and where there is none.
    """
    import pandas as pd

    said: dict[str, dict[str, dict[Any, float]]] = {}
    for record in records:
        zone = record.get(zone_tag)
        if zone is None:
            raise HothouseError(
                f"a record has no tag {zone_tag}: {sorted(record)}", "Name the tag of the zone: --zone-tag NAME."
            )
        said.setdefault(str(zone), {}).setdefault(str(record["_field"]), {})[record["_time"]] = record["_value"]
    if not said:
        raise HothouseError("the query finds nothing", "Look at its bucket, range and filters.")
    for zone, columns in said.items():
        frame = pd.DataFrame({name: pd.Series(held, dtype=float) for name, held in columns.items()}).sort_index()
        frame.rename_axis("time").reset_index().to_parquet(folder / f"{zone}.parquet", index=False)
