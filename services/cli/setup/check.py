"""One finding of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Check", "CheckState"]


class CheckState(StrEnum):
    """How a check went; ``warn`` means that Hothouse runs, but not as well as it could."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    state: CheckState
    found: str
    advice: str = ""
