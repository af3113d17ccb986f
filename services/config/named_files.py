"""The files that settings name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

__all__ = ["named_files"]

WRITTEN = {"gateway.status_file"}


def named_files(settings: BaseModel, within: str = "") -> Iterator[tuple[str, Path]]:
    """Each setting that names a file to be read, such as ``mqtt.password_file``, and the file."""
    for name in type(settings).model_fields:
        value, setting = getattr(settings, name), f"{within}{name}"
        if isinstance(value, BaseModel):
            yield from named_files(value, f"{setting}.")
        elif isinstance(value, tuple):
            for number, one in enumerate(value):
                if isinstance(one, BaseModel):
                    yield from named_files(one, f"{setting}[{number}].")
        elif isinstance(value, Path) and name.endswith("_file") and setting not in WRITTEN:
            yield setting, value
