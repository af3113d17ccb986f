"""Configuration: one TOML file plus the environment, checked once, frozen afterwards."""

from services.config.sections import (
    ApiSettings,
    ClientSettings,
    ForecastSettings,
    InfluxSettings,
    KafkaSettings,
    LearnSettings,
    LogSettings,
    MqttSettings,
    RaySettings,
    SiteSettings,
    StreamSettings,
    UplinkSettings,
)
from services.config.settings import Settings, environment, load_settings

__all__ = [
    "ApiSettings", "ClientSettings", "ForecastSettings", "InfluxSettings", "KafkaSettings", "LearnSettings",
    "LogSettings", "MqttSettings", "RaySettings", "Settings", "SiteSettings", "StreamSettings", "UplinkSettings",
    "environment", "load_settings",
]  # fmt: skip
