"""Configuration of the whole system: what the gateway reads (``edge.config``), and the sections that are ours.

One file and one environment serve both; ``edge.config.settings`` reads them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from edge.config import EdgeSettings, SettingsError, read_settings
from services.config.api_settings import ApiSettings, ClientSettings
from services.config.forecast_settings import ForecastSettings, SiteSettings, WeatherSettings
from services.config.learn_settings import LearnSettings
from services.config.recipient_settings import AlertSettings, HomeAssistantSettings, InfluxSettings, TracesSettings
from services.config.runtime_settings import RaySettings, StorageSettings
from services.errors import ConfigError

__all__ = ["Settings", "load_settings"]


class Settings(EdgeSettings):
    """All settings; frozen. Build one with :func:`load_settings`."""

    forecast: ForecastSettings = ForecastSettings()
    learn: LearnSettings = LearnSettings()
    influx: InfluxSettings = InfluxSettings()
    weather: WeatherSettings = WeatherSettings()
    alerts: AlertSettings = AlertSettings()
    home_assistant: HomeAssistantSettings = HomeAssistantSettings()
    api: ApiSettings = ApiSettings()
    traces: TracesSettings = TracesSettings()
    client: ClientSettings = ClientSettings()
    ray: RaySettings = RaySettings()
    storage: StorageSettings = StorageSettings()
    sites: Annotated[
        tuple[SiteSettings, ...],
        Field(description="Sites, each a block `[[sites]]`; one that is not listed gets UTC and no sun position."),
    ] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        names = [site.name for site in self.sites]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"sites: two have the name {twice[0]}; write all settings of a site into one block")
        step_min = self.stream.step_s / 60
        short = [h for h in self.forecast.horizons_min if h * 60 % self.stream.step_s]
        if short:
            raise ValueError(f"forecast.horizons_min {short} are not multiples of stream.step_s ({step_min:g} min)")
        least_s = self.stream.step_s + self.stream.lateness_s
        if self.forecast.stale_after_s < least_s:
            raise ValueError(
                f"forecast.stale_after_s must be at least {least_s}, stream.step_s and stream.lateness_s together: "
                "forecasts get as old while all is well, and their readings a little older"
            )
        if self.stream.ring_hours < self.forecast.lookback_hours + 2:
            raise ValueError("stream.ring_hours must exceed forecast.lookback_hours by 2 or more")
        return self

    @property
    def logs_dir(self) -> Path:
        """The parts' own log files."""
        return self.data_dir / "logs"

    @property
    def storage_folder(self) -> Path:
        """The storage where ``storage.url`` names no other; and what is on this machine's disk in any case."""
        return self.data_dir / "storage"

    @property
    def live_states(self) -> int:
        """How many live states there are: no more than shards, as each shard tells one alone."""
        wanted = self.ray.live_states or (self.stream.shards if self.ray.address else 1)
        return min(wanted, self.stream.shards)

    def live_state_of(self, shard: int) -> int:
        """The live state that a shard tells of its sites, both by index."""
        return shard % self.live_states

    def site(self, name: str) -> SiteSettings:
        """The settings of a site, defaults for one that is not listed."""
        # Not validated: the defaults are wanted for a site that no device could have, too.
        return next((site for site in self.sites if site.name == name), SiteSettings.model_construct(name=name))


def load_settings(path: Path | None = None, **overrides: Any) -> Settings:
    """Read the TOML file (``path``, else ``$HOTHOUSE_CONFIG``, else ``hothouse.toml`` if there) and the environment.

    ``overrides`` win over both (sections as dicts). Raises :class:`ConfigError` naming the setting, its value
    and what is allowed.
    """
    try:
        return read_settings(Settings, path, **overrides)
    except SettingsError as error:
        raise ConfigError(error.message, error.hint) from None
