"""What the process that runs the system tells of the parts that are no actors."""

from __future__ import annotations

from typing import Annotated, TypedDict

from edge.figure_fields import counter, gauge
from edge.wire.gateway_status import CERTIFICATE_ENDS, GatewayStatus

__all__ = ["ForecasterFigures", "GatewayFigures", "RuntimeFigures"]


class GatewayFigures(GatewayStatus):
    """The gateway's own status, and what its keeper knows. Until the gateway has written its first status, only ``pid``
    and these two are there.
    """

    restarts: Annotated[int, counter("hothouse_gateway_restarts_total", "How often the gateway was started again.")]
    error: str  # why samples do not come in; empty when all is well


class ForecasterFigures(TypedDict):
    """What the replicas of the Forecaster serve, together, as the model pointer knows it."""

    champion: str  # the version that the model pointer names
    serving: str  # the versions that answer, where there are several with commas
    replicas: Annotated[int, gauge("hothouse_forecaster_replicas", "Replicas of the Forecaster that report.")]
    replicas_failing: Annotated[
        int, gauge("hothouse_forecaster_replicas_failing", "Replicas that cannot load the champion.")
    ]
    last_error: str  # why one of them cannot; empty when all serve the champion


class RuntimeFigures(TypedDict):
    """What carries HTTP into Serve, and what the process that runs the system fails at."""

    kind: str  # haproxy, or proxy: Serve's own
    reason: str  # why it is not HAProxy
    binary: str
    error: Annotated[
        str,
        gauge(
            "hothouse_runtime_failing", "1 while the process that runs the system fails at something.",
            field="What fails now; empty when all works.",
        ),
    ]  # fmt: skip
    certificate_ends_ms: Annotated[dict[str, int], CERTIFICATE_ENDS]  # api: the one that HAProxy has
    alerts_told: Annotated[
        dict[str, int],
        counter("hothouse_alert_changes_told_total", "Changes of alerts that were delivered.", label="channel"),
    ]
    alerts_waiting: Annotated[
        dict[str, int],
        gauge("hothouse_alert_changes_waiting", "Changes of alerts that wait to be delivered.", label="channel"),
    ]
    alerts_lost: Annotated[
        dict[str, int],
        counter(
            "hothouse_alert_changes_lost_total", "Changes of alerts that left the journal before they were delivered, "
            "or that the receiver refused.", label="channel",
        ),
    ]  # fmt: skip
    trace_spans_dropped: Annotated[
        int, counter("hothouse_runtime_trace_spans_dropped_total", "Spans that did not get to the collector of traces.")
    ]
