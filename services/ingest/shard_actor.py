"""Step 4 of the way of a reading, on Ray: the actor around a :class:`Shard`, and its links to Serve and the live state.

The actor holds no logic of its own. It runs the shard's rounds in a thread; what the shard needs it finds by name
and looks up again after an error, so that any part may restart at any time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray import serve

from edge.log import LogError
from edge.wire.plan import PlanMessage
from services.config import Settings
from services.errors import HistoryError, SnapshotError
from services.ingest.figures import ShardFigures
from services.ingest.learned.learned_parts import PAST_HOURS
from services.ingest.questions import Questions, SilentZone
from services.ingest.shard import Executors, Outputs, Shard
from services.ingest.sinks.series_sink import series_writer
from services.ingest.snapshots.snapshot import FencedError
from services.installation import app_name_of, namespace_of
from services.log import open_settings_log
from services.messages import (
    F32,
    FORECASTER_DEPLOYMENT,
    ChangeAsked,
    ForecastReply,
    ForecastRequest,
    ShownAlert,
    ShownAlerts,
    SiteRulesShown,
    ZoneForecast,
    ZoneMixture,
    ZoneOutlook,
    ZonePlan,
    ZoneQuality,
    ZoneWhatIf,
    live_state_actor,
    shard_actor,
)  # fmt: skip
from services.observe.logs import log_to_file
from services.runtime.restarted_actor import restarted_until_it_can_begin
from services.tracing import open_spans

__all__ = ["LiveStateLink", "ShardActor", "start_shard"]

_log = logging.getLogger(__name__)

POLL_S = 0.3
"""A shard lets samples that come one by one gather for this long, as a round costs much the same for one and a
hundred."""
FORECAST_POLL_S = 0.02
RETRY_S = 1.0
FORECAST_TIMEOUT_S = 5.0
SERVE_START_S = 120.0
FIND_EVERY_S = 0.25
BOARD_TIMEOUT_S = 5.0
BOARD_RETRY_S = 0.5
MAX_UNSENT = 2_000
SHARD_CPUS = 0.1
THREADS = QUESTION_THREADS = 8
QUESTIONS = "questions"

_question = ray.method(concurrency_group=QUESTIONS)
"""Questions, which never wait for a disk, have threads of their own. ``stats`` and ``flush`` may wait, and callers that
give up and ask again may leave a call in every thread."""


class ShardActor:
    """A named actor, see :func:`start_shard`. All calls are idempotent."""

    def __init__(self, settings: Settings, index: int, partitions: Sequence[int]) -> None:
        log_to_file(settings.logs_dir, shard_actor(index), settings.logs.format, settings.logs.level)
        self._spans = open_spans(settings, shard_actor(index))
        with restarted_until_it_can_begin():
            self._link = LiveStateLink(
                shard_actor(index), live_state_actor(settings.live_state_of(index)), namespace_of(settings)
            )
            self._series = series_writer(settings, partitions)
            self._shard = Shard(
                settings, partitions, open_settings_log(settings), _ForecasterLink(app_name_of(settings)).forecast,
                Outputs(self._series, self._link, spans=self._spans),
                Executors(*(ThreadPoolExecutor(1, name) for name in Executors._fields)),
                time.monotonic,
            )  # fmt: skip
        self._link.start(self._shard.questions)
        self._stop = threading.Event()
        self._ended = ""
        self._thread = threading.Thread(target=self._run, name="shard", daemon=True)
        self._thread.start()

    @_question
    def ping(self) -> str:
        """``ok`` while the rounds go on; raises ``RuntimeError`` with the reason once they have ended."""
        if self._ended:
            raise RuntimeError(self._ended)
        return "ok"

    def stats(self) -> ShardFigures:
        """See :meth:`Shard.stats`."""
        return self._shard.stats()

    def flush(self) -> dict[str, int]:
        """Make the history complete up to what was read; partition -> offset reached."""
        return {str(number): offset for number, offset in self._shard.flush().items()}

    @_question
    def outlook(self, site: str, zone: str) -> ZoneOutlook | None:
        """See :meth:`Questions.outlook`."""
        return self._shard.questions.outlook(site, zone)

    @_question
    def what_if(self, site: str, zone: str, changes: list[ChangeAsked]) -> ZoneWhatIf | None:
        """See :meth:`Questions.what_if`."""
        return self._shard.questions.what_if(site, zone, changes)

    @_question
    def baseline(self, site: str, zone: str, origin_ms: int, now: F32) -> F32 | None:
        """See :meth:`Questions.baseline`."""
        return self._shard.questions.baseline(site, zone, origin_ms, now)

    @_question
    def plan(self, site: str, zone: str) -> list[ZonePlan] | None:
        """See :meth:`Questions.plan`."""
        return self._shard.questions.plan(site, zone)

    @_question
    def next_issue(self, site: str, zone: str, source: str, now_ms: int) -> int | None:
        """See :meth:`Questions.next_issue`."""
        return self._shard.questions.next_issue(site, zone, source, now_ms)

    @_question
    def repeated_plans(self) -> list[PlanMessage]:
        """See :meth:`Questions.repeated_plans`."""
        return self._shard.questions.repeated_plans()

    @_question
    def mixtures(self) -> list[ZoneMixture]:
        """See :meth:`Questions.mixtures`."""
        return self._shard.questions.mixtures()

    @_question
    def alert_rules(self, site: str) -> SiteRulesShown | None:
        """See :meth:`Questions.alert_rules`."""
        return self._shard.questions.alert_rules(site)

    @_question
    def alert_rules_of_all(self) -> list[SiteRulesShown]:
        """See :meth:`Questions.alert_rules_of_all`."""
        return self._shard.questions.alert_rules_of_all()

    @_question
    def quality(self, asked: tuple[str, str] | None) -> list[ZoneQuality]:
        """See :meth:`Questions.quality`."""
        return self._shard.questions.quality(asked)

    @_question
    def silent(self) -> list[SilentZone]:
        """See :meth:`Questions.silent`."""
        return self._shard.questions.silent()

    @_question
    def refresh(self) -> None:
        """Compute the last step's forecasts again at once, as after a swap."""
        self._shard.refresh()

    def stop(self) -> None:
        """End the rounds, save, and let go of files and connections."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join(10)
        if not self._ended:
            self._shard.close()
        self._link.close()
        self._series.close(2.0)
        if self._spans is not None:
            self._spans.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._shard.step()
                if not self._shard.is_behind:
                    self._stop.wait(FORECAST_POLL_S if self._shard.awaits_forecasts else POLL_S)
            except FencedError as error:
                _log.error("the shard ends: %s", error)
                self._ended = str(error)
                return
            except LogError as error:
                self._shard.failed("log", error)
                self._stop.wait(RETRY_S)
            except (HistoryError, SnapshotError, OSError) as error:
                self._shard.failed("storage", error)
                self._stop.wait(RETRY_S)
            except BaseException:
                # The state in memory may be half changed. The snapshot is whole: Ray restarts this process from it.
                _log.exception("the shard ends with an error and is restarted")
                os._exit(1)


def start_shard(settings: Settings, index: int, partitions: Sequence[int], kind: type[ShardActor] = ShardActor) -> Any:
    """Start the shard of that index; returns its handle. The actor ends with the handle."""
    # Ray takes groups here alone, not with the options of one actor, and writes into the dictionary.
    actor: Any = ray.remote(
        num_cpus=SHARD_CPUS, max_restarts=-1, max_task_retries=0, max_concurrency=THREADS,
        concurrency_groups={QUESTIONS: QUESTION_THREADS},
    )(kind)  # fmt: skip
    return actor.options(name=shard_actor(index), namespace=namespace_of(settings)).remote(settings, index, partitions)


class _ForecasterLink:
    """The Serve handle of the Forecaster; found anew after an error, where Serve's controller answers.

    With Serve's throughput settings a handle's router lives in the event loop of its caller, so this link has one.
    """

    def __init__(self, application: str) -> None:
        self._application = application
        self._handle: Any = None
        self._doubted = False
        self._first_until_s = time.monotonic() + SERVE_START_S
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="forecaster-link", daemon=True).start()

    def forecast(self, request: ForecastRequest) -> ForecastReply:
        """Ask and wait; raises what Serve raises, or ``TimeoutError``."""
        return asyncio.run_coroutine_threadsafe(self._ask(request), self._loop).result()

    async def _ask(self, request: ForecastRequest) -> ForecastReply:
        if self._handle is None or self._doubted:
            await self._find()
        try:
            async with asyncio.timeout(FORECAST_TIMEOUT_S):
                reply: ForecastReply = await self._handle.forecast.remote(request)
        except BaseException:
            self._doubted = True
            raise
        self._first_until_s, self._doubted = 0.0, False
        return reply

    async def _find(self) -> None:
        """Find the handle. A first request waits for the application, which starts while shards read what the log has.

        While the head of a cluster is away there is no controller to ask: a handle that was found before goes on.
        """
        while time.monotonic() < self._first_until_s and not await asyncio.to_thread(self._runs):
            await asyncio.sleep(FIND_EVERY_S)
        try:
            async with asyncio.timeout(FORECAST_TIMEOUT_S):
                self._handle = await asyncio.to_thread(
                    serve.get_deployment_handle, FORECASTER_DEPLOYMENT, self._application
                )
        except TimeoutError:
            if self._handle is None:
                raise

    def _runs(self) -> bool:
        application = serve.status().applications.get(self._application)
        forecaster = None if application is None else application.deployments.get(FORECASTER_DEPLOYMENT)
        return forecaster is not None and forecaster.replica_states.get("RUNNING", 0) > 0


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
        self._changed = threading.Condition()
        self._forecasts: list[ZoneForecast] = []
        self._newest: dict[tuple[str, str], ZoneForecast] = {}
        self._past: dict[tuple[str, str], tuple[list[int], dict[str, list[float | None]]]] = {}
        self._alerts: dict[str, ShownAlert] = {}  # not sent yet
        self._newest_alerts = ShownAlerts()
        self._stats: ShardFigures | None = None
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
            self._forecasts = self._bounded([*self._forecasts, *forecasts])
            self._changed.notify()

    def put_past(self, site: str, zone: str, end_ms: list[int], values: dict[str, list[float | None]]) -> None:
        """See ``services.ingest.sinks.live_state_sink``."""
        with self._changed:
            self._past[site, zone] = (end_ms, values)
            self._changed.notify()

    def put_alerts(self, alerts: Sequence[ShownAlert]) -> None:
        """See ``services.ingest.sinks.live_state_sink``."""
        with self._changed:
            self._newest_alerts.take(alerts)
            self._alerts.update({alert["id"]: alert for alert in alerts})
            self._changed.notify()

    def put_stats(self, stats: ShardFigures) -> None:
        """See ``services.ingest.sinks.live_state_sink``."""
        with self._changed:
            self._stats = stats
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
        self._thread.join(BOARD_TIMEOUT_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closing or self._forecasts or self._past or self._alerts or self._stats
                )
                if self._closing:
                    return
                forecasts, past, stats = self._forecasts, self._past, self._stats
                alerts = list(self._alerts.values())
                self._forecasts, self._past, self._alerts, self._stats = [], {}, {}, None
            try:
                self._send(forecasts, past, alerts, stats)
            except Exception as error:  # whatever Ray raises while the live state is away
                _log.info("the live state does not answer: %s", error)
                self._live_state = None
                with self._changed:
                    self._past = {**past, **self._past}
                    self._alerts = dict(self._newest_alerts)
                    waiting = {id(f) for f in forecasts} | {id(f) for f in self._forecasts}
                    again = [f for f in self._newest.values() if id(f) not in waiting]
                    self._forecasts = self._bounded(again + forecasts + self._forecasts)
                    self._changed.wait_for(lambda: self._closing, BOARD_RETRY_S)

    def _bounded(self, forecasts: list[ZoneForecast]) -> list[ZoneForecast]:
        """At most ``MAX_UNSENT``, in their order, without the oldest; but of each zone always the newest."""
        newest = {id(forecast) for forecast in self._newest.values()}
        surplus = len(forecasts) - MAX_UNSENT
        return [f for index, f in enumerate(forecasts) if index >= surplus or id(f) in newest]

    def _send(
        self, forecasts: list[ZoneForecast], past: dict[tuple[str, str], Any], alerts: list[ShownAlert],
        stats: ShardFigures | None,
    ) -> None:  # fmt: skip
        if self._live_state is None:
            live_state = ray.get_actor(self._actor, namespace=self._namespace)
            self._live_state_identity = ray.get(live_state.identity.remote(), timeout=BOARD_TIMEOUT_S)
            self._live_state = live_state
        if forecasts:
            asked = ray.get(self._live_state.publish.remote(forecasts), timeout=BOARD_TIMEOUT_S) or []
            for site, zone in map(tuple, asked):
                found = self._questions.past(site, zone, PAST_HOURS) if self._questions else None
                if found is not None:
                    past[site, zone] = found
        calls = [self._live_state.put_past.remote(site, zone, *content) for (site, zone), content in past.items()]
        if alerts:
            calls.append(self._live_state.put_alerts.remote(alerts))
        if stats is not None:
            calls.append(self._live_state.put_stats.remote(self._component, stats))
        answers = ray.get(calls, timeout=BOARD_TIMEOUT_S)
        if stats is not None and answers[-1] != self._live_state_identity:
            raise ConnectionResetError("it was restarted since the last call")
