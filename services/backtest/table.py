"""A recording as rows on a regular grid, on the time line that its own clock showed."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge.recordings.columns import Column, Mapping, find_column, load_mapping
from edge.recordings.findings import TARGETS
from edge.recordings.recording import Recording, RecordingError, load_recording
from models.durations import DAY_MS, HOUR_MS
from models.features.inputs import sun_elevation_deg
from services.backtest.recording_rows import heard_rows, zone_rows
from services.errors import HothouseError
from services.ingest.windows.site_windows import GAP_MS

__all__ = ["Table", "read_table", "table_of"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

STEPS_MS = (300_000, 600_000, 900_000, 1_800_000)
"""A row's length is the longest of these that the recording's interval fills."""

LONGEST_GAP_MS = 366 * DAY_MS
"""A jump in time that is longer is a date mistyped."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of ``Z`` zones; row ``t`` holds what was said in the step that ends at ``start_ms + t * step_ms``.

    Times are the recording's own clock, read as if it were UTC: days are days of that clock. Times that carry an offset
    are UTC, and so is then the clock (``is_utc``). ``names`` are the files' names of zones, ``metrics`` metric -> the
    files' name of its column; ``said`` is what its columns mean. ``pauses`` are rows (the first, and the one after the
    last) that no running system makes: all that come later than three days after the last value of any zone.
    """

    names: tuple[str, ...]
    metrics: dict[str, str]
    start_ms: int
    step_ms: int
    values: F32  # [Z, T, C], channels in vocabulary order
    spans: tuple[tuple[int, int], ...]  # first and last time of each zone's file, ms
    notes: tuple[str, ...]
    is_utc: bool = False
    said: Mapping = field(default_factory=Mapping)
    pauses: tuple[tuple[int, int], ...] = ()

    def clock(self, timezone: str | None) -> str | None:
        """The time zone of the table's clock, where ``timezone`` is the site's."""
        return "UTC" if self.is_utc else timezone

    @property
    def end_ms(self) -> I64:
        """The end of each row."""
        return self.start_ms + np.arange(self.values.shape[1], dtype=np.int64) * self.step_ms

    @property
    def in_pause(self) -> Bool:
        """Which rows are in one of the ``pauses``, ``[T]``."""
        found = np.zeros(self.values.shape[1], dtype=bool)
        for first, after in self.pauses:
            found[first:after] = True
        return found


def read_table(folder: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> Table:
    """Read a folder of recordings, one file a zone; raises :class:`HothouseError` in one sentence.

    ``progress(done, total)`` is told in bytes.
    """
    folder = folder / "tidy" if (folder / "tidy").is_dir() else folder
    try:
        recording = load_recording(folder, timezone="UTC", progress=progress)
        beside = folder / "recording.toml"
        said = load_mapping(beside) if beside.exists() else Mapping()
    except RecordingError as error:
        raise HothouseError(str(error)) from error
    return table_of(recording, said)


def table_of(recording: Recording, said: Mapping) -> Table:
    """A recording's rows; ``said`` is what its columns mean. Raises :class:`HothouseError` in one sentence."""
    sources = recording.sources
    if len({source.is_utc for source in sources}) > 1:
        raise HothouseError("the times of some zones carry a UTC offset, those of others do not")
    step_ms = max((step for step in STEPS_MS if step <= recording.interval_ms), default=STEPS_MS[0])
    start_ms = min(source.first_ms for source in sources)
    if start_ms < 0:  # learners number steps from 1970 on
        shown = datetime.fromtimestamp(start_ms / 1000, UTC)
        raise HothouseError(f"the recording begins on {shown:%Y-%m-%d}, before 1970", "Give its times with their year.")
    _check_gaps(np.unique(np.concatenate([table.times_ms for table in recording.tables])))
    end_ms = max(source.last_ms for source in sources)
    length = -(-(end_ms - start_ms) // step_ms) + 1
    columns = {
        name: column
        for source in sources
        for name in source.columns
        if name.lower() not in said.ignore and (column := find_column(name, said))
    }
    metrics: dict[str, str] = {}
    for name, column in columns.items():
        if not column.device:
            metrics.setdefault(column.metric, name)
    pauses = tuple(_pauses(heard_rows(recording, start_ms, step_ms), length, GAP_MS // step_ms))
    return Table(
        names=tuple(source.name for source in sources), metrics=metrics, start_ms=start_ms, step_ms=step_ms,
        values=zone_rows(recording, start_ms, step_ms, length),
        spans=tuple((source.first_ms, source.last_ms) for source in sources),
        notes=(*recording.notes, *_not_forecast(columns, metrics), *_left_out(pauses, start_ms, step_ms, length)),
        is_utc=sources[0].is_utc, said=said, pauses=pauses,
    )  # fmt: skip


def _not_forecast(columns: dict[str, Column], metrics: dict[str, str]) -> Iterator[str]:
    """A sentence on each target that only second sensors measure."""
    for name, column in columns.items():
        if column.metric in TARGETS and column.metric not in metrics:
            yield (
                f"column {name} is a second sensor, and is not forecast: there is no main {column.metric}; say "
                f'"{name}" = "{column.metric}" in recording.toml, under [columns], or make a file a zone'
            )


def _pauses(heard: I64, length: int, bridged: int) -> Iterator[tuple[int, int]]:
    """What lies between rows that were ``heard``, before and behind them, but for the first rows of each silence, which
    are ``bridged``: files may have empty lines for months before and after the first and the last value.
    """
    spoken = np.concatenate([[0], heard, [length]])
    for at in np.flatnonzero(np.diff(spoken) > bridged + 1):
        yield int(spoken[at]) + bridged + 1, int(spoken[at + 1])


def _left_out(pauses: Iterable[tuple[int, int]], start_ms: int, step_ms: int, length: int) -> Iterator[str]:
    """A sentence on each pause."""
    for rows in pauses:
        first, after = (datetime.fromtimestamp((start_ms + row * step_ms) / 1000, UTC) for row in rows)
        until = "any more" if rows[1] == length else f"until {after:%Y-%m-%d %H:%M}"
        yield f"no zone says anything {until}: rows from {first:%Y-%m-%d %H:%M} on are left out"


def _check_gaps(times_ms: I64) -> None:
    """Raise :class:`HothouseError` where a date is mistyped."""
    far = np.flatnonzero(np.diff(times_ms) > LONGEST_GAP_MS)
    if len(far):
        one, other = (datetime.fromtimestamp(int(ms) / 1000, UTC) for ms in times_ms[far[0] : far[0] + 2])
        raise HothouseError(
            f"the recording jumps from {one:%Y-%m-%d %H:%M} to {other:%Y-%m-%d %H:%M}",
            "Mend the date, or give what is before the gap and what is after it as two recordings.",
        )


def sun_sine(local_ms: I64, timezone: str | None, latitude: float | None, longitude: float | None) -> F32:
    """Sine of the sun's elevation at times of the local clock; NaN where the place is unknown."""
    if latitude is None or longitude is None:
        return np.full(local_ms.shape, np.nan, dtype=np.float32)
    if timezone is None:
        utc_ms = local_ms - round(longitude / 15 * HOUR_MS)
    else:
        quarters, at = np.unique(local_ms // 900_000, return_inverse=True)
        utc_ms = local_ms - np.array([_offset_ms(int(q) * 900, timezone) for q in quarters], dtype=np.int64)[at]
    return np.sin(np.deg2rad(sun_elevation_deg(utc_ms, latitude, longitude))).astype(np.float32)


def sun_longitude(table: Table, timezone: str | None, longitude: float | None) -> float | None:
    """The longitude where the sun stands as it does at ``longitude``, if the table's clock is read as UTC.

    The clock is that of the recording's first row: after a change to daylight saving it is an hour off.
    """
    if longitude is None:
        return None
    if timezone is None:
        return 0.0
    return (longitude - _offset_ms(table.start_ms // 1000, timezone) / 240_000 + 180) % 360 - 180


def _offset_ms(local_s: int, timezone: str) -> int:
    shown = datetime.fromtimestamp(local_s, UTC).replace(tzinfo=zoneinfo.ZoneInfo(timezone))
    offset = shown.utcoffset()
    return 0 if offset is None else round(offset.total_seconds() * 1000)
