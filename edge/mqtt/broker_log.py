"""The log of the local broker stays short: brokers write two lines a connection."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from edge import short_log

__all__ = ["LOG", "shorten"]

LOG = "broker.log"
"""Its name in the broker's folder."""


def shorten(path: Path, most_bytes: int = short_log.MOST_BYTES) -> bool:
    """See :func:`edge.short_log.shorten`. Only where our standard output is that file: whoever starts the broker by
    hand may send it elsewhere.
    """
    with suppress(OSError):
        there, ours = path.stat(), os.fstat(sys.stdout.fileno())
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino) and short_log.shorten(path, most_bytes)
    return False
