"""Step 2 of the way of a reading: how a gateway works."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edge.mqtt.connection import MqttAddress

if TYPE_CHECKING:
    from edge.log.kafka.address import KafkaAddress

__all__ = ["GatewayOptions"]


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """How a gateway works. ``step_s`` is the length of a row: ticks come every tenth of it.

    A batch is what came within ``linger_s`` of its first message, at most ``max_batch`` messages, from the broker and
    from ``direct`` together; it is acknowledged once it is durable. ``in_flight`` bounds what the broker may send
    before we acknowledge, so also what waits here while the log is full, over any number of connections, if the broker
    speaks MQTT 5; with 3.1.1 the broker's own bound counts. Gateways with the same ``share`` split the
    broker's messages among them. The gateway also subscribes to ``topics``, so that messages on a wrong topic are
    counted; not if it is empty, or if the broker refuses it. ``direct`` is a Kafka topic that sites write samples to
    themselves. ``client_id`` names the session and the presence; where ``broker`` has a session secret, the id of the
    session is another one.
    """

    broker: MqttAddress = field(default_factory=MqttAddress)
    client_id: str = "hothouse-gateway"
    step_s: int = 300
    status_file: Path | None = None
    max_batch: int = 1000
    linger_s: float = 0.02
    in_flight: int = 4000
    session_expiry_s: int = 7 * 86_400
    retry_s: float = 5.0
    share: str = ""
    topics: str = "hothouse/#"
    direct: KafkaAddress | None = None
