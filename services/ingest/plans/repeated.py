"""Step 5 of the way of a reading: for zones whose settings say so, what was set yesterday is today's plan.

It is published as a plan, through the broker into the log, once a day of the site's clock. So it is seen like any
other, and what a forecast took from it is a function of the log. A plan of the grower's own goes before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from edge.wire.plan import METRICS_OF, SETPOINT_HOLD_MS, Path, PlanMessage
from models.durations import DAY_MS
from models.features.plans import Plans

__all__ = ["EVERY_ZONE", "SOURCE", "has_own", "is_due", "repeated", "zones_of"]

SOURCE = "yesterday"
EVERY_ZONE = "*"
"""In the setting: all zones of the site."""

_STEP_MS = 1_800_000
_DAYS = 2


def has_own(plans: Plans | None, zone: str, at_ms: int, known_ms: int = 2**62) -> bool:
    """Whether somebody plans a zone's setpoints for a time after ``at_ms``, of what was known by ``known_ms``: the last
    value of a plan holds for a day.
    """
    known = () if plans is None else plans.as_of(known_ms)
    return any(
        plan.kind == "setpoint" and plan.source != SOURCE and plan.zone in ("", zone)
        and plan.ends_ms + SETPOINT_HOLD_MS > at_ms
        for plan in known
    )  # fmt: skip


def is_due(plans: Plans | None, zone: str, at_ms: int, local_ms: Callable[[int], int]) -> bool:
    """Whether the site's clock shows another day than when the newest plan of this kind was issued."""
    issued = [
        plan.issued_ms for plan in (() if plans is None else plans.as_of(2**62))
        if plan.source == SOURCE and plan.zone == zone
    ]  # fmt: skip
    return not issued or local_ms(max(issued)) // DAY_MS < local_ms(at_ms) // DAY_MS


def repeated(
    site: str, zone: str, end_ms: int, step_ms: int, rows: npt.NDArray[np.float32], channels: Sequence[str],
    local_ms: Callable[[int], int],
) -> PlanMessage | None:  # fmt: skip
    """The setpoints of the last 24 hours as a plan for the next 48, at the same times of the site's clock;
    ``rows [L, C]`` are those of the last 24 hours, the newest last.

    ``None`` where nothing was set.
    """
    ends = end_ms - step_ms * np.arange(len(rows) - 1, -1, -1, dtype=np.int64)
    values: dict[str, Path] = {}
    for index, name in enumerate(channels):
        if not name.startswith("sp_") or name not in METRICS_OF["setpoint"]:
            continue
        there = np.flatnonzero((ends % _STEP_MS == 0) & np.isfinite(rows[:, index]))
        day = [(int(ends[row]), round(float(rows[row, index]), 3)) for row in there]
        if day:
            later = ((_later(ms, days, local_ms), value) for days in range(1, _DAYS + 1) for ms, value in day)
            values[name] = _rising(later, end_ms)
    return PlanMessage(site, zone, SOURCE, "setpoint", end_ms, values) if values else None


def _later(ms: int, days: int, local_ms: Callable[[int], int]) -> int:
    """The time ``days`` days later by the site's clock. A time that the clock leaves out falls into the hour before."""
    plain_ms = ms + days * DAY_MS
    return plain_ms - (local_ms(plain_ms) - plain_ms) + (local_ms(ms) - ms)


def _rising(path: Iterable[tuple[int, float]], after_ms: int) -> Path:
    """Without points that are not after the one before: in an hour that a clock shows twice, or has left out."""
    kept: Path = []
    for ms, value in path:
        if ms > after_ms:
            kept.append((ms, value))
            after_ms = ms
    return kept


def zones_of(setting: Mapping[str, Sequence[str]], site: str, zones: Sequence[str]) -> list[str]:
    """Those of a site's zones whose plans are repeated.

    >>> zones_of({"demo": ["*"]}, "demo", ["z1", "z2"]), zones_of({"demo": ["z2"]}, "demo", ["z1", "z2"])
    (['z1', 'z2'], ['z2'])
    """
    wanted = setting.get(site, ())
    return [zone for zone in zones if zone in wanted or EVERY_ZONE in wanted]
