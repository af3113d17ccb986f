"""Step 9 of the way of a reading, on Ray: what a shard shows goes to its live state actor."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from services.ingest.figures import ShardFigures
from services.ingest.learned.learned_parts import PAST_HOURS
from services.ingest.questions import Questions
from services.ingest.sinks.live_state_sink import PastRows
from services.messages import ShownAlert, ShownAlerts, ZoneForecast

__all__ = ["LiveStateLink"]

_log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 5.0
RETRY_S = 0.5
MAX_UNSENT = 2_000
"""Forecasts that may wait for a live state that is away; the newest of each zone waits, however many zones there are.
"""


@dataclass(slots=True)
class _Unsent:
    """What the live state has not been told yet."""

    forecasts: list[ZoneForecast] = field(default_factory=list)
    past: dict[tuple[str, str], PastRows] = field(default_factory=dict)  # by site and zone
    alerts: dict[str, ShownAlert] = field(default_factory=dict)  # by id
    stats: ShardFigures | None = None

    def __bool__(self) -> bool:
        return bool(self.forecasts or self.past or self.alerts or self.stats)


class LiveStateLink:
    """Sends to a shard's live state actor from a thread of its own; keeps what could not be sent: each zone's newest
    forecast, and the rest up to a bound.

    A live state that was restarted has lost everything: after an error, or when another live state answers, each zone's
    newest forecast is sent again, and the live state's answer names the zones whose past it lacks.
    """

    def __init__(self, component: str, actor: str, namespace: str) -> None:
        self._component, self._actor, self._namespace = component, actor, namespace
        self._questions: Questions | None = None
        self._live_state: Any = None
        self._live_state_identity = 0  # of the live state that has what was sent
        self._changed = threading.Condition()  # held while what follows is read or changed
        self._unsent = _Unsent()
        self._newest: dict[tuple[str, str], ZoneForecast] = {}
        self._newest_alerts = ShownAlerts()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="live-state-link", daemon=True)

    def start(self, questions: Questions) -> None:
        """Begin to send; ``questions`` gives the past that the live state asks for."""
        self._questions = questions
        self._thread.start()

    def publish(self, forecasts: Sequence[ZoneForecast]) -> None:
        """See ``services.ingest.sinks.live_state_sink``."""
        with self._changed:
            self._newest.update({(f["site"], f["zone"]): f for f in forecasts})
            self._unsent.forecasts = self._bounded([*self._unsent.forecasts, *forecasts])
            self._changed.notify()

    def put_past(self, site: str, zone: str, end_ms: list[int], values: dict[str, list[float | None]]) -> None:
        """See ``services.ingest.sinks.live_state_sink``."""
        with self._changed:
            self._unsent.past[site, zone] = (end_ms, values)
            self._changed.notify()

    def put_alerts(self, alerts: Sequence[ShownAlert]) -> None:
        """See ``services.ingest.sinks.live_state_sink``."""
        with self._changed:
            self._newest_alerts.take(alerts)
            self._unsent.alerts.update({alert["id"]: alert for alert in alerts})
            self._changed.notify()

    def put_stats(self, stats: ShardFigures) -> None:
        """See ``services.ingest.sinks.live_state_sink``."""
        with self._changed:
            self._unsent.stats = stats
            for left in stats.get("left", ()):
                newest = self._newest.get((left["site"], left["zone"]))
                if newest is not None and newest["origin_ms"] <= left["left_ms"]:
                    del self._newest[left["site"], left["zone"]]  # a live state that restarts is not told of it again
            self._changed.notify()

    def close(self) -> None:
        """Stop sending."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CALL_TIMEOUT_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._unsent)
                if self._closing:
                    return
                taken, self._unsent = self._unsent, _Unsent()
            try:
                self._send(taken)
            except Exception as error:  # whatever Ray raises while the live state is away
                _log.info("the live state does not answer: %s", error)
                self._live_state = None
                with self._changed:
                    self._put_back(taken)
                    self._changed.wait_for(lambda: self._closing, RETRY_S)

    def _put_back(self, taken: _Unsent) -> None:
        """What was not sent waits again, and with it all that a live state that was restarted has lost; figures come
        anew with each second.
        """
        unsent = self._unsent
        unsent.past = {**taken.past, **unsent.past}
        unsent.alerts = dict(self._newest_alerts)
        waiting = {id(f) for f in taken.forecasts} | {id(f) for f in unsent.forecasts}
        again = [f for f in self._newest.values() if id(f) not in waiting]
        unsent.forecasts = self._bounded(again + taken.forecasts + unsent.forecasts)

    def _bounded(self, forecasts: list[ZoneForecast]) -> list[ZoneForecast]:
        """At most ``MAX_UNSENT``, in their order, without the oldest; but of each zone always the newest."""
        newest = {id(forecast) for forecast in self._newest.values()}
        surplus = len(forecasts) - MAX_UNSENT
        return [f for index, f in enumerate(forecasts) if index >= surplus or id(f) in newest]

    def _send(self, taken: _Unsent) -> None:
        """Raises what Ray raises, and ``ConnectionResetError`` where another live state answers than before."""
        if self._live_state is None:
            live_state = ray.get_actor(self._actor, namespace=self._namespace)
            self._live_state_identity = ray.get(live_state.identity.remote(), timeout=CALL_TIMEOUT_S)
            self._live_state = live_state
        if taken.forecasts:
            asked = ray.get(self._live_state.publish.remote(taken.forecasts), timeout=CALL_TIMEOUT_S) or []
            for site, zone in map(tuple, asked):
                found = self._questions.past(site, zone, PAST_HOURS) if self._questions else None
                if found is not None:
                    taken.past[site, zone] = found
        calls = [self._live_state.put_past.remote(site, zone, *past) for (site, zone), past in taken.past.items()]
        if taken.alerts:
            calls.append(self._live_state.put_alerts.remote(list(taken.alerts.values())))
        if taken.stats is not None:
            calls.append(self._live_state.put_stats.remote(self._component, taken.stats))
        answers = ray.get(calls, timeout=CALL_TIMEOUT_S)
        if taken.stats is not None and answers[-1] != self._live_state_identity:
            raise ConnectionResetError("it was restarted since the last call")
