"""What is read from scenarios."""

import numpy as np
import pytest

from models.paths.scenario_events import chance_of_crossing, dense, extreme, hours_outside, mean_ahead, next_span


@pytest.mark.parametrize(
    ("inside", "is_now", "found"),
    [
        ([0, 0, 1, 1, 0], False, (2, 4, True)),
        ([1, 1, 0, 0, 1], True, (0, 2, False)),
        ([0, 1, 1], False, None),
        ([0, 0], True, None),
        ([1, 0], False, (0, 1, False)),
    ],
)
def test_a_night_is_told_of_when_its_end_is_in_sight(inside, is_now, found):
    """A night that goes on now counts from now; one whose end is beyond the path is left out."""
    assert next_span(np.array(inside, dtype=bool), is_now) == found


def test_an_extreme_comes_with_its_time_and_what_lies_between_times():
    """The least value of each scenario, less what values usually go below two neighbours."""
    values = np.array([[[5.0, 3.0, 4.0]], [[1.0, 2.0, 6.0]]], dtype=np.float32)
    least, at = extreme(values, -1, np.float32([[0.5, 0.5, 0.5]]))
    assert least.tolist() == [[2.5], [0.5]]
    assert at.tolist() == [[1], [1]]
    most, at = extreme(values, 1, np.zeros((1, 3), np.float32))
    assert most.tolist() == [[5.0], [6.0]]
    assert at.tolist() == [[0], [2]]


def test_a_course_passes_through_now_and_all_times():
    """Between times it is a line."""
    course = dense(np.array([[12.0, 16.0]]), 10.0, np.array([1, 3]))
    assert course.tolist() == [[10.0, 12.0, 14.0, 16.0]]
    assert mean_ahead(course).tolist() == [13.0]


def test_the_chance_of_crossing_counts_runs():
    """Two separate steps below a limit are no run of two."""
    course = np.array([[9, 5, 9, 5, 9], [9, 5, 5, 9, 9], [9, 9, 9, 9, 9.0]])
    assert chance_of_crossing(course, 6, -1, 1) == pytest.approx(2 / 3)
    assert chance_of_crossing(course, 6, -1, 2) == pytest.approx(1 / 3)
    assert chance_of_crossing(course, 9, 1, 1) == 0


def test_hours_outside_a_band_count_both_sides():
    """Above and below alike; on the band's edge is inside."""
    course = np.array([[20, 30, 10, 15, 25.0]])
    assert hours_outside(course, 15, 25, 3_600_000).tolist() == [2.0]
