"""Text of a form, and what is said of one that has another: a person is shown an example, and no pattern."""

from __future__ import annotations

import re

from pydantic import AfterValidator

__all__ = ["of_form"]


def of_form(pattern: str, words: str) -> AfterValidator:
    """A check that the whole text matches ``pattern``. Of one that does not it says that it must be ``words``.

    >>> of_form("[a-z]+", "small letters such as abc").func("A1")
    Traceback (most recent call last):
    ValueError: must be small letters such as abc
    """
    form = re.compile(pattern)

    def check(value: str) -> str:
        if not form.fullmatch(value):
            raise ValueError(f"must be {words}")
        return value

    return AfterValidator(check)
