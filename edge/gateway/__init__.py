"""Step 2 of the way of a reading: the gateway, a process beside the broker."""

from __future__ import annotations

from edge.gateway.loop import Gateway
from edge.gateway.settings import GatewayOptions
from edge.wire.gateway_status import GatewayStatus

__all__ = ["Gateway", "GatewayOptions", "GatewayStatus"]
