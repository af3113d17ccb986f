"""Step 3 of the way of a reading: the log of the settings, for readers and writers."""

from __future__ import annotations

import logging
from typing import Any

from edge import config
from edge.config import SettingsError, log_address
from edge.log import Log
from edge.log.open_log import open_log
from services.config import Settings
from services.errors import ConfigError

__all__ = ["kafka_options", "log_address", "open_settings_log", "warn_of_unread_log"]

_log = logging.getLogger(__name__)


def open_settings_log(settings: Settings) -> Log:
    """Open it; raises the log's errors, and ``ConfigError`` when the password cannot be read."""
    return open_log(log_address(settings), settings.log.partitions, **kafka_options(settings))


def kafka_options(settings: Settings) -> dict[str, Any]:
    """The fields of ``KafkaAddress`` that are set; empty if the log is a file."""
    try:
        return config.kafka_options(settings)
    except SettingsError as error:
        raise ConfigError(error.message, error.hint) from error


def warn_of_unread_log(settings: Settings) -> None:
    """Where the log was a file until now and is on Kafka: what no snapshot of a shard holds yet is read by nobody."""
    if settings.log.kind == "kafka" and settings.log_path.exists():
        _log.warning(
            "log.kind is kafka: the log in %s is not read. What to do: if its records are still needed, set log.kind "
            "to sqlite again, and let Kafka begin on a data folder and storage of its own; else remove it",
            settings.log_path,
        )
