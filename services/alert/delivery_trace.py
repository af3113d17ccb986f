"""Step 9 of the way of a reading, for operators: who was told of an alert, in the log and as a span of the step."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edge.wire.trace_id import step_span_id, step_trace_id
from services.messages import ShownAlert, in_alert

if TYPE_CHECKING:
    from services.observe.spans import Spans

__all__ = ["DeliveryTrace"]

_log = logging.getLogger(__name__)


class DeliveryTrace:
    """Channels take the time (``now_ns``, Unix time) before they tell, and call :meth:`told` when that has worked.
    ``changes`` counts what each has told since this was made.
    """

    def __init__(self, spans: Spans | None = None, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._spans, self.now_ns = spans, now_ns
        self.changes = Counter[str]()

    def told(self, channel: str, alerts: Sequence[ShownAlert], since_ns: int) -> None:
        """These changes were told, in one call that began at ``since_ns``."""
        until_ns = self.now_ns()
        self.changes[channel] += len(alerts)
        for alert in alerts:
            _log.info("told by %s: %s is %s", channel, alert["rule"], alert["state"], extra=in_alert(alert))
            if self._spans is not None:
                step = alert["site"], alert["seen_ms"]
                known: dict[str, str | int] = {
                    "hothouse.site": alert["site"], "hothouse.alert": alert["id"],
                    "hothouse.alert_change": alert["change"], "hothouse.channel": channel,
                }  # fmt: skip
                times_ns = since_ns, until_ns
                self._spans.add("tell", step_trace_id(*step), times_ns, known, parent_id=step_span_id(*step))
