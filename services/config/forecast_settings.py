"""What is forecast, for which sites, and where forecasts of their weather come from."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from edge.config import Section
from edge.wire.plan import METRICS_OF
from edge.wire.vocabulary import VOCABULARY
from services.config.texts import Name, TimeZone, WebUrl, ZoneOrAll

__all__ = ["ForecastSettings", "SiteSettings", "WeatherSettings"]

VARIABLES = {
    "temperature_2m": "out_temp_c", "relative_humidity_2m": "out_rh_pct", "shortwave_radiation": "out_radiation_w_m2",
    "wind_speed_10m": "wind_m_s", "wind_direction_10m": "wind_dir_deg",
}  # fmt: skip


class ForecastSettings(Section):
    """What is forecast."""

    horizons_min: tuple[int, ...] = Field(
        (5, 10, 15, 30, 60, 120, 180, 360, 720, 1440), description="Horizons in minutes, rising."
    )
    targets: tuple[str, ...] = Field(
        ("air_temp_c", "rh_pct", "co2_ppm", "vpd_kpa"), description="Metrics that are forecast."
    )
    lookback_hours: int = Field(24, ge=1, le=72, description="History the network sees, in hours.")
    stale_after_s: int = Field(
        1800,
        ge=60,
        description="Age of a forecast, in stream time, from which /predict answers 503; more "
        "than a step and the lateness.",
    )

    @field_validator("targets")
    @classmethod
    def _known_targets(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in value if name not in VOCABULARY and name != "vpd_kpa"]
        if unknown or not value or len(set(value)) < len(value):
            raise ValueError("must be metrics of the vocabulary or vpd_kpa, each once, such as air_temp_c")
        angles = [name for name in value if name != "vpd_kpa" and VOCABULARY[name].kind == "angle"]
        if angles:
            raise ValueError(f"{angles[0]} cannot be forecast: a direction is neither more nor less than another")
        return value

    @field_validator("horizons_min")
    @classmethod
    def _rising(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or list(value) != sorted(set(value)) or value[0] < 1 or value[-1] > 7 * 1440:
            raise ValueError("must rise, each between 1 and 10080 minutes")
        return value


class SiteSettings(Section):
    """One site; a site that is not listed gets UTC and no sun position."""

    name: Name = Field(description="As in the topic.")
    label: str = Field("", max_length=64, description="What people call it, as on the page.")
    zone_labels: dict[Name, str] = Field(
        default_factory=dict, description='zone = what people call it, such as `north-1 = "Tomatoes, north"`.'
    )
    timezone: TimeZone = Field("UTC", description="IANA time zone.")
    latitude: float | None = Field(None, ge=-90, le=90, description="Degrees north.")
    longitude: float | None = Field(None, ge=-180, le=180, description="Degrees east.")
    clock: Literal["civil", "standard"] = Field("civil", description="Which clock its climate control follows.")
    repeat_setpoints: tuple[ZoneOrAll, ...] = Field(
        (), description="Zones for which yesterday's setpoints are today's plan, where nobody plans them; `*`: all."
    )
    rules_file: Path | None = Field(None, description="Its rules of alerts, instead of `alerts.rules_file`.")
    primary: dict[str, Name] = Field(default_factory=dict, description="metric = device: its value is the zone's.")

    @field_validator("primary")
    @classmethod
    def _known_metrics(cls, value: dict[str, str]) -> dict[str, str]:
        unknown = sorted(set(value) - set(VOCABULARY))
        if unknown:
            raise ValueError(f"names {', '.join(unknown)}, which is not in the vocabulary")
        return value

    @model_validator(mode="after")
    def _whole_place(self) -> SiteSettings:
        if (self.latitude is None) != (self.longitude is None):
            raise ValueError(f"{self.name}: latitude and longitude belong together: set both, or none")
        return self


class WeatherSettings(Section):
    """Where `hothouse weather` gets its forecasts from."""

    url: WebUrl = Field(
        "https://api.open-meteo.com/v1/forecast",
        description="Address of a service that answers as Open-Meteo does.",
    )  # fmt: skip
    source: str = Field(
        "open-meteo", min_length=1, max_length=64,
        description="What its forecasts are called; a newer one replaces the one before.",
    )  # fmt: skip
    sites: tuple[str, ...] = Field((), description="Sites that it is asked for; none: all with coordinates.")
    variables: dict[str, str] = Field(
        dict(VARIABLES), description="variable = metric: what is asked for, and what it is here."
    )
    every_min: float = Field(60, ge=5, le=1440, description="Minutes between two questions for a site.")
    days: int = Field(3, ge=1, le=15, description="How far ahead it is asked, in days, today among them.")
    key_file: Path | None = Field(None, description="File with the service's key, if it wants one.")

    @field_validator("variables")
    @classmethod
    def _weather_metrics(cls, value: dict[str, str]) -> dict[str, str]:
        unknown = sorted(set(value.values()) - set(METRICS_OF["weather"]))
        if unknown or not value or len(set(value.values())) < len(value):
            known = ", ".join(METRICS_OF["weather"])
            raise ValueError(f"must name metrics of the weather, each once: {known}")
        return value
