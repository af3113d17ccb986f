"""Configuration: one TOML file plus the environment, checked once, frozen afterwards."""

from edge.config import (
    GatewaySettings,
    KafkaSettings,
    LogSettings,
    LogsSettings,
    MqttSettings,
    StreamSettings,
    UplinkSettings,
    child_environment,
    environment,
)
from services.config.sections import (
    ApiSettings,
    ClientSettings,
    ForecastSettings,
    HomeAssistantSettings,
    InfluxSettings,
    LearnSettings,
    RaySettings,
    SiteSettings,
    StorageSettings,
    TracesSettings,
    WeatherSettings,
)
from services.config.settings import Settings, load_settings

__all__ = [
    "ApiSettings", "ClientSettings", "ForecastSettings", "GatewaySettings", "HomeAssistantSettings", "InfluxSettings",
    "KafkaSettings", "LearnSettings", "LogSettings", "LogsSettings", "MqttSettings", "RaySettings", "Settings",
    "SiteSettings", "StorageSettings", "StreamSettings", "TracesSettings", "UplinkSettings", "WeatherSettings",
    "child_environment", "environment", "load_settings",
]  # fmt: skip
