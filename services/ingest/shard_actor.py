"""Step 4 of the way of a reading, on Ray: the actor around a :class:`Shard`.

The actor holds no logic of its own. It runs the shard's rounds in a thread. What the shard needs of other actors comes
through ``services.ingest.links``, which find them by name and look them up again after an error, so that any part may
restart at any time.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray

from edge.log import LogError
from edge.wire.plan import PlanMessage
from services.config import Settings
from services.errors import HistoryError, SnapshotError
from services.ingest.figures import ShardFigures
from services.ingest.links.forecaster_link import ForecasterLink
from services.ingest.links.live_state_link import LiveStateLink
from services.ingest.questions import SilentZone
from services.ingest.shard import Executors, Outputs, Shard
from services.ingest.sinks.series_sink import series_writer
from services.ingest.snapshots.snapshot import FencedError
from services.installation import app_name_of, namespace_of
from services.log import open_settings_log
from services.messages import (
    F32,
    ChangeAsked,
    SiteRulesShown,
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

__all__ = ["ShardActor", "start_shard"]

_log = logging.getLogger(__name__)

POLL_S = 0.3
"""A shard lets samples that come one by one gather for this long, as a round costs much the same for one and a
hundred."""
FORECAST_POLL_S = 0.02
RETRY_S = 1.0
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
                settings, partitions, open_settings_log(settings), ForecasterLink(app_name_of(settings)).forecast,
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
