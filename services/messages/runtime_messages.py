"""What the process that runs the system tells of the parts that are no actors."""

from __future__ import annotations

from typing import Annotated, TypedDict

from edge.figure_fields import counter
from edge.wire.gateway_status import GatewayStatus

__all__ = ["GatewayFigures", "RuntimeFigures"]


class GatewayFigures(GatewayStatus):
    """The gateway's own status, and what its keeper knows. Until the gateway has written its first status, only ``pid``
    and these two are there.
    """

    restarts: Annotated[int, counter("hothouse_gateway_restarts_total", "How often the gateway was started again.")]
    error: str  # why samples do not come in; empty when all is well


class RuntimeFigures(TypedDict):
    """What carries HTTP into Serve, and what the process that runs the system fails at."""

    kind: str  # haproxy, or proxy: Serve's own
    reason: str  # why it is not HAProxy
    binary: str
    error: str
