"""The line about the gateway in the terminal of ``hothouse up``: what it fails at, and that it works again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from services.cli.base import print_news

__all__ = ["GATEWAY_EVERY_S", "GatewayLines", "gateway_lines"]

GATEWAY_EVERY_S = 1.0
PATIENCE_S = 5.0
"""A gateway that starts, or connects anew, is no news."""
_ADVICE = "What to do: `hothouse doctor` checks the settings, the broker and the disk."


class GatewayLines:
    """``problem`` says in a sentence what the gateway fails at, nothing where all is well; ``clock_s`` is monotonic."""

    def __init__(self, problem: Callable[[], str], clock_s: Callable[[], float]) -> None:
        self._problem, self._clock_s = problem, clock_s
        self._since_s: float | None = None
        self._told = ""

    def line(self) -> str:
        """What is to be said since the last look; empty where nothing is new."""
        problem, now_s = self._problem(), self._clock_s()
        if not problem:
            self._since_s, told, self._told = None, self._told, ""
            return "the gateway works again" if told else ""
        self._since_s = now_s if self._since_s is None else self._since_s
        kind = re.sub(r"[0-9]+ (s|MiB)\b", "", problem)
        if now_s < self._since_s + PATIENCE_S or kind == self._told:
            return ""
        self._told = kind
        return f"the gateway fails: {problem}. {_ADVICE}"


def gateway_lines(problem: Callable[[], str]) -> Callable[[], None]:
    """A function that asks for the gateway's ``problem``, and prints what is new since its last call."""
    lines = GatewayLines(problem, time.monotonic)

    def look() -> None:
        if line := lines.line():
            print_news(line)

    return look
