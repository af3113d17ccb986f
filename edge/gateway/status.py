"""Step 2 of the way of a reading: the file in which a gateway tells how it is."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from edge.wire.gateway_status import GatewayStatus

__all__ = ["write_status"]


def write_status(path: Path, status: GatewayStatus) -> str:
    """Replace the file as a whole, so that a reader never sees half of one; why a disk refuses it, or nothing."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(msgspec.json.encode(status))
        beside.replace(path)
    except OSError as error:
        return str(error)
    return ""
