"""Steps 2 to 9 of the way of a reading: the id of a site's step, the same in all logs and traces. Pure.

Nothing carries it: it is a hash of the site and of the step's end. So a gateway, a shard and who delivers an alert each
make the same one, a replay makes it again, and nobody needs to have seen another's.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

__all__ = ["in_step", "step_end_ms", "step_span_id", "step_trace_id"]


def step_end_ms(ts_ms: int, step_ms: int) -> int:
    """The end of the step that an instant belongs to.

    >>> step_end_ms(1646092800000, 300_000), step_end_ms(1646092800001, 300_000)
    (1646092800000, 1646093100000)
    """
    return -(-ts_ms // step_ms) * step_ms


def step_trace_id(site: str, end_ms: int) -> str:
    """A trace id as of W3C Trace Context: 32 hexadecimal digits.

    >>> step_trace_id("demo", 1646093100000)
    '9de3d7c6d923c422e2d8862ca980a52e'
    """
    return _digest(site, end_ms)[:32]


def step_span_id(site: str, end_ms: int) -> str:
    """The id of the span that all others of the step are in: 16 hexadecimal digits."""
    return _digest(site, end_ms)[32:48]


def in_step(site: str, end_ms: int, zone: str = "", **more: Any) -> dict[str, Any]:
    """The argument ``extra`` of a log line about a step, or about a zone in it (``edge.log_lines``)."""
    end = datetime.fromtimestamp(end_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    of_zone = {"zone": zone} if zone else {}
    return {"fields": {"trace_id": step_trace_id(site, end_ms), "site": site, **of_zone, "step": end, **more}}


def _digest(site: str, end_ms: int) -> str:
    return hashlib.sha256(f"hothouse step {site} {end_ms}".encode()).hexdigest()
