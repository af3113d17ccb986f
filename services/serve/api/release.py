"""Which release of Hothouse answers."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["release"]


def release() -> str:
    """Its version."""
    try:
        return version("hothouse")
    except PackageNotFoundError:  # run from a source tree
        return "0"
