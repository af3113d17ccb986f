"""The log of the local broker stays short: brokers write two lines a connection, and for ever."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["LOG", "MOST_BYTES", "shorten"]

LOG = "broker.log"
"""Its name in the broker's folder."""

MOST_BYTES = 8 << 20


def shorten(path: Path, most_bytes: int = MOST_BYTES) -> bool:
    """Empty the log at ``path`` where it has grown beyond ``most_bytes``, and keep what it held as ``PATH.1``; whether
    that was done.

    Only where our standard output is that file: it was then opened to append, so that whoever writes to it goes on at
    its new end. A line that is written meanwhile may be lost.
    """
    with suppress(OSError):
        there, ours = path.stat(), os.fstat(sys.stdout.fileno())
        if (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino) or there.st_size <= most_bytes:
            return False
        shutil.copyfile(path, path.with_name(path.name + ".1"))
        os.truncate(path, 0)
        return True
    return False
