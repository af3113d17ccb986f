"""Makes plan records for the tests of this folder."""

from __future__ import annotations

from edge.log import NewRecord
from edge.wire.plan import Path, PlanKind, PlanMessage, encode_plan, plan_topic
from services.messages import ZonePlan
from tests.services.ingest.rig import day
from tests.services.ingest.samples import T0

__all__ = ["HOUR", "T0", "heating", "known", "plan_record", "planned_day", "weather"]

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


def planned_day(steps: int = 40) -> list[NewRecord]:
    """A day of samples in which plans come, one of them twice and one that nobody can read."""
    records: list[NewRecord] = []
    for n, record in enumerate(day(steps)):
        records.append(record)
        if n % 12 == 3:
            records.append(weather(record.receive_ms, first=n / 4))
        if n % 24 == 7:
            records += [heating(record.receive_ms, level=16 + n / 8)] * 2
        if n == 20:
            records.append(
                NewRecord("demo", "plan", record.receive_ms, b'{"heating":[[0,18.5]]}', "hothouse/v1/demo/z1/d/plan")
            )
    return records


def known(plans: list[ZonePlan] | None) -> list[tuple[str, str, int]]:
    """Zone, source and issue of each plan that a zone is told of."""
    assert plans is not None
    return [(plan["zone"], plan["source"], plan["issued_ms"]) for plan in plans]
