"""Step 5 of the way of a reading: lets zones leave that have been silent for long.

Shards say which zones are silent; the event that retires one is published to the broker, as an operator's is, and takes
effect at its place in the log. It names the zone's newest row with a sample: if a sample came first, it has no effect.
So it may be published twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edge.mqtt.publish import PublishError
from edge.wire.events import Retirement, encode_change

if TYPE_CHECKING:  # the shard's module is heavy, and the command line imports this one
    from services.ingest.questions import SilentZone

__all__ = ["Retirements"]

_log = logging.getLogger(__name__)

AGAIN_S = 600.0
"""An event that has not taken effect after this long was lost on the way, and is published again."""


class Retirements:
    """``silent`` asks the shards, ``publish`` sends a topic and a payload and may raise ``PublishError``.

    ``clock_s`` is monotonic. ``error`` says what fails now.
    """

    def __init__(
        self, silent: Callable[[], Sequence[SilentZone]], publish: Callable[[str, bytes], None],
        clock_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self._silent, self._publish, self._clock_s = silent, publish, clock_s
        self._published: dict[tuple[str, str, int], float] = {}
        self.error = ""

    def look(self) -> None:
        """Ask once, and publish what is new; what cannot be published is tried again at the next call."""
        now_s = self._clock_s()
        self._published = {event: at_s for event, at_s in self._published.items() if now_s - at_s < AGAIN_S}
        try:
            for found in self._silent():
                event = (found["site"], found["zone"], found["until_ms"])
                if event in self._published:
                    continue
                topic = f"hothouse/v1/{found['site']}/{found['zone']}/hothouse/event"
                self._publish(topic, encode_change(Retirement(until_ms=found["until_ms"])))
                self._published[event] = now_s
                _log.info("%s/%s has sent nothing for long and leaves", found["site"], found["zone"])
            self.error = ""
        except PublishError as error:
            self.error = f"silent zones cannot leave: {error}"
