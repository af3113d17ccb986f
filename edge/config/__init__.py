"""The settings of what runs at a site: one TOML file plus the environment, for the gateway and the whole system."""

from __future__ import annotations

from edge.config.addresses import Host, HttpUrl, ListenHost
from edge.config.forms import of_form
from edge.config.log_location import kafka_options, log_address, read_secret
from edge.config.sections import (
    GatewaySettings,
    KafkaSettings,
    LogSettings,
    LogsSettings,
    MqttSettings,
    Section,
    StreamSettings,
    UplinkSettings,
)
from edge.config.settings import (
    EdgeSettings,
    SettingsError,
    child_environment,
    environment,
    gateway_settings,
    read_settings,
    stray_variables,
)

__all__ = [
    "EdgeSettings", "GatewaySettings", "Host", "HttpUrl", "KafkaSettings", "ListenHost", "LogSettings", "LogsSettings",
    "MqttSettings", "Section", "SettingsError", "StreamSettings", "UplinkSettings", "child_environment", "environment",
    "gateway_settings", "kafka_options", "log_address", "of_form", "read_secret", "read_settings", "stray_variables",
]  # fmt: skip
