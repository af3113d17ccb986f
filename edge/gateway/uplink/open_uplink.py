"""Step 2 of the way of a reading: the target at an uplink's address, ``kafka://host:port/topic`` or ``mqtt://host:port``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from edge.gateway.uplink.forward import LogTarget, Target
from edge.gateway.uplink.mqtt_target import MqttTarget
from edge.log.open_log import is_kafka, open_log
from edge.mqtt.connection import MqttAddress
from edge.tls_files import TlsFiles

__all__ = ["mqtt_address", "open_target"]

_PORT, _TLS_PORT = 1883, 8883


def mqtt_address(
    url: str, *, username: str = "", password_file: Path | None = None, tls: TlsFiles | None = None
) -> MqttAddress:
    """Parse ``mqtt://host[:port]``; raises ``ValueError`` for anything else.

    >>> mqtt_address("mqtt://central.example").port
    1883
    """
    parts = urlsplit(url)
    if parts.scheme != "mqtt" or not parts.hostname or parts.path.strip("/") or parts.query or "@" in parts.netloc:
        raise ValueError(f"{url} is neither kafka://host:port[,host:port ...]/topic nor mqtt://host[:port]")
    port = parts.port or (_TLS_PORT if tls else _PORT)
    return MqttAddress(host=parts.hostname, port=port, username=username, password_file=password_file, tls=tls)


def open_target(
    url: str, buffer_id: str, *, username: str = "", password_file: Path | None = None, tls: TlsFiles | None = None,
    mechanism: str = "SCRAM-SHA-512", partitions: int = 4, tail_s: float = 60.0,
) -> Target:  # fmt: skip
    """The target at ``url``; nothing is connected yet. ``mechanism`` and ``partitions`` (of the central log) are
    Kafka's, ``tail_s`` is a broker's. Raises ``ValueError`` for what is no address.
    """
    if not is_kafka(url):
        central = mqtt_address(url, username=username, password_file=password_file, tls=tls)
        return MqttTarget(central, f"hothouse-uplink-{buffer_id}", tail_s=tail_s)
    from edge.log.kafka.address import kafka_address  # the bare install has no Kafka client

    kafka_address(url)  # a wrong address is refused now, not when the log is opened
    login = {"username": username, "password_file": password_file, "mechanism": mechanism, "tls": tls}
    return LogTarget(partial(open_log, url, partitions, **login))
