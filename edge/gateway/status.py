"""Step 2 of the way of a reading: what a gateway tells about itself, in a file and to Prometheus."""

from __future__ import annotations

import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

__all__ = ["GatewayStatus", "write_status"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class GatewayStatus:
    """What a gateway did since it started, and how it is; ``last_error`` is empty when all is well.

    ``other_topics`` of the refused messages were on topics that nothing reads. ``answered`` counts answers of decoders
    that went out to devices, ``unanswered`` those that did not: another had just gone to the same topic, or the broker
    was away.

    ``bytes_free`` is how much more the log in a file takes before the gateway stops to acknowledge. The last five
    are the uplink's: records that wait for it, what the buffer holds, the age of the oldest that waits, records
    that were taken and how often sending failed.
    """

    pid: int
    updated_ms: int
    connected: bool
    connects: int
    messages: int
    samples: int
    refused: int
    relayed: int
    records: int
    queued: int
    dropped_qos0: int
    last_error: str
    other_topics: int = 0
    answered: int = 0
    unanswered: int = 0
    bytes_free: int = 0
    buffered_records: int = 0
    buffered_bytes: int = 0
    oldest_unsent_s: float = 0.0
    uplinked: int = 0
    uplink_errors: int = 0


def write_status(path: Path, status: GatewayStatus) -> None:
    """Replace the file as a whole, so that a reader never sees half of one; a disk that refuses is only logged."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(msgspec.json.encode(asdict(status)))
        beside.replace(path)
    except OSError as error:
        _logger.warning("the status file cannot be written: %s", error)
