"""Makes plan records for the tests of this folder."""

from __future__ import annotations

from edge.log import NewRecord
from edge.wire.plan import Path, PlanKind, PlanMessage, encode_plan, plan_topic
from tests.services.ingest.samples import T0

HOUR = 3_600_000


def plan_record(
    receive_ms: int, values: dict[str, Path], issued_ms: int | None = None, zone: str = "_site", source: str = "knmi",
    kind: PlanKind = "weather", site: str = "demo",
) -> NewRecord:  # fmt: skip
    """A plan, received when it was issued unless said otherwise."""
    issued = receive_ms if issued_ms is None else issued_ms
    payload = encode_plan(PlanMessage(site, zone, source, kind, issued, values))
    return NewRecord(site, "plan", receive_ms, payload, plan_topic(site, zone, "service"))


def weather(receive_ms: int, first: float = 4.0, hours: int = 6, **more: object) -> NewRecord:
    """A forecast of the air outside that rises from hour to hour."""
    path = [(receive_ms + n * HOUR, first + n) for n in range(1, hours + 1)]
    return plan_record(receive_ms, {"out_temp_c": path}, **more)  # type: ignore[arg-type]


def heating(receive_ms: int, zone: str = "z1", level: float = 18.0, **more: object) -> NewRecord:
    """A grower's setpoint for a zone, for two days."""
    path = [(receive_ms + n * HOUR, level + n % 3) for n in range(1, 49)]
    given = {"zone": zone, "source": "grower", "kind": "setpoint"} | more
    return plan_record(receive_ms, {"sp_heat_c": path}, **given)  # type: ignore[arg-type]


__all__ = ["HOUR", "T0", "heating", "plan_record", "weather"]
