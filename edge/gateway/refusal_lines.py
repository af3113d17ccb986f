"""Step 2 of the way of a reading: what was refused, in the gateway's own log, once it is durable in the other.

A line names the record that keeps it (partition and offset) and the step in which it came, so that the dead letter that
a shard makes of it has the same trace id.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from edge.log.contract import NewRecord
from edge.log_lines import LinesOfAStep
from edge.wire.reading import decode_refusals
from edge.wire.topic import parse_topic
from edge.wire.trace_id import in_step, step_end_ms

__all__ = ["RefusalLines"]

_logger = logging.getLogger(__name__)


class RefusalLines:
    """A line for each topic and reason, once a step of ``step_ms``."""

    def __init__(self, step_ms: int) -> None:
        self._step_ms, self._lines = step_ms, LinesOfAStep()

    def tell(self, appended: Iterable[tuple[NewRecord, tuple[int, int]]]) -> None:
        """Look through records of this gateway, each with the partition and offset that it has got."""
        for record, (partition, offset) in appended:
            if record.kind != "refused" or record.origin is not None:
                continue
            end_ms = step_end_ms(record.receive_ms, self._step_ms)
            for refusal in decode_refusals(record.payload):
                if self._lines.is_new(end_ms, refusal.topic, refusal.reason):
                    where = parse_topic(refusal.topic)
                    fields = in_step(record.site, end_ms, where.zone if where else "", log=f"{partition}:{offset}")
                    _logger.info("refused on %s, %s: %s", refusal.topic, refusal.reason, refusal.detail, extra=fields)
