"""The gateway that runs beside the system, as a process of its own that is started again when it dies."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import cast

import msgspec

from edge.wire.gateway_status import GatewayStatus
from services.app.broker_in_use import BrokerInUse
from services.config import Settings, child_environment
from services.messages import GatewayFigures
from services.runtime.supervise import ChildProcess

__all__ = ["GatewayProcess", "read_status", "status_file"]

QUIET_S = 10.0
"""A gateway that has not written its status for longer is dead."""


class GatewayProcess(ChildProcess):
    """Reads the settings from its environment; the broker is the one in use."""

    def __init__(self, settings: Settings, broker: BrokerInUse) -> None:
        self._status_file = status_file(settings)
        own = {"status_file": self._status_file}
        parts = {
            "mqtt": settings.mqtt.model_copy(update=broker.settings()),
            "gateway": settings.gateway.model_copy(update=own),
        }
        command = [sys.executable, "-m", "edge.gateway", "--stop-with-stdin"]
        environment = child_environment(settings.model_copy(update=parts))
        super().__init__("gateway", command, settings.logs_dir / "gateway.log", environment)

    def figures(self) -> GatewayFigures:
        """Its newest status, and how it is as a process."""
        status = read_status(self._status_file)
        kept = {"pid": self.pid, "restarts": self.restarts, "error": problem(status, time.time(), self)}
        return cast(GatewayFigures, {**(status or {}), **kept})


def status_file(settings: Settings) -> Path:
    """Where the gateway writes its status."""
    return settings.gateway.status_file or settings.data_dir / "gateway-status.json"


def read_status(path: Path) -> GatewayStatus | None:
    """The gateway's newest status; ``None`` until this one, or one before it of the same version, wrote it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=GatewayStatus)
    except (OSError, msgspec.DecodeError):
        return None


def problem(status: GatewayStatus | None, now_s: float, child: ChildProcess) -> str:
    """One sentence when samples do not come in for a reason that the gateway knows; empty when all is well."""
    if child.pid is None:
        return f"it ended with exit code {child.last_exit} and is started again"
    if status is None:
        return "it has not written its status yet"
    age_s = now_s - status["updated_ms"] / 1000
    if age_s > QUIET_S:
        # Where its disk cannot be written it lives, and says so in its log alone.
        before = f"; before that: {status['last_error']}" if status["last_error"] else ""
        return f"no sign of life for {age_s:.0f} s{before}"
    if not status["connected"]:
        return f"not connected to the broker: {status['last_error'] or 'connecting'}"
    return ""
