"""What a gateway says of itself."""

from __future__ import annotations

from edge.gateway import GatewayStatus

STATUS = GatewayStatus(
    pid=1, updated_ms=7500, connected=True, connects=2, messages=30, samples=25, refused=5, records=4, queued=3,
    dropped_qos0=0, relayed=0, last_error="", other_topics=0, retained=0, removed=0, answered=0, unanswered=0,
    certificate_ends_ms={"broker": 9500},
    bytes_free=4096, buffered_records=0, buffered_bytes=0, oldest_unsent_s=1.5, uplinked=0, uplink_errors=0,
    failing=False, started_ms=500,
)  # fmt: skip
