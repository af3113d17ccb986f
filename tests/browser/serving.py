"""The API over a live state of made-up forecasts, as the page's tests ask it; no Ray behind it."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from models.paths.steps import path_steps
from services.messages import ForecastPath
from services.serve.api.app import create_app
from services.serve.api.auth import Keys
from services.serve.api.state import ApiState
from services.serve.live_state import LiveState
from tests.patience import patience_s, until
from tests.services.serve.fakes import ORIGIN_MS, SPEC, FakeBackend

__all__ = ["MINUTES", "serving", "whole_path"]

MINUTES = (path_steps(SPEC) * SPEC.step_ms // 60_000).tolist()
"""The times of a whole path."""


def whole_path() -> ForecastPath:
    """A day's wave of air temperature and humidity, which is no straight line anywhere."""
    level = [20 + 4 * math.sin((ORIGIN_MS / 60_000 + minutes) / 1440 * 2 * math.pi) for minutes in MINUTES]
    spread = [0.2 + minutes / 900 for minutes in MINUTES]
    band = {
        "p10": [p50 - half for p50, half in zip(level, spread, strict=True)], "p50": level,
        "p90": [p50 + half for p50, half in zip(level, spread, strict=True)],
    }  # fmt: skip
    return {"horizon_min": MINUTES, "targets": {"air_temp_c": band, "rh_pct": band}}


@contextmanager
def serving(
    live_state: LiveState, keys: Keys, backend: FakeBackend | None = None, timezone: str = "UTC"
) -> Iterator[str]:
    """The address of the API over a live state, with these keys, for sites in this time zone."""
    state = ApiState(
        backend or FakeBackend(live_state), keys, SPEC, stale_after_s=1800, timezone=lambda site: timezone
    )  # fmt: skip
    server = uvicorn.Server(uvicorn.Config(create_app(state), log_level="error", access_log=False))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), name="api", daemon=True)
        thread.start()
        try:
            until(lambda: server.started, "the API starts")
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(patience_s(60))
