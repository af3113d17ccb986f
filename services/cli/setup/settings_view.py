"""Every setting as a person sees it: for ``hothouse config``, ``hothouse init`` and ``docs/configuration.md``.

All three come from the fields of :class:`services.config.Settings`, so none of them can drift from the code.
"""

from __future__ import annotations

import json
import types
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from services.config import Settings, SiteSettings, environment

__all__ = ["SettingView", "commented_toml", "list_settings", "markdown_table", "unknown_variables"]

PATH = '"path"'
MASKED = "********"
_SITE_EXAMPLE = {"name": '"demo"', "timezone": '"Europe/Amsterdam"', "latitude": "51.98", "longitude": "4.53"}
_BOUNDS = (("ge", "at least"), ("gt", "more than"), ("le", "at most"), ("lt", "less than"))


@dataclass(frozen=True, slots=True)
class SettingView:
    """One setting. ``value`` and ``default`` are written as in TOML, a secret masked, an unset one empty."""

    name: str
    variable: str
    value: str
    default: str
    source: Literal["default", "file", "environment", "option"]
    allowed: str
    description: str

    @property
    def section(self) -> str:
        """The TOML table that the setting stands in; empty at the top."""
        return self.name.rpartition(".")[0]


def list_settings(settings: Settings, options: Collection[str] = ()) -> list[SettingView]:
    """Every setting in the order of the file; those of ``sites`` as one, because it is a list. ``options`` names those
    that the command line says.

    >>> view = next(view for view in list_settings(Settings()) if view.name == "stream.step_s")
    >>> view.variable, view.default, view.allowed
    ('HOTHOUSE_STREAM__STEP_S', '300', 'at least 10, at most 3600')
    """
    defaults = Settings.model_construct()
    in_environment = {name.upper() for name in environment()}
    views = []
    for section, name, field in _fields(Settings):
        path = f"{section}.{name}" if section else name
        variable = "HOTHOUSE_" + path.upper().replace(".", "__")
        value, default = (_look_up(model, section, name) for model in (settings, defaults))
        given = {variable, f"HOTHOUSE_{section.upper()}"} & in_environment
        source: Literal["default", "file", "environment", "option"] = (
            "option" if path in options else "environment" if given else "default" if value == default else "file"
        )
        views.append(
            SettingView(path, variable, _toml(value), _toml(default), source, _allowed(field), field.description or "")
        )
    return views


def unknown_variables() -> list[str]:
    """Variables that look like settings and name none: mostly typing errors."""
    sections = {f"HOTHOUSE_{name.upper()}" for name in Settings.model_fields}
    known = {view.variable for view in list_settings(Settings.model_construct())} | sections
    return sorted(name for name in environment() if name.upper() not in known)


def commented_toml() -> str:
    """A configuration file that changes nothing: every setting with its meaning, its default commented out."""
    views = list_settings(Settings.model_construct())
    lines = [
        "# Configuration of Hothouse. A line such as `#port = 1883` shows a default; take the # away to change it.",
        "# A variable such as HOTHOUSE_STREAM__STEP_S=60 wins over this file; `hothouse doctor` checks both.",
    ]
    section = None
    for view in views:
        if view.name == "sites":
            continue
        if view.section != section:
            section = view.section
            if section:
                lines += ["", f"[{section}]  # {_summary(section)}"]
        lines += ["", *_explained(view)]
    lines += ["", "# One block a site; a site that is not listed gets UTC and no sun position.", "#[[sites]]"]
    for name, field in SiteSettings.model_fields.items():
        lines += [
            "",
            f"# {field.description}",
            f"#{name} = {_SITE_EXAMPLE.get(name) or _toml(_default(field)) or PATH}",
        ]
    return "\n".join(lines) + "\n"


def markdown_table() -> str:
    """The reference in ``docs/configuration.md``, one table a section."""
    lines: list[str] = []
    section = None
    views = list_settings(Settings.model_construct())
    sites = [
        SettingView(
            f"sites.{name}", "", "", _toml(_default(field)), "default", _allowed(field), field.description or ""
        )
        for name, field in SiteSettings.model_fields.items()
    ]
    for view in [*(view for view in views if view.name != "sites"), *sites]:
        if view.section != section:
            section = view.section
            title = f"[[{section}]]" if section == "sites" else f"[{section}]" if section else "Top"
            lines += ["", f"### `{title}`" if section else "### Top of the file", "", _summary(section), ""]
            lines += ["| setting | default | allowed | meaning |", "|---|---|---|---|"]
        default = f"`{view.default}`" if view.default else ""
        lines.append(f"| `{view.name}` | {default} | {view.allowed} | {view.description} |")
    return "\n".join(lines).replace("\n\n\n", "\n\n").strip() + "\n"


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, str, FieldInfo]]:
    """(section, name, field), top-level values first, because TOML wants them before the first table."""
    sections = {
        name: field.annotation
        for name, field in model.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }
    yield from (("", name, field) for name, field in model.model_fields.items() if name not in sections)
    for section, content in sections.items():
        yield from ((section, name, field) for name, field in content.model_fields.items())


def _look_up(model: BaseModel, section: str, name: str) -> Any:
    return getattr(getattr(model, section) if section else model, name)


def _default(field: FieldInfo) -> Any:
    return None if field.is_required() else field.get_default(call_default_factory=True)


def _summary(section: str) -> str:
    if not section:
        return "Where everything is kept."
    part = SiteSettings if section == "sites" else Settings.model_fields[section].annotation
    return (part.__doc__ or "").strip().splitlines()[0]


def _explained(view: SettingView) -> list[str]:
    text = f"# {view.description}" + (f" Allowed: {view.allowed.replace('`', '')}." if view.allowed else "")
    if view.name == "influx.token":
        return [text, "# (never here: a file is copied, mailed and committed)"]
    name = view.name.rpartition(".")[2]
    return [text, f"#{name} = {view.default}" if view.default else f"#{name} = {PATH}"]


def _toml(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        return MASKED
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, dict) and value:
        return "{ " + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + " }"
    if isinstance(value, BaseModel):
        return "{ " + ", ".join(f"{name} = {_toml(item)}" for name, item in value if item not in (None, {})) + " }"
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


def _allowed(field: FieldInfo) -> str:
    limits = [
        f"{words} {bound:g}" if isinstance(bound, float) else f"{words} {bound}"
        for item in field.metadata
        for attribute, words in _BOUNDS
        if (bound := getattr(item, attribute, None)) is not None
    ]
    choices = _choices(field.annotation)
    return ", ".join(limits) if limits else " or ".join(f"`{choice}`" for choice in choices)


def _choices(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return tuple(str(choice) for choice in get_args(annotation))
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(choice for part in get_args(annotation) for choice in _choices(part))
    if annotation is bool:
        return ("true", "false")
    return ()
