"""A grower's plan in a CSV file: a row a time, a column a metric."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from zoneinfo import ZoneInfo

from edge.recordings.zone_file import SAVE_AS_CSV, SEPARATOR_LINE
from edge.wire.plan import METRICS_OF
from edge.wire.topic import is_name

__all__ = ["PlanFileError", "read_plans"]

MAX_ROWS = 100_000

Values = dict[str, list[tuple[int, float]]]  # metric -> [(valid_ms, value), ...]


class PlanFileError(ValueError):
    """The file is no plan; the message says why, with the line."""


def read_plans(path: Path, timezone: str, zone: str) -> dict[str, Values]:
    """By zone what a file says; ``zone`` is whom it is for, where it has no column ``zone``.

    Raises :class:`PlanFileError` with one sentence.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return _plans(file, ZoneInfo(timezone), zone)
    except UnicodeDecodeError as error:
        raise PlanFileError(f"it is no text in UTF-8: {SAVE_AS_CSV}") from error
    except OSError as error:
        raise PlanFileError(f"it cannot be read: {error.strerror}") from error
    except csv.Error as error:
        raise PlanFileError(f"it cannot be read: {error}") from error


def _plans(lines: Iterable[str], clock: ZoneInfo, zone: str) -> dict[str, Values]:
    lines = iter(lines)
    first = next(lines, "")
    begins = 2  # the line below the header
    if SEPARATOR_LINE.match(first):
        first, begins = next(lines, ""), 3
    # Where numbers have a decimal comma, spreadsheets part columns by semicolons.
    has_commas = ";" in first and "," not in first
    rows = csv.reader(chain([first], lines), delimiter=";" if has_commas else ",")
    header = [name.strip().lower() for name in next(rows, [])]
    _check_header(header, zone)
    found: dict[str, Values] = {}
    lines_of: dict[tuple[str, str, int], int] = {}  # zone, metric and time -> the line that says it
    for number, row in enumerate(rows, start=begins):
        if number > MAX_ROWS:
            raise PlanFileError(f"it has more than {MAX_ROWS} lines")
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(header):
            raise PlanFileError(f"line {number} has {len(row)} cells, the header has {len(header)}")
        cells = {name: cell.strip() for name, cell in zip(header, row, strict=True) if name or cell.strip()}
        if "" in cells:
            raise PlanFileError(f"line {number}: {cells[''][:40]!r} is in a column without a name")
        valid_ms, whom = _time_ms(cells.pop("time"), clock, number), cells.pop("zone", zone)
        if not (whom == "_site" or is_name(whom)):
            raise PlanFileError(f"line {number}: {whom!r} names no zone")
        for metric, value in _values(cells, number, has_commas):
            before = lines_of.setdefault((whom, metric, valid_ms), number)
            if before != number:
                raise PlanFileError(f"lines {before} and {number} both say what {metric} of {whom} is at the same time")
            found.setdefault(whom, {}).setdefault(metric, []).append((valid_ms, value))
    if not found:
        raise PlanFileError("it says nothing: no line has a value")
    for values in found.values():
        for path in values.values():
            path.sort()
    return found


def _check_header(header: list[str], zone: str) -> None:
    known = [name for names in METRICS_OF.values() for name in names]
    if not any(header):
        raise PlanFileError("its first line is empty; it must name the columns, `time` among them")
    if "time" not in header:
        raise PlanFileError(
            f"its first line must name the columns, `time` among them; it has {', '.join(header)[:200]}"
        )
    for name in filter(None, header):  # spreadsheets write empty columns, too
        if header.count(name) > 1:
            raise PlanFileError(f"two columns are called {name!r}")
        if name not in known and name not in ("time", "zone"):
            near = get_close_matches(name.lower(), known, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise PlanFileError(f"column {name[:64]!r} is no metric that is planned{meant}")
    if "zone" in header and zone:
        raise PlanFileError("it has a column `zone`: name the site alone with --zone")
    if "zone" not in header and not zone:
        raise PlanFileError("it has no column `zone`: name site and zone with --zone SITE/ZONE")


def _values(cells: Mapping[str, str], number: int, has_commas: bool) -> Iterator[tuple[str, float]]:
    for metric, cell in cells.items():
        if not cell:
            continue
        try:
            value = float(cell.replace(",", ".") if has_commas else cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            meant = "; write it with a point" if "," in cell and not has_commas else ""
            raise PlanFileError(f"line {number}: {metric} is {cell[:40]!r}, not a number{meant}")
        yield metric, value


def _time_ms(text: str, clock: ZoneInfo, number: int) -> int:
    try:
        if text.isdecimal() and len(text) > len("20260301"):  # Unix time in ms would be of the year 1796
            raise ValueError
        time = datetime.fromisoformat(text)
    except ValueError:
        example = "2026-03-01T22:00, or with its offset 2026-03-01T22:00+01:00"
        raise PlanFileError(f"line {number}: {text[:40]!r} is no time such as {example}") from None
    try:
        if time.tzinfo is None:
            time = time.replace(tzinfo=clock)
            offset = time.utcoffset() or timedelta(0)
            shown = (time - offset).replace(tzinfo=UTC).astimezone(clock)
            if shown.replace(tzinfo=None) != time.replace(tzinfo=None):
                raise PlanFileError(f"line {number}: there is no {text} on the site's clock, which goes forward then")
        return round(time.timestamp() * 1000)
    except OverflowError:  # an offset leads out of the years 1 to 9999
        raise PlanFileError(f"line {number}: {text[:40]!r} is no time that can be planned") from None
