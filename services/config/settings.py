"""Configuration: one TOML file plus the environment, checked once, frozen afterwards.

This is the only module that reads the environment. Every setting can be given as ``HOTHOUSE_SECTION__NAME`` too
(``HOTHOUSE_STREAM__STEP_S=60``); the environment wins over the file. Secrets are never values in the file: a
setting that ends in ``_file`` names a file that holds one.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from services.config import sections
from services.errors import ConfigError

__all__ = ["Settings", "environment", "load_settings"]


class Settings(BaseSettings):
    """All settings; frozen. Build one with :func:`load_settings`."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix="HOTHOUSE_",
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    data_dir: Path = Field(Path("hothouse-data"), description="Folder for the log, history, models and snapshots.")
    mqtt: sections.MqttSettings = sections.MqttSettings()
    log: sections.LogSettings = sections.LogSettings()
    kafka: sections.KafkaSettings = sections.KafkaSettings()
    uplink: sections.UplinkSettings = sections.UplinkSettings()
    stream: sections.StreamSettings = sections.StreamSettings()
    forecast: sections.ForecastSettings = sections.ForecastSettings()
    learn: sections.LearnSettings = sections.LearnSettings()
    influx: sections.InfluxSettings = sections.InfluxSettings()
    api: sections.ApiSettings = sections.ApiSettings()
    client: sections.ClientSettings = sections.ClientSettings()
    ray: sections.RaySettings = sections.RaySettings()
    sites: tuple[sections.SiteSettings, ...] = ()

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource, dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:  # fmt: skip
        """The environment wins over the file (which arrives as init arguments)."""
        return env_settings, init_settings

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        if self.log.kind == "kafka" and not self.kafka.servers:
            raise ValueError("log.kind is kafka: kafka.servers must name a server")
        if self.uplink.to and self.log.kind != "sqlite":
            raise ValueError("uplink.to is set: log.kind must be sqlite, the log is the uplink's buffer")
        names = [site.name for site in self.sites]
        if len(set(names)) < len(names):
            raise ValueError("sites: two have the same name")
        step_min = self.stream.step_s / 60
        short = [h for h in self.forecast.horizons_min if h * 60 % self.stream.step_s]
        if short:
            raise ValueError(f"forecast.horizons_min {short} are not multiples of stream.step_s ({step_min:g} min)")
        if self.stream.ring_hours < self.forecast.lookback_hours + 2:
            raise ValueError("stream.ring_hours must exceed forecast.lookback_hours by 2 or more")
        return self

    @property
    def log_path(self) -> Path:
        """The SQLite log."""
        return self.data_dir / "log.sqlite"

    @property
    def logs_dir(self) -> Path:
        """The parts' own log files."""
        return self.data_dir / "logs"

    @property
    def storage(self) -> Path:
        """Where history, snapshots and artefacts live."""
        return self.data_dir / "storage"

    def site(self, name: str) -> sections.SiteSettings:
        """The settings of a site, defaults for one that is not listed."""
        # Not validated: the defaults are wanted for a site that no device could have, too.
        return next(
            (site for site in self.sites if site.name == name), sections.SiteSettings.model_construct(name=name)
        )


def environment() -> dict[str, str]:
    """The settings that the environment holds: variable -> value."""
    others = ("HOTHOUSE_TEST_", "HOTHOUSE_CONFIG", "HOTHOUSE_REQUIRE_SERVERS", "HOTHOUSE_SERVERS")
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("HOTHOUSE_") and not name.startswith(others)
    }


def load_settings(path: Path | None = None, **overrides: Any) -> Settings:
    """Read the TOML file (``path``, else ``$HOTHOUSE_CONFIG``, else ``hothouse.toml`` if there) and the environment.

    ``overrides`` win over the file (sections as dicts). Raises :class:`ConfigError` naming the setting, its value
    and what is allowed.
    """
    named = path or (Path(os.environ["HOTHOUSE_CONFIG"]) if os.environ.get("HOTHOUSE_CONFIG") else None)
    content: dict[str, Any] = {}
    source = named or Path("hothouse.toml")
    if source.exists():
        try:
            content = tomllib.loads(source.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{source} is not valid TOML: {error}", "Fix that line, or start again with `hothouse init`."
            ) from error
        except OSError as error:
            raise ConfigError(f"the configuration file {source} cannot be read: {error.strerror}") from error
        influx = content.get("influx")
        if isinstance(influx, dict) and influx.get("token"):
            raise ConfigError(
                f"{source} holds influx.token; secrets do not belong in the file",
                "Set HOTHOUSE_INFLUX__TOKEN, or influx.token_file.",
            )
    elif named is not None:
        raise ConfigError(f"the configuration file {source} does not exist", "Make one with `hothouse init`.")
    for section, value in overrides.items():
        before = content.get(section, {})
        content[section] = {**before, **value} if isinstance(value, dict) and isinstance(before, dict) else value
    try:
        return Settings(**content)
    except ValidationError as error:
        raise ConfigError(_explain(error, source), "`hothouse config` lists every setting.") from None


def _explain(error: ValidationError, source: Path) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        name = ".".join(str(part) for part in problem["loc"]) or "settings"
        if problem["type"] == "extra_forbidden":
            lines.append(f"{name} is not a setting")
            continue
        given = problem.get("input")
        shown = "" if isinstance(given, (dict, Settings)) else f" is {given!r}:"
        message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
        message = message[:1].lower() + message[1:]
        lines.append(f"{name}{shown} {message}")
    return f"{'; '.join(lines)} (in {source} or the environment)"
