"""The address of the log in the settings, and the login for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge import secret_file
from edge.config.settings import EdgeSettings, SettingsError
from edge.tls_files import tls_files

__all__ = ["kafka_options", "log_address", "read_secret"]


def log_address(settings: EdgeSettings) -> str:
    """The file, or ``kafka://servers/topic``."""
    if settings.log.kind == "kafka":
        return f"kafka://{','.join(settings.kafka.servers)}/{settings.kafka.topic}"
    return str(settings.log_path)


def kafka_options(settings: EdgeSettings) -> dict[str, Any]:
    """The fields of ``KafkaAddress`` that are set; empty if the log is a file. Raises :class:`SettingsError`."""
    if settings.log.kind != "kafka":
        return {}
    kafka = settings.kafka
    read_secret(kafka.password_file, "kafka.password_file")  # one that is not there stops the start
    return {
        "username": kafka.username, "password_file": kafka.password_file,
        "mechanism": kafka.mechanism, "tls": tls_files(kafka), "replication": kafka.replication,
        "retention_h": kafka.retention_h, "group": kafka.group,
    }  # fmt: skip


def read_secret(path: Path | None, setting: str) -> str:
    """The content of the file that a setting names; empty without one. Raises :class:`SettingsError` with its name."""
    try:
        return secret_file.read_secret(path) if path else ""
    except OSError as error:
        raise SettingsError(f"{setting} cannot be read: {error}", "Make the file, or unset it.") from error
