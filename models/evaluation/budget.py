"""Step 14 of the way of a reading: alpha spending, how much of one error budget each of many challengers gets."""

from __future__ import annotations

__all__ = ["level_of"]


def level_of(budget: float, number: int) -> float:
    """The significance level of the test that challenger ``number`` (from 1) of one champion must pass.

    All challengers of a champion share ``budget``: the chance that any of them is promoted without being better stays
    below it, however many come (1/2 + 1/6 + 1/12 + ... = 1).

    >>> [round(level_of(0.2, number), 4) for number in (1, 2, 3)]
    [0.1, 0.0333, 0.0167]
    """
    return budget / (number * (number + 1))
