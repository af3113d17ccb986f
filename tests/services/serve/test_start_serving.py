"""The start of HTTP where Ray Serve does not come up: one sentence, as of other parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.config import ApiSettings, Settings
from services.errors import StartError
from services.runtime.ingress import Ingress, serve_environment
from services.serve.deployment import start_serving


def test_a_proxy_that_serve_ends_is_no_fault_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve ends a proxy that does not come up in time, as on a machine with much else to do, and then waits for it."""
    ray = pytest.importorskip("ray")
    from ray import serve

    def start(**_: Any) -> None:
        raise ray.exceptions.ActorDiedError

    monkeypatch.setattr(serve, "start", start)
    with pytest.raises(StartError, match="the API did not start: ") as told:
        start_serving(Settings(data_dir=tmp_path, api={"port": 0}))  # type: ignore[arg-type]
    assert "\n" not in told.value.message
    assert "start again" in told.value.hint


def test_serve_waits_for_a_proxy_on_a_small_machine(tmp_path: Path) -> None:
    """Three times as long as is said here, and its own start asks for a minute: not three times five seconds."""
    given = serve_environment(Ingress("proxy", "none here"), tmp_path, ApiSettings())
    assert 3 * float(given["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"]) > 60
