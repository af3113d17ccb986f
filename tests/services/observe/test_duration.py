"""Lengths of time in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.observe.duration import in_words

UNIT_S = {"s": 1, "min": 60, "h": 3600}


@given(st.floats(0, 1e7))
def test_the_words_say_the_length(seconds: float) -> None:
    """Read back, they are off by half a second, or by a twentieth of what they say at most."""
    number, unit = in_words(seconds).split()
    assert float(number) * UNIT_S[unit] == pytest.approx(seconds, rel=0.05, abs=0.5)
    assert not number.endswith(".0")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"), (59, "59 s"), (60, "1 min"), (270, "4.5 min"), (3599, "60 min"), (3600, "1 h"), (12_600, "3.5 h"),
        (35_990, "10 h"), (432_000, "120 h"),
    ],
)  # fmt: skip
def test_the_unit_is_the_largest_that_fits(seconds: int, words: str) -> None:
    """A minute is not 60 s, a day is 24 h; a tenth is told below ten, where it says something."""
    assert in_words(seconds) == words
