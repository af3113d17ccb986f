"""Recordings of real greenhouses: a folder of CSV, CSV.xz, CSV.gz or Parquet files, one a zone, read into arrays.

A file has a ``time`` column and one column a measurement (see :mod:`edge.recordings.columns`). ``time`` is what the
site's clock showed (:mod:`edge.recordings.local_time` says how a clock that is put back and forth is read), or carries
its UTC offset. Hidden files are ignored. Beside recordings, a file without time or rows is left out, with a note.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edge.recordings.columns import Mapping, RecordingError, load_mapping
from edge.recordings.device_tables import DeviceTable, device_tables
from edge.recordings.zone_file import (
    SAVE_AS_CSV,
    NoRecordingError,
    Source,
    ZoneFile,
    file_kind,
    name_of,
    read_zone,
    zone_of_table,
)

__all__ = ["DeviceTable", "Recording", "RecordingError", "Source", "load_recording", "recording_of"]


NAMED = 3
"""So many files are named of which one thing is so."""
_OF_AN_EXPORT = ("site", "zone")  # who imports what ``hothouse export`` wrote knows them


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


def load_recording(
    folder: Path, mapping: Path | None = None, *, site: str | None = None, timezone: str | None = None,
    latitude: float | None = None, longitude: float | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Recording:  # fmt: skip
    """Read a folder, one file a zone (its name is the zone's). ``progress(done, total)`` is told in bytes.

    What is given here wins over ``mapping``, which is ``recording.toml`` in the folder unless given. The site is else
    named after the folder, and the time zone is UTC: hours of the day are then right, the sun's position is unknown.

    Raises :class:`RecordingError` in one sentence: no folder, nothing in it, a damaged file, no ``time`` column, a
    column to forecast that cannot be read as it is (:mod:`edge.recordings.findings`).
    """
    if not folder.is_dir():
        if folder.is_file():
            raise RecordingError(f"{folder} is a file: name the folder that it is in, with one file a zone")
        raise RecordingError(f"there is no folder {folder}")
    beside = folder / "recording.toml"
    said = load_mapping(mapping) if mapping else load_mapping(beside) if beside.exists() else Mapping()
    said = replace(said, timezone=timezone or said.timezone or "UTC")
    zone_info = _zone_info(said)
    paths = sorted(path for path in folder.iterdir() if file_kind(path))
    if not paths:
        others = sorted(
            path.name for path in folder.iterdir() if not path.name.startswith(".") and path.suffix != ".toml"
        )
        inside = sorted(path for path in folder.iterdir() if path.is_dir() and any(map(file_kind, path.glob("*"))))
        hint = f"; name {inside[0]}" if inside else f"; of {others[0]}: {SAVE_AS_CSV}" if others else ""
        raise RecordingError(
            f"{folder} holds no recording: no file there ends in .csv, .csv.xz, .csv.gz or .parquet{hint}"
        )
    files, left_out = _read_all(paths, said, zone_info, progress)
    if latitude is not None:
        said = replace(said, latitude=latitude)
    if longitude is not None:
        said = replace(said, longitude=longitude)
    named = name_of(site or said.site or folder.resolve().name, "" if site or said.site else "site")
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
        zone_of_table(name, table, said, zone_info, f"zone-{number}")
        for number, (name, table) in enumerate(zones.items(), 1)
    ]
    return _recording(files, [], said, name_of(said.site or "recording"), "the recording")


def _zone_info(said: Mapping) -> zoneinfo.ZoneInfo:
    assert said.timezone is not None
    try:
        return zoneinfo.ZoneInfo(said.timezone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise RecordingError(f"{said.timezone!r} is not an IANA time zone such as Europe/Amsterdam") from error


def _recording(files: Sequence[ZoneFile], left_out: Sequence[str], said: Mapping, site: str, where: str) -> Recording:
    zones = [file.zone for file in files]
    if len(set(zones)) < len(zones):
        names = ", ".join(file.label for file in files)
        raise RecordingError(f"two files in {where} are the same zone: {names}")
    tables, found = device_tables(files, said)
    found = [*(finding for file in files for finding in file.findings), *found]
    if errors := [finding.words for finding in found if finding.is_error]:
        more = f" (and {len(errors) - 1} more like it)" if len(errors) > 1 else ""
        raise RecordingError(errors[0] + more)
    unmapped = tuple(sorted({name for file in files for name in file.unmapped if name.lower() not in _OF_AN_EXPORT}))
    notes = [*left_out, *(note for file in files for note in file.notes), *(finding.words for finding in found)]
    notes = _once(notes, [file.label for file in files])
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


def _once(notes: Sequence[str], labels: Collection[str]) -> list[str]:
    """Says once what is so of several files.

    >>> _once(["a.csv: 2 rows twice", "a.csv: no unit", "b.csv: no unit"], ["a.csv", "b.csv"])
    ['a.csv: 2 rows twice', 'a.csv, b.csv: no unit']
    """
    files_of: dict[str, list[str]] = {}
    for note in notes:
        label = next((label for label in labels if note.startswith(f"{label}: ")), "")
        files_of.setdefault(note.removeprefix(f"{label}: "), []).append(label)
    said = []
    for note, files in files_of.items():
        more = f" and {len(files) - NAMED} more files" if len(files) > NAMED + 1 else ""
        named = ", ".join(files[:NAMED] if more else files)
        said.append(f"{named}{more}: {note}" if named else note)
    return said


def _read_all(
    paths: Sequence[Path], said: Mapping, zone: zoneinfo.ZoneInfo, progress: Callable[[int, int], None]
) -> tuple[list[ZoneFile], list[str]]:
    """The files that are recordings, and a sentence on each that is none; raises where all are none."""
    files, left_out = [], []
    sizes = [path.stat().st_size for path in paths]
    done, total, unnamed = 0, sum(sizes), 0
    for path, size in zip(paths, sizes, strict=True):
        progress(done, total)
        told = partial(_told, progress, done, total)
        unnamed += not re.search("[A-Za-z0-9]", path.name[: -len(file_kind(path))])
        try:
            files.append(read_zone(path, said, zone, f"zone-{unnamed}", told))
        except NoRecordingError as error:
            left_out.append(error)
        done += size
    if not files:
        raise left_out[0]
    return files, [f"{error}: left out" for error in left_out]


def _told(progress: Callable[[int, int], None], before: int, total: int, read: int) -> None:
    progress(before + read, total)


def _interval_ms(files: Sequence[ZoneFile]) -> int:
    steps = np.concatenate([np.diff(file.times_ms) for file in files])
    return int(np.median(steps)) if steps.size else 300_000
