"""What the process that runs the system says of its gateway."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from services.app.gateway_process import problem
from tests.edge.gateway.statuses import STATUS

FULL = {**STATUS, "last_error": "no room is left"}
NOW_S = STATUS["updated_ms"] / 1000


@pytest.mark.parametrize(
    ("status", "now_s", "child", "says"),
    [
        (STATUS, NOW_S + 1, {"pid": 7}, ""),
        (None, NOW_S, {"pid": 7}, "it has not written its status yet"),
        (STATUS, NOW_S + 31, {"pid": 7}, "no sign of life for 31 s"),
        (FULL, NOW_S + 31, {"pid": 7}, "no sign of life for 31 s; before that: no room is left"),
        ({**STATUS, "connected": False}, NOW_S, {"pid": 7}, "not connected to the broker: connecting"),
        ({**STATUS, "connected": False, "last_error": "refused"}, NOW_S, {"pid": 7}, "to the broker: refused"),
        (STATUS, NOW_S, {"pid": None, "last_exit": 3}, "it ended with exit code 3 and is started again"),
    ],
)
def test_why_samples_do_not_come_in(status: Any, now_s: float, child: dict[str, Any], says: str) -> None:
    """One sentence, also before the gateway has written its first status; none while all is well."""
    words = problem(status, now_s, SimpleNamespace(**child))  # type: ignore[arg-type]
    assert words.endswith(says)
    assert bool(words) == bool(says)
