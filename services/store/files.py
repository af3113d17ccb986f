"""Step 6 of the way of a reading: files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

__all__ = ["TMP_SUFFIX", "write_atomically"]

TMP_SUFFIX = ".tmp"
"""Ends the name of a file that is still being written; readers skip it, the next writer of its name overwrites it."""


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a file beside ``path``, make it durable, then rename it to ``path``.

    After a crash at any moment ``path`` holds the old content or the new one. One process writes a path at a time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    tmp = path.with_name(f".{path.name}{TMP_SUFFIX}")
    write(tmp)
    with tmp.open("rb") as file:
        os.fsync(file.fileno())
    tmp.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames and removals in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
