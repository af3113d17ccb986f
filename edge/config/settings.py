"""Configuration: one TOML file plus the environment, checked once, frozen afterwards.

This is the only module that reads settings from the environment: the gateway, which runs alone at a site, and
``services.config``, which adds the sections of the whole system, both read through it. Every setting can be given as
``HOTHOUSE_SECTION__NAME`` too (``HOTHOUSE_STREAM__STEP_S=60``); the environment wins over the file, and an option of a
command over both. Secrets are never values in the file: a setting that ends in ``_file`` names a file that holds one.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar, get_args

import pydantic_settings
from pydantic import BaseModel, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from edge.config import mistakes, sections

__all__ = [
    "EdgeSettings", "SettingsError", "child_environment", "environment", "gateway_settings", "read_settings",
    "stray_variables",
]  # fmt: skip

_PREFIX = "HOTHOUSE_"
_CONFIG = "HOTHOUSE_CONFIG"
_SYSTEM_SECTIONS = (
    "forecast", "learn", "influx", "weather", "alerts", "home_assistant", "api", "traces", "client", "ray", "storage",
    "sites",
)  # fmt: skip
"""Other sections that a file may hold: those of the whole system, which a gateway ignores."""

_Settings = TypeVar("_Settings", bound="EdgeSettings")
_NONE: Mapping[str, Any] = {}
_overrides: ContextVar[Mapping[str, Any]] = ContextVar("overrides", default=_NONE)
"""What wins over file and environment, while :func:`read_settings` builds the settings."""


class SettingsError(Exception):
    """A setting is wrong: the message names it, its value and what is allowed; ``hint`` says what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint

    @property
    def words(self) -> str:
        """The message and what to do next, in one line."""
        return f"{self.message}. {self.hint}" if self.hint else self.message


class EdgeSettings(BaseSettings):
    """What the gateway needs; frozen. Build one with :func:`gateway_settings`."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=_PREFIX,
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    data_dir: Path = Field(Path("hothouse-data"), description="Folder for the log, history, models and snapshots.")
    mqtt: sections.MqttSettings = sections.MqttSettings()
    log: sections.LogSettings = sections.LogSettings()
    kafka: sections.KafkaSettings = sections.KafkaSettings()
    uplink: sections.UplinkSettings = sections.UplinkSettings()
    gateway: sections.GatewaySettings = sections.GatewaySettings()
    logs: sections.LogsSettings = sections.LogsSettings()
    stream: sections.StreamSettings = sections.StreamSettings()

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource, dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:  # fmt: skip
        """The environment wins over the file (which arrives as init arguments), and overrides over both."""
        return InitSettingsSource(settings_cls, dict(_overrides.get())), env_settings, init_settings

    @field_validator("data_dir", mode="before")
    @classmethod
    def _names_a_folder(cls, value: Any) -> Any:
        if value == "":
            raise ValueError("must name a folder; `.` is the current one")
        return value

    @model_validator(mode="after")
    def _log_is_there(self) -> EdgeSettings:
        if self.log.kind == "kafka" and not self.kafka.servers:
            raise ValueError("log.kind is kafka: kafka.servers must name a server")
        if self.uplink.to and self.log.kind != "sqlite":
            raise ValueError("uplink.to is set: log.kind must be sqlite, the log is the uplink's buffer")
        return self

    @property
    def log_path(self) -> Path:
        """The SQLite log."""
        return self.data_dir / "log.sqlite"


def gateway_settings(path: Path | None = None) -> EdgeSettings:
    """The settings of a gateway that runs by itself; see :func:`read_settings`."""
    return read_settings(EdgeSettings, path, others=_SYSTEM_SECTIONS)


def environment() -> dict[str, str]:
    """The settings that the environment holds: variable -> value."""
    others = ("HOTHOUSE_TEST_", _CONFIG, "HOTHOUSE_REQUIRE_SERVERS", "HOTHOUSE_SERVERS")
    return {
        name: value for name, value in os.environ.items() if name.startswith(_PREFIX) and not name.startswith(others)
    }


def stray_variables() -> list[str]:
    """Variables that look like settings and name no section that there is: mostly typing errors."""
    known = {*EdgeSettings.model_fields, *_SYSTEM_SECTIONS}
    return sorted(name for name in environment() if name.removeprefix(_PREFIX).lower().split("__")[0] not in known)


def child_environment(settings: EdgeSettings) -> dict[str, str]:
    """The environment that gives a gateway exactly ``settings``, whatever file and variables there are.

    It holds no secret: passwords are in files, and settings that only the whole system has are left out.
    """
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(_PREFIX)}
    given = settings.model_dump(mode="json", include=set(EdgeSettings.model_fields))
    own = {
        _PREFIX + name.upper(): value if isinstance(value, str) else json.dumps(value) for name, value in given.items()
    }
    return {**kept, **own, _CONFIG: os.devnull}


def read_settings(
    kind: type[_Settings], path: Path | None = None, others: Collection[str] = (), **overrides: Any
) -> _Settings:
    """Read the TOML file (``path``, else ``$HOTHOUSE_CONFIG``, else ``hothouse.toml`` if there) and the environment.

    ``overrides`` win over both (sections as dicts); the sections in ``others`` are ignored. Raises
    :class:`SettingsError` naming the setting, its value and what is allowed.
    """
    named = path or (Path(os.environ[_CONFIG]) if os.environ.get(_CONFIG) else None)
    source = named or Path("hothouse.toml")
    content: dict[str, Any] = {}
    if source.exists():
        content = {name: value for name, value in _read(source).items() if name not in others}
    elif named is not None:
        raise SettingsError(f"the configuration file {source} does not exist", "Make one with `hothouse init`.")
    for section, name in _secrets(kind):
        held = content.get(section)
        if isinstance(held, dict) and held.get(name):
            raise SettingsError(
                f"{source} holds {section}.{name}; secrets do not belong in the file",
                f"Set {_PREFIX}{section.upper()}__{name.upper()}, or {section}.{name}_file.",
            )
    over = _overrides.set(overrides)
    try:
        return kind(**content)
    except ValidationError as error:
        masked = {f"{section}.{name}" for section, name in _secrets(kind)}
        in_file = f"{_PREFIX}SITES" not in {name.upper() for name in os.environ}  # a variable wins over the file's
        words = mistakes.of_values(error, kind, source, masked, content.get("sites") if in_file else None)
        raise SettingsError(words, "`hothouse config` lists every setting.") from None
    except pydantic_settings.SettingsError as error:  # its words name a section, never the variable's value
        raise SettingsError(
            f"{_unread(error)} cannot be read: lists and sections are JSON, such as "
            f"{_PREFIX}KAFKA__SERVERS='[\"broker:9092\"]'",
            "`hothouse config` lists every setting.",
        ) from None
    finally:
        _overrides.reset(over)


def _unread(error: Exception) -> str:
    """Which variable holds what could not be decoded."""
    text = getattr(error.__cause__, "doc", None)
    names = [name for name, value in environment().items() if text is not None and value == text]
    return f"the variable {names[0]}" if len(names) == 1 else f"a {_PREFIX} variable"


def _read(source: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(source.read_text(encoding="utf-8-sig"))  # editors of Windows begin a file with a mark
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(*mistakes.of_toml(error, source)) from error
    except OSError as error:
        raise SettingsError(f"the configuration file {source} cannot be read: {error.strerror}") from error


def _secrets(kind: type[EdgeSettings]) -> Iterator[tuple[str, str]]:
    for section, field in kind.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            for name, inner in field.annotation.model_fields.items():
                if SecretStr in (inner.annotation, *get_args(inner.annotation)):
                    yield section, name
