"""Step 14 of the way of a reading: how much of the error budget each of many challengers gets."""

from __future__ import annotations

__all__ = ["level_of"]


def level_of(budget: float, number: int) -> float:
    """The chance of a wrong promotion that challenger ``number`` (from 1) of one champion may have.

    All challengers of a champion share ``budget``: the chance that any that is no better is promoted stays below it.

    >>> [round(level_of(0.2, number), 4) for number in (1, 2, 3)]
    [0.1, 0.0333, 0.0167]
    """
    return budget / (number * (number + 1))
