"""The lines about parts that fail in the terminal of ``hothouse up``: what fails, and that it works again."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from services.cli.base import print_news
from services.cli.running.client import connect
from services.config import Settings
from services.errors import HothouseError

__all__ = ["ERRORS_EVERY_S", "ErrorLines", "error_lines"]

ERRORS_EVERY_S = 5.0
_TOLD_ELSEWHERE = "gateway"
"""``gateway_lines`` asks the gateway itself, which is quicker."""
_ADVICE = "`hothouse status` shows all that fails now; docs/operations.md says what to do"


class ErrorLines:
    """``errors`` gives a sentence for each part that fails now, which its name begins, as ``/status`` does; it may
    raise :class:`HothouseError`.
    """

    def __init__(self, errors: Callable[[], Sequence[str]]) -> None:
        self._errors = errors
        self._before: dict[str, str] = {}  # part -> what it failed at when last looked
        self._told: dict[str, set[str]] = {}  # part -> what was told of it, without names of files and numbers

    def lines(self) -> list[str]:
        """What is to be said since the last look. What fails at one look alone is no news, nor is another file."""
        try:
            found = [error.partition(": ")[::2] for error in self._errors()]
        except HothouseError:
            return []  # what does not answer is told elsewhere, and what it said holds until it answers again
        now = {part: error for part, error in found if part != _TOLD_ELSEWHERE}
        said = []
        for part, error in now.items():
            kind = re.sub(r"\S*[0-9/]\S*", "", error)
            if part in self._before and kind not in self._told.get(part, ()):
                self._told.setdefault(part, set()).add(kind)
                said.append(f"{part} fails: {error.rstrip('.')}")
        if said:
            said.append(_ADVICE)
        for part in sorted(self._told.keys() - now):
            del self._told[part]
            said.append(f"{part} works again")
        self._before = now
        return said


def error_lines(settings: Settings, url: str) -> Callable[[], None]:
    """A function that asks the system at ``url`` and prints what is new since its last call."""
    lines = ErrorLines(lambda: connect(settings, url).get("/status")["errors"])

    def look() -> None:
        for line in lines.lines():
            print_news(line)

    return look
