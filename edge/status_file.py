"""A file in which a process tells how it is, written anew each second or so."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_status_file"]


def write_status_file(path: Path, content: bytes) -> None:
    """Replace the file as a whole, so that a reader never sees half of one; a device, as /dev/null, is written to and
    stays, and so does a link, as /dev/stdout. Raises ``OSError`` with the name that was given.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        place = Path(os.path.realpath(path))
        beside = place.with_name(f".{place.name}.{os.getpid()}")
        beside.write_bytes(content)
        beside.replace(place)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error
