"""Back-off and what is done every n seconds, on times that the test gives."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.timing import Backoff, Periodic


def test_pauses_double_up_to_the_longest() -> None:
    """Each pause is twice the one before, none is longer than the longest, and a success begins anew."""
    backoff = Backoff(0.5, 3.0)
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert backoff.next_s() == 0.5


def test_the_longest_pause_bounds_the_first() -> None:
    """A first pause above the longest is the longest."""
    assert Backoff(10.0, 2.0).next_s() == 2.0


@given(seed=st.integers(0, 2**32), failures=st.integers(1, 50))
def test_jitter_only_shortens(seed: int, failures: int) -> None:
    """With jitter a pause lies between the half and the whole of what it is without."""
    plain, jittered = Backoff(0.2, 15.0), Backoff(0.2, 15.0, random.Random(seed).random)
    for _ in range(failures):
        whole_s, found_s = plain.next_s(), jittered.next_s()
        assert whole_s / 2 <= found_s <= whole_s


def test_many_failures_overflow_nothing() -> None:
    """A server that is away for a year is asked at the longest pause."""
    backoff = Backoff(0.2, 15.0)
    assert {backoff.next_s() for _ in range(10_000)} == {0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15.0}


@given(every_s=st.integers(1, 20), looks=st.lists(st.integers(0, 200), min_size=1))
def test_between_two_times_lies_at_least_the_period(every_s: int, looks: list[int]) -> None:
    """The first look is due; no two that are due are nearer than the period, and no other would have been allowed."""
    periodic, last = Periodic(every_s), float("-inf")
    for now_s in sorted(looks):
        due = periodic.due(now_s)
        assert due == (now_s - last >= every_s)
        last = now_s if due else last


def test_the_first_time_can_wait_for_a_period() -> None:
    """With a time to count from the first look is too early."""
    periodic = Periodic(10, since_s=100)
    assert [periodic.due(now_s) for now_s in (100, 109.9, 110)] == [False, False, True]


@pytest.mark.parametrize("works", [True, False])
def test_who_fails_is_due_again_at_once(works: bool) -> None:
    """To look whether it is time changes nothing: only who did it says so."""
    periodic = Periodic(10)
    assert periodic.is_due(5)
    if works:
        periodic.restart(5)
    assert periodic.is_due(6) is not works
