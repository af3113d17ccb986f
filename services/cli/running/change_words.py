"""``hothouse predict ZONE --change``: a change in words, and what becomes of it as a table."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from services.errors import ConfigError

if TYPE_CHECKING:
    from services.serve.api.answer_types import WhatIfAnswer  # a part of the cluster's

__all__ = ["change_of", "what_if_view"]

FORM = "METRIC +N, -N, =N, >=N or <=N, and when: 'sp_heat_c -1.5 from 22:00 to 04:00'"
_CHANGE = re.compile(
    r"(?P<metric>\w+)\s*(?P<how>>=|<=|=|\+|-)\s*(?P<value>-?\d+(?:\.\d+)?)\s*[^\s\d]*"
    r"(?:\s+from\s+(?P<begin>\S+))?(?:\s+to\s+(?P<end>\S+))?"
)
_HOW = {"+": "add", "-": "add", "=": "set", ">=": "at_least", "<=": "at_most"}
_EVERY_MIN = 120
_DECIMALS = {"rh_pct": 1, "co2_ppm": 0, "vpd_kpa": 3}


def change_of(words: str) -> dict[str, Any]:
    """The change that the API is asked with; raises :class:`ConfigError` for other words.

    >>> change_of("sp_heat_c -1.5 from 22:00 to 04:00")
    {'metric': 'sp_heat_c', 'add': -1.5, 'from': '22:00', 'to': '04:00'}
    >>> change_of("vent_lee_pct >= 10")
    {'metric': 'vent_lee_pct', 'at_least': 10.0}
    """
    found = _CHANGE.fullmatch(words.strip())
    if found is None:
        raise ConfigError(f"{words!r} is no change", f"Write {FORM}.")
    value = float(found["value"]) * (-1 if found["how"] == "-" else 1)
    times = {"from": found["begin"], "to": found["end"]}
    return {"metric": found["metric"], _HOW[found["how"]]: value, **{k: v for k, v in times.items() if v}}


def what_if_view(answer: WhatIfAnswer) -> RenderableType:
    """What is said of support, and the effect every two hours: the median, and its 80 % interval."""
    said = Text(f"{answer['site']}/{answer['zone']}: {answer['says']}")
    effect = answer["effect"]
    if effect is None:
        return said
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("UTC")
    for target in effect["targets"]:
        table.add_column(target, justify="right")
    for at, minutes in enumerate(effect["horizon_min"]):
        if minutes % _EVERY_MIN == 0:
            time = datetime.fromtimestamp(answer["origin_ms"] / 1000 + 60 * minutes, UTC)
            table.add_row(f"{time:%H:%M}", *(_said(band, at, name) for name, band in effect["targets"].items()))
    return Group(said, table)


def _said(band: dict[str, list[float]], at: int, target: str) -> str:
    digits = _DECIMALS.get(target, 2)
    low, middle, high = (band[name][at] for name in ("p10", "p50", "p90"))
    return f"{middle:+.{digits}f} [dim]({low:+.{digits}f} to {high:+.{digits}f})[/]"
