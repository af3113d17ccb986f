"""Step 2 of the way of a reading: the file in which a gateway tells how it is."""

from __future__ import annotations

from pathlib import Path

import msgspec

from edge.status_file import write_status_file
from edge.wire.gateway_status import GatewayStatus

__all__ = ["write_status"]


def write_status(path: Path, status: GatewayStatus) -> str:
    """Write it to the file, as :func:`write_status_file`; why a disk refuses it, or nothing."""
    try:
        write_status_file(path, msgspec.json.encode(status))
    except OSError as error:
        return str(error)
    return ""
