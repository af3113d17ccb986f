"""What a test gives the gateway's process: settings, and nothing else of the environment's settings."""

from __future__ import annotations

import sys
from typing import Any

from edge.config import EdgeSettings, child_environment
from edge.mqtt.connection import MqttAddress

__all__ = ["GATEWAY", "broker_settings", "gateway_environment"]

GATEWAY = (sys.executable, "-m", "edge.gateway")


def broker_settings(address: MqttAddress, **more: Any) -> dict[str, Any]:
    """The section for a broker; its password stands in a file that ``more`` names."""
    version = "5" if address.v5 else "3.1.1"
    return {"host": address.host, "port": address.port, "username": address.username, "version": version, **more}


def gateway_environment(**settings: Any) -> dict[str, str]:
    """The environment of a gateway with these settings (sections as dicts), as ``hothouse up`` gives its own one."""
    return child_environment(EdgeSettings(**settings))
