"""One file of a recording: CSV or Parquet of one zone, read into arrays, with what was found in its cells."""

from __future__ import annotations

import csv
import itertools
import json
import lzma
import re
import zlib
import zoneinfo
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.recordings.columns import Mapping, RecordingError, find_column
from edge.recordings.findings import LEFT_OUT, Cells, Finding, numbers, of_cells
from edge.recordings.local_time import to_utc_ms
from edge.recordings.packed_file import ENDINGS, open_text
from edge.recordings.time_cells import MIXED_TIMES, moment, unix_times, utc_or_clock
from edge.wire.topic import is_name

__all__ = [
    "SAVE_AS_CSV", "SEPARATOR_LINE", "NoRecordingError", "Source", "ZoneFile", "file_kind", "name_of", "read_zone",
    "zone_of_table",
]  # fmt: skip

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

SAVE_AS_CSV = 'open it where it was made, and save it as "CSV UTF-8"'
_SPREADSHEETS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # .xlsx and .ods are zip archives; .xls is older
ROWS_AT_A_TIME = 400
"""Rows of text become numbers while a processor's cache still has them: with thousands it takes half as long again."""
FEW_LINES = 20
"""First lines in which the names of columns are looked for, to say where they stand."""
SEPARATOR_LINE = re.compile(r'"?sep=([;,|\t])"?\s*\Z', re.IGNORECASE)
"""Spreadsheets read such a line above the names of the columns, and some programs write it."""
FIRST_MS, LAST_MS = -62_104_060_800_000, 253_370_764_799_999
"""The years 2 to 9998: with any offset from UTC they are years of a calendar."""
MOST_CELLS = 250_000_000
"""Of a Parquet file, which may say of billions that they are the same: 2 GB in memory."""


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
class ZoneFile:
    """What is known of a file and of its cells; ``source`` is what the recording tells of it."""

    zone: str
    label: str  # what a sentence calls it
    source: Source
    times_ms: I64
    columns: dict[str, F64]  # mapped columns only, as recorded
    unmapped: list[str]
    notes: list[str]
    findings: list[Finding]


class NoRecordingError(RecordingError):
    """A file that may lie beside recordings, and is none."""


def file_kind(path: Path) -> str:
    """The ending that says how to read a file, empty where it is not a recording."""
    name = path.name.lower()
    if name.startswith(".") or not path.is_file():  # systems keep notes of their own beside files, as ._zone.csv
        return ""
    return next((ending for ending in (*ENDINGS, ".parquet") if name.endswith(ending)), "")


def name_of(text: str, otherwise: str = "") -> str:
    """``text`` as a name of a site or zone; ``otherwise`` where none of its letters may be in one."""
    cleaned = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).lstrip("_.-")[:64] or otherwise
    if not is_name(cleaned):
        raise RecordingError(f"{text!r} cannot name a site or a zone: it needs a letter or digit")
    return cleaned


def read_zone(
    path: Path, said: Mapping, zone: zoneinfo.ZoneInfo, otherwise: str, progress: Progress = lambda bytes_read: None
) -> ZoneFile:
    """Read a file, of a clock of the time zone ``zone``; ``otherwise`` names it if its own name cannot. ``progress`` is
    told on the way how many of the file's bytes were read.

    Raises :class:`NoRecordingError` for a file without time or rows, else :class:`RecordingError`.
    """
    kind = file_kind(path)
    read = _read_parquet if kind == ".parquet" else _read_csv
    try:
        with path.open("rb") as file:
            if file.read(4) in _SPREADSHEETS:
                raise RecordingError(f"{path.name} is a spreadsheet or an archive: {SAVE_AS_CSV}")
        found = read(path, kind, said, progress)
    except UnicodeDecodeError as error:
        raise RecordingError(
            f'{path.name} is not in UTF-8, or damaged: save it as "CSV UTF-8" where it was made, or convert it: '
            f"iconv -f {_encoding(error)} -t UTF-8"
        ) from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error, csv.Error) as error:
        raise RecordingError(f"{path.name} is damaged or cannot be read: {error}") from error
    return _zone_file(path.name, path.name[: -len(kind)], found, said, zone, otherwise)


def _encoding(error: UnicodeDecodeError) -> str:
    """What a text is most likely in that is not UTF-8: spreadsheets on Windows write one of these."""
    return "UTF-16" if error.object[:2] in (b"\xff\xfe", b"\xfe\xff") else "WINDOWS-1252"


def zone_of_table(name: str, table: Any, said: Mapping, zone: zoneinfo.ZoneInfo, otherwise: str) -> ZoneFile:
    """As :func:`read_zone`, from an Arrow table that is called ``name``."""
    return _zone_file(name, name, _read_arrow(table, name, said), said, zone, otherwise)


def _zone_file(label: str, name: str, found: _Read, said: Mapping, zone: zoneinfo.ZoneInfo, otherwise: str) -> ZoneFile:
    header, times, is_utc, columns, unmapped, cells = found
    if times.size == 0:
        raise NoRecordingError(f"{label} holds a header and no row")
    if times.min() < FIRST_MS or times.max() > LAST_MS:
        raise RecordingError(
            f"{label}: some times are of no year from 2 to 9998; remove their rows, or look at time_format"
        )
    rows, utc_ms = to_utc_ms(times, zoneinfo.ZoneInfo("UTC") if is_utc else zone, said.clock)
    if not rows.size:
        raise NoRecordingError(f"{label} holds no row of a time that the clock showed")
    lost = times.size - rows.size
    if lost and _other_values(times, columns) > LEFT_OUT * times.size:
        raise RecordingError(
            f"{label}: {lost} of {times.size} rows have a time that is there twice: if it holds several zones, make a "
            "file a zone of it"
        )
    notes = []
    if lost:
        is_put_back = not is_utc and said.clock == "civil" and zone.key != "UTC"
        hint = ' (set clock = "standard" if it knows no daylight saving)' if is_put_back else ""
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
    return ZoneFile(name_of(name, otherwise), label, source, utc_ms, values, unmapped, notes, findings)


def _other_values(times: I64, columns: dict[str, F64]) -> int:
    """How many rows have the time of a row above them, and a value that this does not have."""
    _, first, which = np.unique(times, return_index=True, return_inverse=True)
    other = np.zeros(times.size, dtype=bool)
    for raw in columns.values():
        other |= np.isfinite(raw) & (raw != raw[first[which]])
    return int(np.count_nonzero(other))


Progress = Callable[[int], None]

_Read = tuple[list[str], I64, bool, dict[str, F64], list[str], dict[str, Cells]]
"""Header, times, whether they are UTC, columns by name, names of those without a meaning, what their cells are."""


def _read_csv(path: Path, kind: str, said: Mapping, progress: Progress) -> _Read:
    with open_text(path, kind) as (file, how_far):
        first = file.readline()
        told = SEPARATOR_LINE.match(first)
        lines = file if told else itertools.chain([first], file)
        reader = csv.reader(lines, delimiter=told[1] if told else said.separator)
        header = next(reader, [])
        above = 1 if told else 0  # lines that the reader does not count
        try:
            place, wanted, unmapped = _understand(path.name, header, said)
        except NoRecordingError:
            for row in itertools.islice(reader, FEW_LINES):
                if said.time in (name.strip().lower() for name in row):
                    raise NoRecordingError(
                        f"{path.name} names its columns in line {above + reader.line_num}, not in its first; remove "
                        "the lines above that one"
                    ) from None
            raise
        label, written, width = path.name, said.time_format, len(header)
        table = _Table(label, wanted, said)
        for row in reader:
            if not any(row):  # spreadsheets end in lines of commas
                continue
            if len(row) != width:
                raise RecordingError(
                    f"{label} is damaged: line {above + reader.line_num} has {len(row)} cells, its header {width}"
                )
            if table.add(moment(row[place], f"{label}, line {above + reader.line_num}", written), row):
                progress(how_far())
    times, is_utc = table.times()
    columns = {header[at].strip(): table.column(at) for at in wanted}
    counted = {header[at].strip(): table.cells[at] for at in wanted}
    return [name.strip() for name in header], times, is_utc, columns, unmapped, counted


class _Table:
    """Rows of text as numbers, some hundreds at a time: as text a file of 200 MB would be 2 GB in memory."""

    def __init__(self, label: str, wanted: Sequence[int], said: Mapping) -> None:
        self._label, self._said = label, said
        self._moments: list[datetime] = []
        self._rows: list[list[str]] = []
        self._times: list[tuple[I64, bool]] = []
        self._columns: dict[int, list[F64]] = {at: [] for at in wanted}
        self.cells = {at: Cells() for at in wanted}

    def add(self, moment: datetime, row: list[str]) -> bool:
        """The next row, and its time; whether rows have become numbers."""
        self._moments.append(moment)
        self._rows.append(row)
        if len(self._rows) < ROWS_AT_A_TIME:
            return False
        self._take()
        return True

    def _take(self) -> None:
        self._times.append(utc_or_clock(self._moments, self._label))
        for at, taken in self._columns.items():
            values, cells = numbers([row[at] for row in self._rows], self._said.decimal, self._said.missing)
            taken.append(values)
            self.cells[at] = self.cells[at].and_then(cells)
        self._moments, self._rows = [], []

    def times(self) -> tuple[I64, bool]:
        """Of all rows, as :func:`utc_or_clock` gives them."""
        self._take()
        filled = [(times, is_utc) for times, is_utc in self._times if times.size]
        if len({is_utc for _, is_utc in filled}) > 1:
            raise RecordingError(f"{self._label}: {MIXED_TIMES}")
        return np.concatenate([times for times, _ in self._times]), bool(filled) and filled[0][1]

    def column(self, at: int) -> F64:
        """One of the columns, after :meth:`times`."""
        return np.concatenate(self._columns[at])


def _read_parquet(path: Path, kind: str, said: Mapping, progress: Progress) -> _Read:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise RecordingError(f"{path.name} is Parquet, which needs pyarrow: pip install pyarrow") from error
    try:
        said_of = pq.read_metadata(path)
        if (cells := said_of.num_rows * said_of.num_columns) > MOST_CELLS:
            raise RecordingError(
                f"{path.name} has {cells:,} cells, at most {MOST_CELLS:,} are read: make several files"
            )
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
        if times.null_count and times.null_count < len(times):
            raise RecordingError(f"{label}: {times.null_count} of {len(times)} rows have no time; remove them")
        if pa.types.is_date(times.type):
            times = times.cast(pa.timestamp("ms"))
        if pa.types.is_string(times.type) and not times.null_count:
            shown, is_utc = utc_or_clock([moment(text, label, said.time_format) for text in times.to_pylist()], label)
        elif pa.types.is_timestamp(times.type) and not times.null_count:
            is_utc = times.type.tz is not None
            shown = times.cast(pa.timestamp("ms", tz=times.type.tz), safe=False).cast(pa.int64()).to_numpy()
        elif (pa.types.is_integer(times.type) or pa.types.is_floating(times.type)) and not times.null_count:
            shown, is_utc = unix_times(times.cast(pa.float64()).to_numpy(), label, said.time, said.time_format), True
        else:
            raise RecordingError(f"{label}: its {said.time} column is {times.type}, not a time in every row")
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
        elif len(header) == 1:
            shown += "; its first line must name the columns: remove what stands above"
        elif header:
            shown += '; say which one holds the time, as time = "timestamp", in recording.toml'
        raise NoRecordingError(f"{label} has no column {said.time!r}; {shown}")
    place = names.index(said.time)
    wanted: list[int] = []
    unmapped: list[str] = []
    for at, name in enumerate(names):
        if at == place or name in said.ignore or not name:
            continue
        if find_column(name, said) is None:
            unmapped.append(header[at].strip())
        elif name in (names[other] for other in wanted):
            raise RecordingError(f"{label}: two columns are called {header[at].strip()!r}; rename one, or ignore both")
        else:
            wanted.append(at)
    return place, wanted, unmapped
