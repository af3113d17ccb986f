"""What a reader of recordings leaves out, guesses or cuts: one sentence a column and file, with the line that mends it.

A target's column must not be read wrongly without a message. If more than a tenth of it is left out or cut, or if its
numbers look like another unit, the recording is refused with the same sentence. A unit that ``recording.toml`` gives
for the column counts as right; values out of range are then cut and reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edge.recordings.columns import Column
from edge.wire.vocabulary import (
    FAHRENHEIT_ABOVE,
    SHARE_LEAST,
    SHARE_MOST,
    SHARES,
    TEMPERATURES,
    VOCABULARY,
    base_metric,
)

__all__ = ["LEFT_OUT", "TARGETS", "Cells", "Finding", "numbers", "of_cells", "of_guess", "of_values"]

F64 = npt.NDArray[np.float64]

TARGETS = ("air_temp_c", "rh_pct", "co2_ppm")
"""The metrics that are forecast, as far as a recording has them."""

LEFT_OUT = 0.1
"""At most this share of a target's column may be left out or cut."""

MISSING = frozenset(
    [
        "",
        "-",
        "--",
        "?",
        "na",
        "nan",
        "n/a",
        "#n/a",
        "#na",
        "null",
        "none",
        "nil",
        "missing",
        "#value!",
        "#div/0!",
        "#ref!",
    ]
)
"""Words that mean a missing value, in lower case; a mapping may name more."""

_NUMBER, _POINT = re.compile(r"[+-]?[0-9]"), re.compile(r"[+-]?[0-9]*\.[0-9]+\Z")
_MINUS = "\N{MINUS SIGN}"
"""So spreadsheets of some languages write negative numbers."""
_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+\Z")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(\.[0-9]{3})+(,[0-9]+)?\Z")
_GROUPED_BY_COMMA = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}\Z")
_THOUSANDS = "; if the comma parts thousands, write the numbers without it"
_CELSIUS_MOST, _FAHRENHEIT_MOST = 60.0, 140.0
_FAHRENHEIT_NONE = 200.0  # no greenhouse has as many °F; in K it is frost
_FALLS = 5  # so often a meter falls in a recording only where it begins anew each day
_WARM, _FEW = 35.0, 0.01  # the median of a column in °C is below, or less than one in a hundred is above 60


@dataclass(frozen=True, slots=True)
class Finding:
    """``words`` is one sentence; ``is_error`` where the recording must not be used so."""

    words: str
    is_error: bool = False


class Cells(NamedTuple):
    """Counts of a column's cells: ``said`` are not empty; of these ``commas`` have a decimal comma, and ``words`` are
    no numbers.
    """

    said: int = 0
    commas: int = 0
    words: int = 0
    comma: str = ""  # the first of either
    word: str = ""

    def and_then(self, more: Cells) -> Cells:
        """The counts of these cells and of ``more`` cells below them."""
        return Cells(
            self.said + more.said, self.commas + more.commas, self.words + more.words, self.comma or more.comma,
            self.word or more.word,
        )  # fmt: skip


def numbers(cells: Sequence[str | None], decimal: str = ".", missing: Collection[str] = ()) -> tuple[F64, Cells]:
    """Cells as numbers, NaN where they are missing or none.

    >>> numbers(["21.4", "", "NULL", "21,4"])
    (array([21.4,  nan,  nan,  nan]), Cells(said=2, commas=1, words=0, comma='21,4', word=''))
    >>> numbers(["1.021,5", "21,4", "ERR"], ",", ["err"])
    (array([1021.5,   21.4,    nan]), Cells(said=2, commas=0, words=0, comma='', word=''))
    >>> numbers(["\N{MINUS SIGN}3,5"], ",")[0]
    array([-3.5])
    """
    values = np.full(len(cells), np.nan)
    said = commas = words = 0
    comma = word = ""
    for at, cell in enumerate(cells):
        if not cell:
            continue
        if _MINUS in cell:
            cell = cell.replace(_MINUS, "-")
        try:
            value = float(cell if decimal == "." else _pointed(cell))
            if math.isfinite(value):
                values[at], said = value, said + 1
            continue
        except ValueError:
            text = cell.strip()
        if text.lower() in MISSING or text.lower() in missing:
            continue
        said += 1
        if decimal == "." and _COMMA.match(text):
            commas, comma = commas + 1, comma or text[:20]
        else:
            words, word = words + 1, word or text[:20]
    return values, Cells(said, commas, words, comma, word)


def _pointed(cell: str) -> str:
    """A number with a decimal comma, as Python writes it; a point may only group thousands, else ``ValueError``."""
    text = cell.strip()
    if _GROUPED.match(text):
        return text.replace(".", "").replace(",", ".")
    if "." in text:
        raise ValueError
    return text.replace(",", ".")


def of_cells(file: str, name: str, column: Column, cells: Cells) -> list[Finding]:
    """Findings about the cells of a column that could not be read."""
    found = []
    is_target = _is_target(column)
    if cells.commas:
        found.append(Finding(
            f"{file}: column {name}: {cells.commas} of {cells.said} cells have a decimal comma, such as "
            f"{cells.comma!r}{'' if is_target else ', and are left out'}; say decimal = \",\" in recording.toml"
            f"{_THOUSANDS if _GROUPED_BY_COMMA.match(cells.comma) else ''}",
            is_target,
        ))  # fmt: skip
    if cells.words:
        is_error = is_target and cells.words > LEFT_OUT * cells.said
        fix = f"if that means a missing value, say missing = [{_quoted(cells.word)}] in recording.toml"
        if _POINT.match(cells.word):
            fix = 'say decimal = "." in recording.toml'
        elif _NUMBER.match(cells.word):
            fix = "write the numbers without a unit, and without a comma between thousands"
        found.append(Finding(
            f"{file}: column {name}: {cells.words} of {cells.said} cells are no numbers, such as {cells.word!r}"
            f"{'' if is_error else ', and are left out'}; {fix}",
            is_error,
        ))  # fmt: skip
    return found


def of_values(
    file: str, name: str, column: Column, raw: F64, values: F64, first_day: npt.NDArray[np.bool_]
) -> tuple[F64, list[Finding]]:
    """A column's values, without those of another unit, and what is wrong with them; ``raw`` is as recorded.

    Its first day decides whether a column is left out: what a value means must not depend on values that come after it.
    An error may depend on the whole column. Values out of range stay here; they are refused, or left out, where they
    are used.
    """
    known = values[np.isfinite(values)]
    found = []
    if column.coding == "sectors":
        lost = int(np.count_nonzero(np.isnan(values) & ~np.isnan(raw)))
        if lost:
            fix = f"; if they are degrees: {_line(name, column, '°')}" if lost > LEFT_OUT * (lost + known.size) else ""
            found.append(Finding(
                f"{file}: column {name}: {lost} of {lost + known.size} directions are none of the sectors 1, 2, 4 ... "
                f"128, and are left out{fix}"
            ))  # fmt: skip
    if not known.size:
        return values, found
    unit = "" if column.is_stated else _other_unit(column, values[first_day & np.isfinite(values)])
    if not unit and not column.is_stated and _is_target(column):
        unit = _other_unit(column, known)
    if unit:
        looks_like = "a share" if unit == "share" else unit
        is_target = _is_target(column)
        own = VOCABULARY[base_metric(column.metric)].unit
        found.append(Finding(
            f"{file}: column {name} looks like {looks_like} ({known.min():.4g} to {known.max():.4g})"
            f"{'' if is_target else ', and is left out'}; say {_line(name, column, unit)}, or "
            f'unit = "{own}" if it is right',
            is_target,
        ))  # fmt: skip
        return np.full_like(values, np.nan), found
    return values, found + _of_counter(file, name, column, known) + _of_range(file, name, column, known)


def _of_counter(file: str, name: str, column: Column, known: F64) -> list[Finding]:
    """Whether a counter looks like what came in each row: a meter falls only when it begins anew."""
    changes = np.diff(known)
    fell, rose = int(np.count_nonzero(changes < 0)), int(np.count_nonzero(changes > 0))
    is_counter = VOCABULARY[base_metric(column.metric)].kind == "counter"
    if not is_counter or column.coding or fell < _FALLS or fell < rose / 2:
        return []
    device = f', device = "{column.device}"' if column.device else ""
    scale = f", scale = {column.scale}" if column.scale != 1 else ""
    line = f'{_key(name)} = {{ metric = "{column.metric}"{device}{scale}, coding = "gained" }}'
    return [Finding(
        f"{file}: column {name} falls {fell} times and is read as a meter that goes up; if it has what came in each "
        f"row, say {line} in recording.toml, under [columns]"
    )]  # fmt: skip


def _of_range(file: str, name: str, column: Column, known: F64) -> list[Finding]:
    metric = VOCABULARY[base_metric(column.metric)]
    cut = known[(known < metric.low) | (known > (metric.clip_from or metric.high))]
    if not cut.size:
        return []
    is_hot = metric.unit == "°C" and not column.is_stated and (cut > metric.high).all()
    warm = "K" if (cut > _FAHRENHEIT_NONE).all() else "°F"
    if_so, unit = (f"if they are {warm}", warm) if is_hot else ("if that is right", metric.unit)
    return [Finding(
        f"{file}: column {name}: {cut.size} of {known.size} values are not within {metric.low:g} to {metric.high:g} "
        f"{metric.unit}, such as {cut[0]:.6g}, and count as missing; {if_so}: {_line(name, column, unit)}",
        _is_target(column) and not column.is_stated and cut.size > LEFT_OUT * known.size,
    )]  # fmt: skip


def of_guess(file: str, name: str, column: Column, least: F64, most: F64) -> list[Finding]:
    """What the numbers of a CO₂ valve were taken for, if the mapping does not say; ``least`` and ``most`` as in
    ``convert``.
    """
    is_code = (least >= 1) & (most <= 2)
    taken = ["a code of 1 dosing and 2 off"] if is_code.any() else []
    if (~is_code & (most <= 1)).any():
        taken.append("a share of the time")
    if not taken:
        return []
    return [Finding(
        f"{file}: column {name} is guessed to be {' and '.join(taken)}; say in recording.toml, under [columns], "
        f'{_key(name)} = {{ metric = "{column.metric}", coding = "dosing" }} if that is right, else with unit = "%" or '
        '"share"'
    )]  # fmt: skip


def _other_unit(column: Column, known: F64) -> str:
    """The unit that a column looks like instead of its metric's; empty if it looks like that."""
    metric = base_metric(column.metric)
    if not known.size:
        return ""
    if metric in SHARES and known.min() >= 0 and SHARE_LEAST <= known.max() <= SHARE_MOST:
        return "share"
    if metric in TEMPERATURES:
        middle = float(np.median(known))
        hot = np.count_nonzero((known > _CELSIUS_MOST) & (known <= _FAHRENHEIT_MOST))
        if FAHRENHEIT_ABOVE < middle <= _FAHRENHEIT_MOST or (middle > _WARM and hot > _FEW * known.size):
            return "°F"
    return ""


def _is_target(column: Column) -> bool:
    return column.metric in TARGETS and not column.device


def _line(name: str, column: Column, unit: str) -> str:
    device = f', device = "{column.device}"' if column.device else ""
    return (
        f'{_key(name)} = {{ metric = "{column.metric}"{device}, unit = "{unit}" }} in recording.toml, under [columns]'
    )


def _key(name: str) -> str:
    """A key of TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
