"""What an InfluxDB holds as files of a recording: one Parquet a zone, a column a field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from services.errors import HothouseError

if TYPE_CHECKING:
    from services.config import InfluxSettings

__all__ = ["read_influx", "write_zones"]


def read_influx(url: str, org: str, settings: InfluxSettings, query: Path, zone_tag: str, folder: Path) -> None:
    """Ask, and write a file a zone into ``folder``; raises :class:`HothouseError` in one sentence."""
    from influxdb_client import InfluxDBClient

    try:
        secret = settings.secret
    except OSError as error:
        raise HothouseError(f"influx.token_file: {error}", "Name a file that can be read.") from error
    try:
        asked = query.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise HothouseError(f"{query} cannot be read: {error}", "Name a file with a query in Flux.") from error

    def answer() -> Iterator[dict[str, Any]]:
        try:
            with InfluxDBClient(url=url, org=org, token=secret, timeout=600_000) as client:
                yield from (record.values for record in client.query_api().query_stream(asked, org=org))
        except Exception as error:  # what a server or a network may answer is not a closed list
            raise HothouseError(
                f"InfluxDB at {url} does not answer the query: {str(error)[:300]}",
                "Try the query in InfluxDB's own page; the token is HOTHOUSE_INFLUX__TOKEN.",
            ) from error

    write_zones(answer(), zone_tag, folder)


def write_zones(records: Iterable[dict[str, Any]], zone_tag: str, folder: Path) -> None:
    """One file a zone, by its name of ours: ``time`` (UTC) and a column a field. Raises :class:`HothouseError` where a
    record has no zone or no value, where a value is no number, where a zone has two values of a field at a time, where
    no record is there, and where two zones would have one name.
    """
    import pandas as pd

    from edge.recordings.columns import RecordingError
    from edge.recordings.zone_file import name_of

    said: dict[str, dict[str, dict[Any, Any]]] = {}
    for record in records:
        zone = record.get(zone_tag)
        if zone is None:
            raise HothouseError(
                f"a record has no tag {zone_tag}: {sorted(record)}", "Name the tag of the zone: --zone-tag NAME."
            )
        if missing := {"_field", "_time", "_value"} - record.keys():
            raise HothouseError(
                f"a record has no {', '.join(sorted(missing))}: {sorted(record)}",
                "Let the query answer a record a value, without pivot() and with its time.",
            )
        field, time, value = str(record["_field"]), record["_time"], record["_value"]
        held = said.setdefault(str(zone), {}).setdefault(field, {})
        if time in held and held[time] != value:
            raise HothouseError(
                f"the zone {zone} has several values of {field} at {time}: {held[time]} and {value}",
                "Let the query make one of them, with group() and mean().",
            )
        held[time] = value
    if not said:
        raise HothouseError("the query finds nothing", "Look at its bucket, range and filters.")
    names: dict[str, str] = {}
    for zone, columns in said.items():
        try:
            name = name_of(zone)
        except RecordingError as error:
            raise HothouseError(f"{zone_tag}: {error}", "Rename it in the query, with map().") from error
        if (other := names.setdefault(name, zone)) != zone:
            raise HothouseError(
                f"the zones {other} and {zone} would both be called {name}", "Rename one in the query, with map()."
            )
        numbers = {field: _numbers(zone, field, held) for field, held in columns.items()}
        frame = pd.DataFrame({field: pd.Series(held, dtype=float) for field, held in numbers.items()}).sort_index()
        frame.rename_axis("time").reset_index().to_parquet(folder / f"{name}.parquet", index=False)


def _numbers(zone: str, field: str, held: dict[Any, Any]) -> dict[Any, float | None]:
    try:
        return {time: None if value is None else float(value) for time, value in held.items()}
    except (TypeError, ValueError, OverflowError) as error:
        raise HothouseError(
            f"the field {field} of the zone {zone} is no number: {error}", "Leave it out in the query, with filter()."
        ) from error
