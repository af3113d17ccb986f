"""A declared figure keeps Prometheus' conventions, and is read from where its field is."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

import pytest

from edge.figure_fields import counter, figures_of, gauge, readings


class Inner(TypedDict):
    """Figures of a part."""

    sent: Annotated[int, counter("hothouse_sent_total", "Sent.")]


class Outer(TypedDict):
    """All that a field may be."""

    age_ms: Annotated[
        float | None, gauge("hothouse_age_seconds", "Age.", unit="seconds", scale=1e-3, field="Age in ms.")
    ]
    by_reason: Annotated[dict[str, int], counter("hothouse_refused_total", "Refused.", label="reason")]
    failing: Annotated[str, gauge("hothouse_failing", "1 while something fails.")]
    inner: Inner
    words: str
    ready: NotRequired[Annotated[bool, gauge("hothouse_ready", "1 while it is ready.")]]


class More(Outer):
    """A structure that has all of another."""

    restarts: Annotated[int, counter("hothouse_restarts_total", "Restarts.")]


def test_fields_are_found_wherever_they_are() -> None:
    """In structures that are inherited or inside, also where a field need not be there; texts declare nothing."""
    assert [".".join(path) for path in figures_of(More)] == [
        "age_ms", "by_reason", "failing", "inner.sent", "ready", "restarts",
    ]  # fmt: skip


def test_values_are_read_in_base_units_and_by_label() -> None:
    """What is not there, or not known, has no reading; a text reads as whether there is one."""
    values = {"age_ms": 1500, "by_reason": {"late": 2, "torn": 3}, "failing": "no broker", "inner": {"sent": 4}}
    assert [(figure.name, *keys, number) for figure, keys, number in readings(Outer, values)] == [
        ("hothouse_age_seconds", 1.5),
        ("hothouse_refused_total", "late", 2.0),
        ("hothouse_refused_total", "torn", 3.0),
        ("hothouse_failing", 1.0),
        ("hothouse_sent_total", 4.0),
    ]
    assert [figure.name for figure, _, _ in readings(Outer, {"age_ms": None, "inner": {}})] == []


def test_what_is_known_is_there_before_it_happens() -> None:
    """It reads 0 from the start, and what nobody knew comes besides; where the field is missing nothing is read."""

    class Reasons(TypedDict):
        by_reason: Annotated[
            dict[str, int], counter("hothouse_kept_out_total", "Kept out.", label="reason", known=("late", "torn"))
        ]

    assert [(keys, number) for _, keys, number in readings(Reasons, {"by_reason": {"odd": 1, "torn": 2}})] == [
        (("late",), 0.0), (("torn",), 2.0), (("odd",), 1.0),
    ]  # fmt: skip
    assert list(readings(Reasons, {})) == []


@pytest.mark.parametrize(
    ("make", "name", "words", "unit", "says"),
    [
        (counter, "hothouse_samples", "Samples.", "", "the name of a counter ends in _total"),
        (gauge, "hothouse_samples_total", "Samples.", "", "the name of a counter ends in _total"),
        (gauge, "samples", "Samples.", "", "is no name of a metric"),
        (gauge, "hothouse_Samples", "Samples.", "", "is no name of a metric"),
        (gauge, "hothouse_age_ms", "Age.", "", "must end in its base unit"),
        (gauge, "hothouse_backlog_bytes", "Age.", "seconds", r"must end in its base unit \(seconds\)"),
        (counter, "hothouse_waited_s_total", "Waited.", "", "must end in its base unit"),
        (gauge, "hothouse_age_seconds", "Age", "seconds", "its help is a sentence"),
    ],
)
def test_a_name_that_breaks_the_conventions_is_refused(make, name: str, words: str, unit: str, says: str) -> None:
    """Where it is declared, before anything is shown under it."""
    with pytest.raises(ValueError, match=says):
        make(name, words, unit=unit)
