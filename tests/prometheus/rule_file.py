"""The rule file as it stands, and the same with shorter times, so that a test need not wait as long as people do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

__all__ = ["ALERTS", "FOLDER", "RULES", "alerts", "quickened"]

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
RULES = FOLDER / "hothouse.rules.yml"
ALERTS = FOLDER / "tests" / "alerts.yml"
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_RANGE = re.compile(r"\[(\d+)([smhd])\]")


def alerts() -> dict[str, dict[str, Any]]:
    """The alert rules, by name."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def quickened(least_s: int = 10, times: int = 60) -> dict[str, Any]:
    """The rules with ``for`` of a second and ranges ``times`` shorter, at least ``least_s``; all else is as it stands.

    >>> [rule["for"] for rule in quickened()["groups"][1]["rules"] if rule["alert"] == "HothouseNotReady"]
    ['1s']
    """

    def shorter(found: re.Match[str]) -> str:
        return f"[{max(int(found[1]) * _UNITS_S[found[2]] // times, least_s)}s]"

    rules: dict[str, Any] = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["expr"] = _RANGE.sub(shorter, rule["expr"])
            if "for" in rule:
                rule["for"] = "1s"
    return rules
