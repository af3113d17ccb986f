"""Whether the system can answer, from the figures that its parts report. A leaf: it knows no part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

__all__ = ["Readiness", "readiness"]


class Readiness(TypedDict):
    """``ready`` as soon as one zone has a usable forecast; ``reasons`` say what is missing or degraded."""

    ready: bool
    reasons: list[str]
    zones: int
    zones_usable: int


def readiness(zones: Mapping[str, Sequence[str]], usable: int, following: bool) -> Readiness:
    """Judge; ``zones`` maps each zone to why its forecast is degraded, ``following`` whether the board answers.

    >>> readiness({}, 0, True)
    {'ready': False, 'reasons': ['no zone has a forecast yet'], 'zones': 0, 'zones_usable': 0}
    >>> readiness({"demo/north-1": []}, 1, True)["ready"]
    True
    """
    reasons = [f"{zone}: {reason}" for zone, found in sorted(zones.items()) for reason in found]
    if not following:
        reasons.insert(0, "the board does not answer; the last known forecasts are served")
    if not zones:
        reasons.append("no zone has a forecast yet")
    elif not usable:
        reasons.append("no zone has a forecast that is fresh enough")
    return Readiness(ready=usable > 0, reasons=reasons, zones=len(zones), zones_usable=usable)


def summarise_errors(stats: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The last error of each component that reports one, for operators.

    >>> summarise_errors({"shard-0": {"error": ""}, "retrainer": {"error": "no history"}})
    ['retrainer: no history']
    """
    found = {name: figures.get("error") or figures.get("last_error") for name, figures in stats.items()}
    return [f"{name}: {error}" for name, error in sorted(found.items()) if error]
