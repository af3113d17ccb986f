"""A file in which a process tells how it is, written anew each second or so."""

from __future__ import annotations

import errno
import os
from pathlib import Path

__all__ = ["write_status_file"]


def write_status_file(path: Path, content: bytes) -> None:
    """Replace the file as a whole, so that a reader never sees half of one; a device, as /dev/null, is written to and
    stays, and so does a link, as /dev/stdout. On a full disk, or with a quota that is used up, it is written over where
    it is, which needs no room: that is when people look at it. Raises ``OSError`` with the name that was given.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        place = Path(os.path.realpath(path))
        beside = place.with_name(f".{place.name}.{os.getpid()}")
        try:
            beside.write_bytes(content)
            beside.replace(place)
        except OSError as error:
            beside.unlink(missing_ok=True)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not place.exists():
                raise
            with place.open("r+b") as file:
                file.write(content)
                file.truncate()
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error
