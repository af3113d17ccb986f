"""Whether the system can answer, from the figures that its parts report. A leaf: it knows no part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

__all__ = ["Readiness", "component_errors", "readiness", "summarise_errors"]


class Readiness(TypedDict):
    """``ready`` as soon as one zone has a usable forecast; ``reasons`` say what is missing or degraded.

    ``degraded`` names the components that report an error; :func:`summarise_errors` has their words.
    """

    ready: bool
    reasons: list[str]
    degraded: list[str]
    zones: int
    zones_usable: int


def readiness(
    zones: Mapping[str, Sequence[str]], usable: int, following: bool, degraded: Sequence[str] = ()
) -> Readiness:
    """Judge; ``zones`` maps each zone to why its forecast is degraded, ``following`` whether the board answers.

    >>> readiness({}, 0, True, ["gateway"])
    {'ready': False, 'reasons': ['no zone has a forecast yet'], 'degraded': ['gateway'], 'zones': 0, 'zones_usable': 0}
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
    return Readiness(ready=usable > 0, reasons=reasons, degraded=list(degraded), zones=len(zones), zones_usable=usable)


def component_errors(stats: Mapping[str, Mapping[str, Any]], slot: Mapping[str, Any] | None = None) -> dict[str, str]:
    """What fails now, by component: its own error, and that of a part that it reports on (a shard's ``series``).

    ``slot`` is the model slot's status, where it was asked: each replica says why it does not serve the champion.

    >>> component_errors({"shard-0": {"last_error": "", "series": {"last_error": "refused"}}})
    {'shard-0 series': 'refused'}
    >>> component_errors({}, {"replicas": {"a1": {"error": "torn"}, "b2": {"error": ""}}})
    {'forecaster a1': 'torn'}
    """
    found: dict[str, Any] = {}
    for name, figures in stats.items():
        found[name] = figures.get("error") or figures.get("last_error")
        found[f"{name} registry"] = figures.get("registry_error")
        for part, nested in figures.items():
            if isinstance(nested, Mapping):
                found[f"{name} {part}"] = nested.get("last_error")
    if slot is not None:
        found["slot"] = slot.get("error")
        found |= {f"forecaster {name}": report["error"] for name, report in slot.get("replicas", {}).items()}
    return {name: str(error) for name, error in sorted(found.items()) if error}


def summarise_errors(stats: Mapping[str, Mapping[str, Any]], slot: Mapping[str, Any] | None = None) -> list[str]:
    """:func:`component_errors` as sentences, for operators.

    >>> summarise_errors({"shard-0": {"error": ""}, "retrainer": {"last_error": "no history"}})
    ['retrainer: no history']
    """
    return [f"{name}: {error}" for name, error in component_errors(stats, slot).items()]
