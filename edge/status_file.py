"""A file in which a process tells how it is, written anew each second or so."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_status_file"]


def write_status_file(path: Path, content: bytes) -> None:
    """Replace the file as a whole, so that a reader never sees half of one; a device, as /dev/null, is written to and
    stays. Raises ``OSError`` with the name that was given.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error
