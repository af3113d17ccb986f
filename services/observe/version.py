"""Which version of Hothouse runs."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["hothouse_version"]


def hothouse_version() -> str:
    """The installed package's; 0 from a source tree."""
    try:
        return version("hothouse")
    except PackageNotFoundError:
        return "0"
