"""A log that a process writes on its standard output stays short, for however long the process runs."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

__all__ = ["MOST_BYTES", "shorten"]

MOST_BYTES = 8 << 20


def shorten(path: Path, most_bytes: int = MOST_BYTES) -> bool:
    """Empty the log at ``path`` where it has grown beyond ``most_bytes``, and keep what it held as ``PATH.1``; whether
    that was done.

    Only for a file that was opened to append, so that whoever writes to it goes on at its new end. A line that is
    written meanwhile may be lost.
    """
    with suppress(OSError):
        if path.stat().st_size <= most_bytes:
            return False
        shutil.copyfile(path, path.with_name(path.name + ".1"))
        os.truncate(path, 0)
        return True
    return False
