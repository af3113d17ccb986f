"""Step 3 of the way of a reading: where Kafka is, how to log in, and how its errors become the log's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kafka import errors as kafka_errors

from edge.log.contract import LogCorruptError, LogError
from edge.log.kafka.login import Mechanism, take_password_files
from edge.log.kafka.lost_connections import hear_losses, words_of
from edge.tls_files import TlsFiles

__all__ = ["KafkaAddress", "kafka_address", "translated"]

_RECONNECT_MS = 1000


@dataclass(frozen=True, kw_only=True)
class KafkaAddress:
    """A topic on some bootstrap servers; ``tls`` says whether by TLS, SASL when there is a user name.
    ``password_file`` is read at each connection: who corrects it need not restart anything.

    ``timeout_s`` bounds every call, so also how long an append may take. ``retention_h`` and ``replication`` are for
    a topic that is not there yet; 0 hours keep records for ever, -1 replicas are the broker's default. ``group``
    names the consumer group whose committed offsets show how far reading is.
    """

    servers: tuple[str, ...]
    topic: str
    group: str = "hothouse"
    username: str = ""
    password_file: Path | None = None
    mechanism: Mechanism = "SCRAM-SHA-512"
    tls: TlsFiles | None = None
    replication: int = -1
    retention_h: int = 720
    timeout_s: float = 10.0

    def __str__(self) -> str:
        return f"kafka://{','.join(self.servers)}/{self.topic}"

    def options(self) -> dict[str, Any]:
        """What every client of kafka-python is given."""
        hear_losses()
        timeout_ms = round(self.timeout_s * 1000)
        security = ("SASL_" if self.username else "") + ("SSL" if self.tls else "PLAINTEXT")
        options: dict[str, Any] = {
            "bootstrap_servers": list(self.servers),
            "bootstrap_timeout_ms": timeout_ms,
            "request_timeout_ms": timeout_ms // 2,
            "reconnect_backoff_max_ms": _RECONNECT_MS,
            "security_protocol": "PLAINTEXT" if security == "PLAINTEXT" else security,
        }
        if self.tls:
            options["ssl_cafile"] = str(self.tls.ca)
        if self.tls and self.tls.cert:
            options |= {"ssl_certfile": str(self.tls.cert), "ssl_keyfile": str(self.tls.key), "ssl_password": ""}
        if self.username:
            take_password_files()
            options |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password_file or "",
            }
        return options


def kafka_address(url: str, **options: Any) -> KafkaAddress:
    """Parse ``kafka://host:port[,host:port ...]/topic``; raises ``ValueError`` for anything else.

    >>> kafka_address("kafka://a:9092,b:9092/hothouse").servers
    ('a:9092', 'b:9092')
    """
    parts = urlsplit(url)
    servers = tuple(server for server in parts.netloc.split(",") if server)
    topic = parts.path.strip("/")
    if parts.scheme != "kafka" or not servers or not topic or "/" in topic or parts.query or "@" in parts.netloc:
        raise ValueError(f"{url} is not kafka://host:port[,host:port ...]/topic")
    return KafkaAddress(servers=servers, topic=topic, **options)


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Kafka's errors become the log's, ``what`` in front."""
    try:
        yield
    except kafka_errors.CorruptRecordError as error:
        raise LogCorruptError(f"{what}: {error}") from error
    except (kafka_errors.KafkaError, OSError) as error:
        raise LogError(f"{what}: {words_of(error)}") from error
