"""Step 2 of the way of a reading: which of the decoders' answers go out to devices.

A decoder may want to answer each message of a device that it does not understand yet. After a restart that can be all
devices at once. So answers are limited, for each topic and in all.
"""

from __future__ import annotations

from edge.wire.decoder import Answer

__all__ = ["EVERY_S", "MOST", "AnswerLimit"]

EVERY_S = 10.0
"""One topic gets one answer in this many seconds."""

MOST = 200
"""All topics together get this many answers in ``EVERY_S``."""


class AnswerLimit:
    """Counts what goes out; ``now_s`` is monotonic.

    >>> limit, answer = AnswerLimit(), Answer("plant/demo/ask")
    >>> [limit.passes(answer, now_s) for now_s in (0.0, 9.9, 10.0)]
    [True, False, True]
    """

    def __init__(self) -> None:
        self._sent_s: dict[str, float] = {}  # topic -> when, of the last ``EVERY_S``; the oldest first

    def passes(self, answer: Answer, now_s: float) -> bool:
        """Whether to send it now; then it counts as sent."""
        while self._sent_s:
            topic = next(iter(self._sent_s))
            if now_s - self._sent_s[topic] < EVERY_S:
                break
            del self._sent_s[topic]
        if answer.topic in self._sent_s or len(self._sent_s) >= MOST:
            return False
        self._sent_s[answer.topic] = now_s
        return True
