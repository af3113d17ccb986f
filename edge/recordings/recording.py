"""Recordings of real greenhouses: a folder of CSV, CSV.xz, CSV.gz or Parquet files, one a zone, read into arrays.

A file has a ``time`` column and one column a measurement (see :mod:`edge.recordings.columns`). ``time`` is what the
site's clock showed (:mod:`edge.recordings.local_time` says how a clock that is put back and forth is read), or carries
its UTC offset. Hidden files are ignored. Beside recordings, a file without time or rows is left out, with a note.
"""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import re
import zlib
import zoneinfo
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.recordings.columns import Mapping, RecordingError, convert, find_column, load_mapping
from edge.recordings.findings import Cells, Finding, numbers, of_cells, of_guess, of_values
from edge.recordings.local_time import to_utc_ms
from edge.recordings.sample_source import WEATHER, device_of
from edge.wire.reading import SITE_ZONE, base_metric, is_name

__all__ = ["DeviceTable", "Recording", "RecordingError", "Source", "load_recording", "recording_of"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

_DAY_MS = 86_400_000
_OPENERS: dict[str, Callable[..., Any]] = {".csv": Path.open, ".csv.xz": lzma.open, ".csv.gz": gzip.open}


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """All that one device said: ``values`` is [N, K] with NaN where it said nothing, ``times_ms`` is [N], rising."""

    zone: str
    device: str
    metrics: tuple[str, ...]
    times_ms: I64
    values: F64


@dataclass(frozen=True, slots=True)
class Source:
    """A zone's file: ``name`` without its ending, column names as they stand there, first and last time.

    ``is_utc``: its times carry a UTC offset; else they are a clock's.
    """

    name: str
    columns: tuple[str, ...]
    first_ms: int
    last_ms: int
    is_utc: bool


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording as its devices' tables; the weather station's comes first.

    ``sources`` are the files of ``zones``; ``unmapped`` are the columns that no metric was found for; ``notes`` says,
    one sentence each, what was left out, guessed or cut, and what mends it.
    """

    site: str
    zones: tuple[str, ...]
    sources: tuple[Source, ...]
    timezone: str
    latitude: float | None
    longitude: float | None
    interval_ms: int
    tables: tuple[DeviceTable, ...]
    unmapped: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _ZoneFile:
    zone: str
    label: str  # what a sentence calls it
    source: Source
    times_ms: I64
    columns: dict[str, F64]  # mapped columns only, as recorded
    unmapped: list[str]
    notes: list[str]
    findings: list[Finding]


def load_recording(
    folder: Path, mapping: Path | None = None, *, site: str | None = None, timezone: str | None = None,
    latitude: float | None = None, longitude: float | None = None,
) -> Recording:  # fmt: skip
    """Read a folder, one file a zone (its name is the zone's).

    What is given here wins over ``mapping``, which is ``recording.toml`` in the folder unless given. The site is else
    named after the folder, and the time zone is UTC: hours of the day are then right, the sun's position is unknown.

    Raises :class:`RecordingError` in one sentence: no folder, nothing in it, a damaged file, no ``time`` column, a
    column to forecast that cannot be read as it is (:mod:`edge.recordings.findings`).
    """
    if not folder.is_dir():
        raise RecordingError(f"{folder} is not a folder of recordings")
    beside = folder / "recording.toml"
    said = load_mapping(mapping) if mapping else load_mapping(beside) if beside.exists() else Mapping()
    said = replace(said, timezone=timezone or said.timezone or "UTC")
    zone_info = _zone_info(said)
    paths = sorted(path for path in folder.iterdir() if _kind(path))
    if not paths:
        raise RecordingError(f"{folder} holds no recording: no file there ends in .csv, .csv.xz, .csv.gz or .parquet")
    files, left_out = _read_all(paths, said, zone_info)
    if latitude is not None:
        said = replace(said, latitude=latitude)
    if longitude is not None:
        said = replace(said, longitude=longitude)
    named = _name(site or said.site or folder.resolve().name, "" if site or said.site else "site")
    return _recording(files, left_out, said, named, str(folder))


def recording_of(zones: dict[str, Any], said: Mapping | None = None) -> Recording:
    """The recording in Arrow tables (zone -> table), as :func:`load_recording` would read it from Parquet files.

    Raises :class:`RecordingError` in one sentence.
    """
    if not zones:
        raise RecordingError("there is no zone")
    said = replace(said or Mapping(), timezone=(said and said.timezone) or "UTC")
    zone_info = _zone_info(said)
    files = [
        _zone_file(name, name, _read_arrow(table, name, said), said, zone_info, f"zone-{number}")
        for number, (name, table) in enumerate(zones.items(), 1)
    ]
    return _recording(files, [], said, _name(said.site or "recording"), "the recording")


def _zone_info(said: Mapping) -> zoneinfo.ZoneInfo:
    assert said.timezone is not None
    try:
        return zoneinfo.ZoneInfo(said.timezone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise RecordingError(f"{said.timezone!r} is not an IANA time zone such as Europe/Amsterdam") from error


def _recording(files: Sequence[_ZoneFile], left_out: Sequence[str], said: Mapping, site: str, where: str) -> Recording:
    zones = [file.zone for file in files]
    if len(set(zones)) < len(zones):
        names = ", ".join(file.label for file in files)
        raise RecordingError(f"two files in {where} are the same zone: {names}")
    tables, found = _tables(files, said)
    found = [*(finding for file in files for finding in file.findings), *found]
    if errors := [finding.words for finding in found if finding.is_error]:
        more = f" (and {len(errors) - 1} more like it)" if len(errors) > 1 else ""
        raise RecordingError(errors[0] + more)
    unmapped = tuple(sorted({name for file in files for name in file.unmapped}))
    notes = [*left_out, *(note for file in files for note in file.notes), *(finding.words for finding in found)]
    if unmapped:
        named = ", ".join(unmapped)
        notes.append(
            f"no metric is known for {named}: left out; name them under [columns] in recording.toml, or in ignore"
        )
    if not tables:
        why = f": {notes[0]}" if notes else ""
        raise RecordingError(f"{where} holds no value of a column that is understood{why}")
    assert said.timezone is not None
    return Recording(
        site=site,
        zones=tuple(zones),
        sources=tuple(file.source for file in files),
        timezone=said.timezone,
        latitude=said.latitude,
        longitude=said.longitude,
        interval_ms=_interval_ms(files),
        tables=tuple(tables),
        unmapped=unmapped,
        notes=tuple(notes),
    )


def _kind(path: Path) -> str:
    """The ending that says how to read a file, empty if it is not a recording."""
    name = path.name.lower()
    if name.startswith(".") or not path.is_file():  # systems keep notes of their own beside files, as ._zone.csv
        return ""
    return next((ending for ending in (*_OPENERS, ".parquet") if name.endswith(ending)), "")


def _name(text: str, otherwise: str = "") -> str:
    """``text`` as a name of a site or zone; ``otherwise`` where none of its letters may be in one."""
    cleaned = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).lstrip("_.-")[:64] or otherwise
    if not is_name(cleaned):
        raise RecordingError(f"{text!r} cannot name a site or a zone: it needs a letter or digit")
    return cleaned


class _NoRecordingError(RecordingError):
    """A file that may lie beside recordings, and is none."""


def _read_all(paths: Sequence[Path], said: Mapping, zone: zoneinfo.ZoneInfo) -> tuple[list[_ZoneFile], list[str]]:
    """The files that are recordings, and a sentence on each that is none; raises where all are none."""
    files, left_out = [], []
    unnamed = 0
    for path in paths:
        unnamed += not re.search("[A-Za-z0-9]", path.name[: -len(_kind(path))])
        try:
            files.append(_read_zone(path, said, zone, f"zone-{unnamed}"))
        except _NoRecordingError as error:
            left_out.append(error)
    if not files:
        raise left_out[0]
    return files, [f"{error}: left out" for error in left_out]


def _read_zone(path: Path, said: Mapping, zone: zoneinfo.ZoneInfo, otherwise: str) -> _ZoneFile:
    kind = _kind(path)
    read = _read_parquet if kind == ".parquet" else _read_csv
    try:
        found = read(path, kind, said)
    except (OSError, EOFError, lzma.LZMAError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise RecordingError(f"{path.name} is damaged or cannot be read: {error}") from error
    return _zone_file(path.name, path.name[: -len(kind)], found, said, zone, otherwise)


def _zone_file(
    label: str, name: str, found: _Read, said: Mapping, zone: zoneinfo.ZoneInfo, otherwise: str
) -> _ZoneFile:
    header, times, is_utc, columns, unmapped, cells = found
    if times.size == 0:
        raise _NoRecordingError(f"{label} holds a header and no row")
    rows, utc_ms = to_utc_ms(times, zoneinfo.ZoneInfo("UTC") if is_utc else zone, said.clock)
    if not rows.size:
        raise _NoRecordingError(f"{label} holds no row of a time that the clock showed")
    lost = times.size - rows.size
    if lost >= rows.size and 2 * np.unique(times).size <= times.size:
        raise RecordingError(
            f"{label}: {lost} of {times.size} rows have a time that is there twice: if it holds several zones, make a "
            "file a zone of it"
        )
    notes = []
    if lost:
        hint = "" if is_utc or said.clock == "standard" else ' (set clock = "standard" if it knows no daylight saving)'
        notes.append(
            f"{label}: {lost} of {times.size} rows left out: their time is there twice, "
            f"or is one that the clock never showed{hint}"
        )
    source = Source(name, tuple(header), int(utc_ms[0]), int(utc_ms[-1]), is_utc)
    values = {name: raw[rows] for name, raw in columns.items()}
    findings = []
    for column_name, counted in cells.items():
        column = find_column(column_name, said)
        assert column is not None
        findings += of_cells(label, column_name, column, counted)
    return _ZoneFile(_name(name, otherwise), label, source, utc_ms, values, unmapped, notes, findings)


_Read = tuple[list[str], I64, bool, dict[str, F64], list[str], dict[str, Cells]]
"""Header, times, whether they are UTC, columns by name, names of those without a meaning, what their cells are."""


def _read_csv(path: Path, kind: str, said: Mapping) -> _Read:
    with _OPENERS[kind](path, mode="rt", encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=said.separator)
        header = next(reader, [])
        place, wanted, unmapped = _understand(path.name, header, said)
        rows, moments = [], []
        for row in reader:
            if not any(row):  # spreadsheets end in lines of commas
                continue
            if len(row) != len(header):
                raise RecordingError(
                    f"{path.name} is damaged: line {reader.line_num} has {len(row)} cells, its header {len(header)}"
                )
            rows.append(row)
            moments.append(_moment(row[place], f"{path.name}, line {reader.line_num}", said.time_format))
    times, is_utc = _times(moments, path.name)
    columns, counted = {}, {}
    for at in wanted:
        name = header[at].strip()
        columns[name], counted[name] = numbers([row[at] for row in rows], said.decimal, said.missing)
    return [name.strip() for name in header], times, is_utc, columns, unmapped, counted


def _moment(text: str, where: str, written: str) -> datetime:
    try:
        # A clock's time has no zone; whether it carries an offset is seen later.
        return datetime.strptime(text.strip(), written) if written else datetime.fromisoformat(text.strip())  # noqa: DTZ007
    except ValueError as error:
        wanted = f"time as {written!r} (time_format)" if written else "time such as 2022-02-01 00:05"
        fix = "" if written else '; say how it is written, as time_format = "%d-%m-%Y %H:%M", in recording.toml'
        raise RecordingError(f"{where}: {text[:40]!r} is no {wanted}{fix}") from error


def _times(moments: Sequence[datetime], label: str) -> tuple[I64, bool]:
    """Milliseconds since 1970, and whether they are UTC; else they are a clock's, read as if it showed UTC."""
    aware = {moment.tzinfo is not None for moment in moments}
    if len(aware) > 1:
        raise RecordingError(f"{label}: some times carry a UTC offset and some do not")
    seconds = [(moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() for moment in moments]
    return np.round(np.array(seconds, dtype=np.float64) * 1000).astype(np.int64), aware == {True}


def _read_parquet(path: Path, kind: str, said: Mapping) -> _Read:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise RecordingError(f"{path.name} is Parquet, which needs pyarrow: pip install pyarrow") from error
    try:
        table = pq.read_table(path)
    except pa.ArrowException as error:
        raise RecordingError(f"{path.name} is damaged or cannot be read: {error}") from error
    return _read_arrow(table, path.name, said)


def _read_arrow(table: Any, label: str, said: Mapping) -> _Read:
    import pyarrow as pa

    try:
        header = list(table.column_names)
        place, wanted, unmapped = _understand(label, header, said)
        times = _plain(table.column(place))
        if pa.types.is_string(times.type) and not times.null_count:
            shown, is_utc = _times([_moment(text, label, said.time_format) for text in times.to_pylist()], label)
        elif pa.types.is_timestamp(times.type) and not times.null_count:
            is_utc = times.type.tz is not None
            shown = times.cast(pa.timestamp("ms", tz=times.type.tz), safe=False).cast(pa.int64()).to_numpy()
        else:
            raise RecordingError(f"{label}: its {said.time} column is {times.type}, not a timestamp in every row")
        columns, counted = {}, {}
        for at in wanted:
            name, cells = header[at].strip(), _plain(table.column(at))
            if pa.types.is_string(cells.type):
                columns[name], counted[name] = numbers(cells.to_pylist(), said.decimal, said.missing)
            else:
                columns[name] = np.array(cells.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    except pa.ArrowException as error:
        raise RecordingError(f"{label} is damaged or cannot be read: {error}") from error
    return [name.strip() for name in header], np.array(shown, dtype=np.int64), is_utc, columns, unmapped, counted


def _plain(column: Any) -> Any:
    """A column of Parquet without dictionary, and text as one type."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    is_text = pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type)
    return column.cast(pa.string()) if is_text else column


def _understand(label: str, header: Sequence[str], said: Mapping) -> tuple[int, list[int], list[str]]:
    """Where time stands, where columns with a meaning stand, and the names of the others."""
    names = [name.strip().lower() for name in header]
    if said.time not in names:
        shown = f"its columns are {', '.join(header[:6])} …" if header else "it is empty"
        if len(header) == 1 and (parted := next((sign for sign in ";|\t," if sign in header[0]), "")):
            shown += f"; say separator = {json.dumps(parted)} in recording.toml"
        raise _NoRecordingError(f"{label} has no column {said.time!r}; {shown}")
    place = names.index(said.time)
    wanted, unmapped = [], []
    for at, name in enumerate(names):
        if at == place or name in said.ignore or not name:
            continue
        if find_column(name, said) is None:
            unmapped.append(header[at].strip())
        else:
            wanted.append(at)
    return place, wanted, unmapped


def _tables(files: Sequence[_ZoneFile], said: Mapping) -> tuple[list[DeviceTable], list[Finding]]:
    """The devices' tables of all zones, and what was found in them; a weather column is taken from the first zone that
    has it at an instant.
    """
    extremes: dict[str, Callable[[I64], tuple[F64, F64]]] = {}  # of columns whose coding these tell
    times_ms = np.unique(np.concatenate([file.times_ms for file in files]))
    weather: dict[str, F64] = {}
    tables = []
    found: list[Finding] = []
    for file in files:
        devices: dict[str, dict[str, F64]] = {}
        for name, raw in file.columns.items():
            column = find_column(name, said)
            assert column is not None
            if column.coding == "dosing" and name not in extremes:
                extremes[name] = _extremes(files, name)
            least, most = extremes[name](file.times_ms) if name in extremes else (raw, raw)
            if name in extremes and name.lower() not in said.columns:
                found += of_guess(file.label, name, column, least, most)
            values, said_of_it = of_values(
                file.label, name, column, raw, convert(column, raw, least, most),
                file.times_ms < file.times_ms[0] + _DAY_MS,
            )  # fmt: skip
            found += said_of_it
            device = column.device or device_of(column.metric)
            if device == WEATHER:
                metric = column.metric
                known = weather.setdefault(metric, np.full(times_ms.size, np.nan))
                at = np.searchsorted(times_ms, file.times_ms)
                known[at] = np.where(np.isnan(known[at]), values, known[at])
            else:
                metrics = devices.setdefault(device, {})
                metrics[_free_name(column.metric, metrics)] = values
        tables += [_table(file.zone, device, file.times_ms, metrics) for device, metrics in devices.items()]
    station = [_table(SITE_ZONE, WEATHER, times_ms, weather)] if weather else []
    return [table for table in station + tables if table.times_ms.size], found


def _extremes(files: Sequence[_ZoneFile], name: str) -> Callable[[I64], tuple[F64, F64]]:
    """For any times: the least and the most of a column, in all zones, up to each; times of the first day use the whole
    of that day.
    """
    having = [file for file in files if name in file.columns]
    times_ms = np.concatenate([file.times_ms for file in having])
    order = np.argsort(times_ms, kind="stable")
    times_ms, values = times_ms[order], np.concatenate([file.columns[name] for file in having])[order]
    values[~np.isfinite(values)] = np.nan
    least, most = np.fmin.accumulate(values), np.fmax.accumulate(values)

    def until(when_ms: I64) -> tuple[F64, F64]:
        at = np.searchsorted(times_ms, np.maximum(when_ms, times_ms[0] + _DAY_MS), side="right") - 1
        return least[at], most[at]

    return until


def _free_name(metric: str, taken: dict[str, Any]) -> str:
    """The metric, or ``metric.2``, ``metric.3`` … where the device has one already."""
    name, number = metric, 1
    while name in taken:
        number += 1
        name = f"{base_metric(metric)}.{number}"
    return name


def _table(zone: str, device: str, times_ms: I64, metrics: dict[str, F64]) -> DeviceTable:
    values = np.stack(list(metrics.values()), axis=1)
    said = np.isfinite(values).any(axis=1)
    return DeviceTable(zone, device, tuple(metrics), times_ms[said], values[said])


def _interval_ms(files: Sequence[_ZoneFile]) -> int:
    steps = np.concatenate([np.diff(file.times_ms) for file in files])
    return int(np.median(steps)) if steps.size else 300_000
