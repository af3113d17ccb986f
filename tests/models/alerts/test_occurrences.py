"""When something is the case, and when it only flickers."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from models.alerts.occurrences import occurring, spans_of

COURSES = st.lists(st.sampled_from([-2.0, -0.3, 0.3, 2.0, np.nan]), min_size=1, max_size=40)


def test_within_the_hysteresis_an_event_goes_on() -> None:
    """A course that is back by less than the hysteresis is not over."""
    course = np.array([1.0, -0.2, -0.2, -0.2, -1.0])
    assert spans_of(occurring(course, 0.5, 1, 0)) == [(0, 4)]
    assert spans_of(occurring(course, 0.0, 1, 0)) == [(0, 1)]


def test_what_is_unknown_is_no_event() -> None:
    """NaN ends an event, as if it were over; scenarios are judged each by itself."""
    found = occurring(np.array([[1.0, np.nan, -0.2], [1.0, 1.0, 1.0]]), 0.5, 1, 0)
    assert found.tolist() == [[True, False, False], [True, True, True]]


@settings(max_examples=200, deadline=None)
@given(COURSES, st.floats(0, 1), st.integers(0, 6), st.integers(0, 6))
def test_no_event_is_short_and_no_gap_either(
    course: list[float], hysteresis: float, for_steps: int, keep_steps: int
) -> None:
    """Every event lasts for ``for_steps``, and between two there are ``keep_steps``, whatever the course."""
    spans = spans_of(occurring(np.array(course), hysteresis, for_steps, keep_steps))
    assert all(end - first >= for_steps for first, end in spans)
    assert all(b[0] - a[1] >= keep_steps for a, b in itertools.pairwise(spans))
    begun = {first for first, _ in spans}
    assert all(course[first] > 0 for first in begun)


@settings(max_examples=100, deadline=None)
@given(COURSES, st.integers(1, 6), st.integers(0, 6))
def test_a_longer_wish_leaves_fewer_events(course: list[float], for_steps: int, keep_steps: int) -> None:
    """What lasts for longer lasts for less, too."""
    longer = occurring(np.array(course), 0.5, for_steps + 1, keep_steps)
    assert (longer <= occurring(np.array(course), 0.5, for_steps, keep_steps)).all()
