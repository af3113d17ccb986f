"""Step 5 of the way of a reading: publishes yesterday's setpoints as today's plan, as a grower's device would."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edge.mqtt.publish import PublishError
from edge.wire.plan import PlanMessage, encode_plan, plan_topic

__all__ = ["RepeatedPlans"]

AGAIN_S = 600.0
"""A plan that has not come back by then was lost on the way, and is published again."""


class RepeatedPlans:
    """``due`` asks the shards, ``publish`` sends a topic and a payload and may raise ``PublishError``.

    ``clock_s`` is monotonic. ``error`` says what fails now.
    """

    def __init__(
        self, due: Callable[[], Sequence[PlanMessage]], publish: Callable[[str, bytes], None],
        clock_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self._due, self._publish, self._clock_s = due, publish, clock_s
        self._published: dict[tuple[str, str], float] = {}
        self.error = ""

    def look(self) -> None:
        """Ask once, and publish what is new; what cannot be published is tried again at the next look."""
        now_s = self._clock_s()
        self._published = {zone: at_s for zone, at_s in self._published.items() if now_s - at_s < AGAIN_S}
        try:
            for plan in self._due():
                if (plan.site, plan.zone) in self._published:
                    continue
                self._publish(plan_topic(plan.site, plan.zone, "hothouse"), encode_plan(plan))
                self._published[plan.site, plan.zone] = now_s
            self.error = ""
        except PublishError as error:
            self.error = f"yesterday's plans cannot be published: {error}"
