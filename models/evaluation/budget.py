"""Step 14 of the way of a reading: how much error each of many challengers may take."""

from __future__ import annotations

__all__ = ["level_of"]


def level_of(budget: float, number: int) -> float:
    """The chance of a mistake that the ``number``-th challenger of one champion may take, from 1.

    All challengers that ever come share ``budget``: the chance that any that is no better gets through stays below it.

    >>> [round(level_of(0.2, number), 4) for number in (1, 2, 3)]
    [0.1, 0.0333, 0.0167]
    """
    return budget / (number * (number + 1))
