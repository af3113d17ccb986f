"""Step 3 of the way of a reading: the log that the settings name, for whoever reads or writes it."""

from __future__ import annotations

from typing import Any

from edge.log import Log
from edge.log.open import open_log
from services.config import Settings
from services.errors import ConfigError

__all__ = ["gateway_options", "kafka_options", "log_address", "open_settings_log", "uplink_options"]


def log_address(settings: Settings) -> str:
    """The file, or ``kafka://servers/topic``."""
    if settings.log.kind == "kafka":
        return f"kafka://{','.join(settings.kafka.servers)}/{settings.kafka.topic}"
    return str(settings.log_path)


def open_settings_log(settings: Settings) -> Log:
    """Open it; raises the log's errors, and ``ConfigError`` when the password cannot be read."""
    return open_log(log_address(settings), settings.log.partitions, **kafka_options(settings))


def gateway_options(settings: Settings) -> list[str]:
    """The options of ``python -m edge.gateway`` that name this log."""
    options = ["--log", log_address(settings), "--partitions", str(settings.log.partitions)]
    options += ["--max-mib", str(settings.log.max_mib), "--reserve-mib", str(settings.log.reserve_mib)]
    if settings.log.kind == "kafka":
        kafka = settings.kafka
        options += ["--kafka-replication", str(kafka.replication), "--kafka-retention-h", str(kafka.retention_h)]
        options += ["--kafka-mechanism", kafka.mechanism]
        for option, value in (
            ("--kafka-username", kafka.username),
            ("--kafka-password-file", kafka.password_file),
            ("--kafka-tls-ca", kafka.tls_ca_file),
            ("--kafka-direct-topic", kafka.direct_topic),
        ):
            options += [option, str(value)] if value else []
    return options


def uplink_options(settings: Settings) -> list[str]:
    """The options of ``python -m edge.gateway`` that name the uplink; empty where there is none."""
    uplink = settings.uplink
    if not uplink.to:
        return []
    options = ["--uplink", uplink.to, "--uplink-mechanism", uplink.mechanism]
    options += ["--uplink-partitions", str(uplink.partitions)]
    for option, value in (
        ("--uplink-username", uplink.username),
        ("--uplink-password-file", uplink.password_file),
        ("--uplink-tls-ca", uplink.tls_ca_file),
    ):
        options += [option, str(value)] if value else []
    return options


def kafka_options(settings: Settings) -> dict[str, Any]:
    """The fields of ``KafkaAddress`` that are set; empty where the log is a file."""
    if settings.log.kind != "kafka":
        return {}
    kafka = settings.kafka
    try:
        password = kafka.password_file.read_text().strip() if kafka.password_file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"kafka.password_file cannot be read: {error}", "Make the file, or unset it.") from error
    return {
        "username": kafka.username, "password": password, "mechanism": kafka.mechanism, "tls_ca": kafka.tls_ca_file,
        "replication": kafka.replication, "retention_h": kafka.retention_h, "group": kafka.group,
    }  # fmt: skip
