"""What an InfluxDB holds as files of a recording: one Parquet a zone, a column a field."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from services.errors import HothouseError

if TYPE_CHECKING:
    import pandas as pd

    from services.config import InfluxSettings

__all__ = ["read_influx", "write_zones"]

TOLD_EVERY = 10_000
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


def read_influx(
    url: str, org: str, settings: InfluxSettings, query: Path, zone_tag: str, folder: Path,
    told: Callable[[int], None] = lambda count: None,
) -> None:  # fmt: skip
    """Ask, and write a file a zone into ``folder``; raises :class:`HothouseError` in one sentence."""
    from influxdb_client import InfluxDBClient

    from services.store.influx.influx_answers import said_words

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
                f"InfluxDB at {url} does not answer the query: {said_words(error)}",
                "Try the query in InfluxDB's own page; the token is HOTHOUSE_INFLUX__TOKEN.",
            ) from error

    write_zones(answer(), zone_tag, folder, told)


def write_zones(
    records: Iterable[dict[str, Any]], zone_tag: str, folder: Path, told: Callable[[int], None] = lambda count: None
) -> None:
    """One file a zone, by its name of ours: ``time`` (UTC) and a column a field. Raises :class:`HothouseError` where a
    record has no zone or no value, where a value is no number, where a zone has two values of a field at a time, where
    no record is there, and where two zones would have one name. ``told`` is how many records have come.
    """
    import pandas as pd

    from edge.recordings.columns import RecordingError
    from edge.recordings.zone_file import name_of

    said: dict[str, dict[str, _Column]] = {}
    for count, record in enumerate(records, 1):
        if not count % TOLD_EVERY:
            told(count)
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
        columns, field = said.setdefault(str(zone), {}), str(record["_field"])
        column = columns.get(field)
        if column is None:
            column = columns[field] = _Column(str(zone), field)
        column.add(record["_time"], record["_value"])
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
        frame = pd.DataFrame({field: column.series() for field, column in columns.items()}).sort_index()
        frame.rename_axis("time").reset_index().to_parquet(folder / f"{name}.parquet", index=False)


class _Column:
    """What a zone's field said, 16 bytes a value: a year of some zones is millions of them."""

    def __init__(self, zone: str, field: str) -> None:
        self._zone, self._field = zone, field
        self._times_us, self._values = array("q"), array("d")

    def add(self, time: Any, value: Any) -> None:
        """The next record's."""
        try:
            self._times_us.append((time - _EPOCH) // _MICROSECOND)
        except (TypeError, OverflowError) as error:
            raise HothouseError(
                f"a record's _time is {str(time)[:40]!r}, not a time", "Leave _time as it is in the query."
            ) from error
        try:
            self._values.append(math.nan if value is None else float(value))
        except (TypeError, ValueError, OverflowError) as error:
            raise HothouseError(
                f"the field {self._field} of the zone {self._zone} is no number: {error}",
                "Leave it out in the query, with filter().",
            ) from error

    def series(self) -> pd.Series[float]:
        """By time, each once. Raises :class:`HothouseError` where two values differ at a time."""
        import numpy as np
        import pandas as pd

        times_us, values = np.array(self._times_us), np.array(self._values)
        order = np.argsort(times_us, kind="stable")
        times, values = pd.to_datetime(times_us[order], unit="us", utc=True), values[order]
        again = times[1:] == times[:-1]
        before, after = values[:-1], values[1:]
        differs = np.flatnonzero(again & (before != after) & ~(np.isnan(before) & np.isnan(after)))
        if differs.size:
            at = differs[0]
            raise HothouseError(
                f"the zone {self._zone} has several values of {self._field} at {times[at]}: {before[at]:g} and "
                f"{after[at]:g}", "Let the query make one of them, with group() and mean().",
            )  # fmt: skip
        once = np.append(~again, True)[: len(times)]
        return pd.Series(values[once], index=times[once])
