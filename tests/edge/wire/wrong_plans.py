"""A plan, and what is wrong with others."""

from __future__ import annotations

import json
from typing import Any

from edge.wire.plan import MAX_PLAN_BYTES, MAX_POINTS, plan_topic

NOW_MS = 1_646_092_800_000  # 2022-03-01 00:00 UTC
HOUR_MS = 3_600_000
TOPIC = plan_topic("demo", "_site", "weather-service")


def body(**changed: Any) -> dict[str, Any]:
    """A forecast of three hours; keyword arguments replace what it says."""
    path = [[NOW_MS + n * HOUR_MS, 4.0 + n] for n in range(1, 4)]
    return {"issued": NOW_MS, "source": "knmi", "kind": "weather", "values": {"out_temp_c": path}} | changed


def payload(**changed: Any) -> bytes:
    return json.dumps(body(**changed)).encode()


def points(*pairs: tuple[float, Any], metric: str = "out_temp_c") -> dict[str, Any]:
    """What a plan says of one metric, by hours from now."""
    return {metric: [[NOW_MS + round(hours * HOUR_MS), value] for hours, value in pairs]}


WHOLE = [
    ("malformed", b"{", "truncated"),
    ("malformed", b"[]", "object"),
    ("malformed", b'{"source":"x","values":{}}', "issued"),
    ("malformed", b'{"issued":1646092800000,"values":{}}', "source"),
    ("malformed", b'{"issued":1646092800000,"source":"x"}', "values"),
    ("malformed", payload(issued="2022-03-01T00:00:00Z"), "issued"),
    ("malformed", payload(issued=10**400), "issued"),
    ("malformed", payload(source=""), "source must be 1 to 64 characters"),
    ("malformed", payload(source="a" * 65), "source must be 1 to 64 characters"),
    ("malformed", payload(source="a\nb"), "can be printed"),
    ("malformed", payload(kind="wether"), "did you mean weather?"),
    ("malformed", payload(values=points((1, float("nan")))), "JSON has no NaN"),
    ("malformed", payload(kind=None, values=points((1, 4)) | points((1, 18), metric="sp_heat_c")), "names no kind"),
    ("oversized", payload() + b" " * MAX_PLAN_BYTES, f"at most {MAX_PLAN_BYTES}"),
    ("too_many_points", payload(values=points(*((n / 100, 4) for n in range(MAX_POINTS + 1)))), "8001 points"),
    ("future_ts", payload(issued=NOW_MS + 120_000), "after its receive time"),
    ("future_ts", payload(issued=NOW_MS * 1000), "is it in microseconds?"),
    ("ancient_ts", payload(issued=NOW_MS // 1000), "is it in seconds?"),
    ("no_values", payload(values={}), "says nothing"),
    ("no_values", payload(values={"out_temp_c": []}), "says nothing"),
    ("no_values", payload(values=points((1, None))), "says nothing"),
]


OF_ONE_METRIC = [
    ("unknown_metric", {"out_temp": [[NOW_MS + HOUR_MS, 4]]}, "did you mean out_temp_c?"),
    ("unknown_metric", {"out_temp_c.2": [[NOW_MS + HOUR_MS, 4]]}, "did you mean out_temp_c?"),
    ("wrong_kind", points((1, 18), metric="sp_heat_c"), "belongs into a plan of kind setpoint"),
    ("wrong_kind", points((1, 18), metric="air_temp_c"), "is measured: nobody plans it"),
    ("out_of_range", points((1, 4), (2, 140)), "is it in °F?, at 2022-03-01T02:00Z"),
    ("out_of_range", points((1, -3), metric="wind_m_s"), "allowed 0 to 60"),
    ("malformed", {"out_temp_c": [[NOW_MS, 4, 5]]}, "[[valid_ms, value], ...]"),
    ("malformed", {"out_temp_c": {"1": 2}}, "[[valid_ms, value], ...]"),
    ("malformed", {"out_temp_c": [[10**400, 4]]}, "[[valid_ms, value], ...]"),
    ("malformed", {"out_temp_c": [[NOW_MS + HOUR_MS, "warm"]]}, "[[valid_ms, value], ...]"),
    ("malformed", {"out_temp_c": [["2022-03-01T01:00Z", 4]]}, "[[valid_ms, value], ...]"),
    ("not_rising", points((1, 4), (3, 4), (2, 4)), "valid times must rise"),
    ("not_rising", points((1, 4), (1, 5)), "twice"),
    ("too_far_ahead", points((1, 4), (15 * 24 + 1, 4)), "at most 15 days after the issue, until 2022-03-16T00:00Z"),
    ("too_far_ahead", {"out_temp_c": [[(NOW_MS + HOUR_MS) * 1000, 4]]}, "is it in microseconds?"),
    ("past", {"out_temp_c": [[(NOW_MS + HOUR_MS) // 1000, 4]]}, "is it in seconds?"),
    ("past", points((-365 * 24, 4), (-364 * 24, 5)), "had passed when it came"),
    ("past", points((-49, 4), (1, 5)), "more than 2 days before the issue"),
]
