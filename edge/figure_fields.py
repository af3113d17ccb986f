"""How a figure of a part is declared: kind, name, unit and help for Prometheus stand on the field that holds it.

A structure of figures is a ``TypedDict``. What says its field's figure is all that there is to say: `/metrics`, the
schema of `/status` and the table in the documentation are made from it. Fields without one are for people alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

__all__ = ["Figure", "counter", "figures_of", "gauge", "readings"]

_NAME = re.compile(r"hothouse(_[a-z][a-z0-9]*)+")
_SMALLER = {"ms", "s", "us", "min", "h", "days", "kib", "mib", "mb", "pct", "percent"}
"""Endings of names that are no base units; Prometheus' are seconds, bytes, ratios."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One metric. Raises ``ValueError`` where its name breaks Prometheus' conventions.

    A field's value times ``scale`` is in the ``unit``. ``labels`` name what tells the entries of a table apart, and
    those of the tables in it. Entries of a table that are ``known`` read 0 where they are not in it: a counter that
    begins with its first event has no increase for it.
    """

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()
    scale: float = 1.0
    known: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parts = self.name.removesuffix("_total").split("_")
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name} is no name of a metric: use hothouse_, lower case and underscores")
        if (self.kind == "counter") != self.name.endswith("_total"):
            raise ValueError(f"{self.name}: the name of a counter ends in _total, and of nothing else")
        if parts[-1] in _SMALLER or not self.name.removesuffix("_total").endswith(self.unit):
            raise ValueError(f"{self.name} must end in its base unit ({self.unit or 'seconds, bytes or ratio'})")
        if not self.help.endswith("."):
            raise ValueError(f"{self.name}: its help is a sentence")


def counter(
    name: str, words: str, *, label: str | tuple[str, ...] = "", unit: str = "", scale: float = 1.0, field: str = "",
    known: tuple[str, ...] = (),
) -> msgspec.Meta:  # fmt: skip
    """What is only counted up, for ``Annotated``; ``field`` says what the field holds where that is not ``words``,
    ``known`` the values of its one label that are counted from 0 on.

    >>> from typing import TypedDict
    >>> late = counter("hothouse_samples_late_total", "Samples whose row had closed.")
    >>> Counts = TypedDict("Counts", {"late": Annotated[int, late]})
    >>> [(path, figure.kind) for path, figure in figures_of(Counts).items()]
    [(('late',), 'counter')]
    """
    labels = _labels(label)
    figure = Figure(name=name, kind="counter", help=words, unit=unit, labels=labels, scale=scale, known=known)
    return msgspec.Meta(description=field or words, extra={"figure": figure})


def gauge(
    name: str, words: str, *, label: str | tuple[str, ...] = "", unit: str = "", scale: float = 1.0, field: str = ""
) -> msgspec.Meta:
    """What goes up and down, for ``Annotated``; of a text it is 1 while there is one.

    >>> gauge("hothouse_pause_ms", "How long it waits.")
    Traceback (most recent call last):
    ValueError: hothouse_pause_ms must end in its base unit (seconds, bytes or ratio)
    """
    figure = Figure(name=name, kind="gauge", help=words, unit=unit, labels=_labels(label), scale=scale)
    return msgspec.Meta(description=field or words, extra={"figure": figure})


@cache
def figures_of(structure: type) -> Mapping[tuple[str, ...], Figure]:
    """The declared figures of a structure and of the structures in it: path of the field -> figure."""
    found: dict[tuple[str, ...], Figure] = {}
    for field, hint in get_type_hints(structure, include_extras=True).items():
        kind, marks = _split(hint)
        for figure in (mark.extra["figure"] for mark in marks if isinstance(mark, msgspec.Meta) and mark.extra):
            found[(field,)] = figure
        if is_typeddict(kind):
            found |= {(field, *path): figure for path, figure in figures_of(kind).items()}
    return found


def readings(structure: type, values: Mapping[str, Any]) -> Iterator[tuple[Figure, tuple[str, ...], float]]:
    """``(figure, values of its labels, number)`` of each declared figure that ``values`` has now.

    >>> from typing import TypedDict
    >>> seen = gauge("hothouse_seen_seconds", "When.", label="site", unit="seconds", scale=1e-3)
    >>> Times = TypedDict("Times", {"seen_ms": Annotated[dict[str, int], seen]})
    >>> [(keys, number) for _, keys, number in readings(Times, {"seen_ms": {"demo": 1500}})]
    [(('demo',), 1.5)]
    """
    for path, figure in figures_of(structure).items():
        value: Any = values
        for field in path:
            value = value.get(field) if isinstance(value, Mapping) else None
        if figure.known and value is not None:
            value = {**dict.fromkeys(figure.known, 0), **value}
        for keys, entry in _entries(value, len(figure.labels)):
            if isinstance(entry, str):
                yield figure, keys, float(entry != "")
            elif entry is not None:
                yield figure, keys, float(entry) * figure.scale


def _entries(value: Any, depth: int) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The entries of a table of tables, each with its keys from the outside in."""
    if not depth:
        yield (), value
        return
    for key, inner in (value or {}).items():
        for keys, entry in _entries(inner, depth - 1):
            yield (str(key), *keys), entry


def _labels(label: str | tuple[str, ...]) -> tuple[str, ...]:
    return (label,) * (label != "") if isinstance(label, str) else label


def _split(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type of a field and what it is annotated with."""
    if get_origin(hint) is NotRequired:
        (hint,) = get_args(hint)
    if get_origin(hint) is Annotated:
        kind, *marks = get_args(hint)
        return kind, tuple(marks)
    return hint, ()
