"""How often sensors report, and when they are silent: learned from rows with any gaps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.features.report_gaps import (
    LATE,
    LONGEST_S,
    LOOK_S,
    MOST_S,
    SOON_S,
    report_gaps_s,
    silent_after_s,
)

STEP_S = 300
DAY = 288

GAPS = st.lists(st.integers(1, 90), min_size=0, max_size=40)


def rows(gaps: list[int], begin: int = 3, end: int = 0) -> np.ndarray:
    """Rows with a reading after each of these gaps, and ``end`` rows without one at the end."""
    known = np.zeros(begin + sum(gaps) + 1 + end, dtype=bool)
    known[begin + np.cumsum([0, *gaps])] = True
    return known


@given(st.integers(2, LONGEST_S // STEP_S), st.integers(0, 5))
def test_an_even_beat_is_found(gap: int, begin: int) -> None:
    """Wherever it begins; a sensor that reports in each row has none that is slower."""
    assert report_gaps_s(rows([gap] * 3, begin), STEP_S) == gap * STEP_S
    assert report_gaps_s(rows([gap] * 2, begin), STEP_S) == 0
    assert report_gaps_s(rows([1] * gap, begin), STEP_S) == 0


@given(GAPS, st.integers(0, 300))
def test_it_is_one_of_the_gaps_in_which_half_of_the_time_lies(gaps: list[int], end: int) -> None:
    """Of those that are no silences, and three of which are as long; the silence that goes on now has no say."""
    beats = sorted(gap for gap in gaps if (gap - 1) * STEP_S <= LONGEST_S)
    found = int(report_gaps_s(rows(gaps, end=end), STEP_S))
    if len(beats) < 3:
        assert found == 0
        return
    half = next(gap for gap in beats if 2 * sum(one for one in beats if one <= gap) >= sum(beats))
    usual = min(half, beats[-3])
    assert found == (min(usual * STEP_S, LONGEST_S) if usual > 1 else 0)


@given(st.integers(2, 12), st.lists(st.integers(1, 11), min_size=0, max_size=11), st.integers(74, 200), st.randoms())
def test_a_bad_night_changes_nothing(gap: int, odd: list[int], silence: int, random: object) -> None:
    """A silence of hours, and other gaps for less than half of the time."""
    few = [one for n, one in enumerate(odd) if sum(odd[: n + 1]) < 12 * gap]
    gaps = [*[gap] * 12, *few, silence]
    random.shuffle(gaps)  # type: ignore[attr-defined]
    assert report_gaps_s(rows(gaps), STEP_S) == gap * STEP_S


@given(st.integers(2, 12), st.integers(2, 200), st.integers(3, 12))
def test_two_silences_change_nothing(gap: int, silence: int, beats: int) -> None:
    """However long they are, also on a first day, when they are most of the time."""
    assert report_gaps_s(rows([silence, *[gap] * beats, silence]), STEP_S) == gap * STEP_S


@pytest.mark.parametrize("hours", [3, 4, 6])
def test_a_sensor_that_reports_a_few_times_a_day_is_not_silent_between_two_readings(hours: int) -> None:
    """By the rows that are looked at, whenever; it is once its reading is late by a quarter of that time."""
    gap_s = hours * 3600
    for age in range(round(LATE * gap_s) // STEP_S + 1):
        seen = rows([gap_s // STEP_S] * 20, end=age)[-LOOK_S // STEP_S :]
        assert report_gaps_s(seen, STEP_S) == gap_s, age
    assert silent_after_s(gap_s, 1800) == LATE * gap_s


def test_a_reading_that_is_seconds_later_is_no_silence() -> None:
    """Each six hours, near the end of a row: some come in the next one."""
    beats = [LONGEST_S // STEP_S + odd for odd in (0, 1, -1, 0, 1, -1, 1, 0, -1, 0)]
    for age in range(round(LATE * LONGEST_S) // STEP_S + 1):
        assert LONGEST_S - STEP_S <= report_gaps_s(rows(beats, end=age)[-LOOK_S // STEP_S :], STEP_S) <= LONGEST_S, age


def test_two_sensors_one_soon_after_the_other_hide_no_gap() -> None:
    """Each reports once an hour, the second ten minutes after the first: for 50 minutes nothing comes."""
    assert report_gaps_s(rows([2, 10] * 12), STEP_S) == 50 * 60


@given(st.lists(GAPS, min_size=1, max_size=4))
def test_each_row_of_an_array_is_for_itself(several: list[list[int]]) -> None:
    """Zones and metrics are looked at in one call."""
    known = np.zeros((len(several), 2 * DAY * 10), dtype=bool)
    for one, gaps in zip(known, several, strict=True):
        row = rows(gaps)
        one[-len(row) :] = row
    single = [int(report_gaps_s(row, STEP_S)) for row in known]
    assert report_gaps_s(known, STEP_S).tolist() == single
    assert report_gaps_s(known.reshape(1, len(several), -1), STEP_S).tolist() == [single]


@given(st.floats(0, LONGEST_S), st.floats(60, 7 * 86_400))
def test_the_time_until_it_is_silent_is_bounded(gap_s: float, least_s: float) -> None:
    """Never below the least, nor beyond seven and a half hours; twice a usual gap is no silence, up to three hours, and
    no reading that is a little late.
    """
    after_s = silent_after_s(gap_s, least_s)
    assert least_s <= after_s <= max(least_s, MOST_S)
    assert after_s >= max(min(2 * gap_s, SOON_S), LATE * gap_s)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_few_rows_say_nothing(length: int) -> None:
    """As at the beginning."""
    assert report_gaps_s(np.ones((2, length), bool), STEP_S).tolist() == [0, 0]
