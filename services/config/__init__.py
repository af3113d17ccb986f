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
from services.config.api_settings import ApiSettings, ClientSettings
from services.config.forecast_settings import ForecastSettings, SiteSettings, WeatherSettings
from services.config.learn_settings import LearnSettings
from services.config.named_files import named_files
from services.config.recipient_settings import HomeAssistantSettings, InfluxSettings, TracesSettings
from services.config.runtime_settings import RaySettings, StorageSettings
from services.config.settings import Settings, load_settings
from services.config.site_names import NO_LABELS, SiteNames

__all__ = [
    "NO_LABELS", "ApiSettings", "ClientSettings", "ForecastSettings", "GatewaySettings", "HomeAssistantSettings",
    "InfluxSettings", "KafkaSettings", "LearnSettings", "LogSettings", "LogsSettings", "MqttSettings", "RaySettings",
    "Settings", "SiteNames", "SiteSettings", "StorageSettings", "StreamSettings", "TracesSettings", "UplinkSettings",
    "WeatherSettings", "child_environment", "environment", "load_settings", "named_files",
]  # fmt: skip
