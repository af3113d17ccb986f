"""Steps 11 to 16 of the way of a reading: the running system on Ray, as the retrainer sees it."""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import ray

from models.durations import DAY_MS, MINUTE_MS
from models.families import FAMILIES
from models.spec import Place
from models.trees.tree_grower import least_days
from services.config import LearnSettings, Settings
from services.errors import TrainingError
from services.forecast_spec import forecast_spec, place_of
from services.ingest.figures import ShardFigures
from services.installation import namespace_of
from services.learn.experts import EXPERTS, LEAST_EXAMPLES, NETWORK, TREES, TUNED, Expert, learn_settings
from services.learn.loop.triggers import NewData
from services.learn.promotion.artefact_files import MODELS
from services.learn.promotion.comparison_actor import Comparison
from services.learn.promotion.comparison_process import ComparisonProcess
from services.learn.promotion.submitted_model import submitted_candidate
from services.learn.records import Candidate, LiveVerdict, TrainingRequest
from services.learn.training.job import Job
from services.learn.training.task import result_of, run_job, this_runtime
from services.messages import (
    DRIFTS,
    MODEL_POINTER_ACTOR,
    RETRAINER_ACTOR,
    LearningFigures,
    LiveEvent,
    ModelRow,
    live_state_actor,
    shard_actor,
)
from services.store.examples.shown_examples import ShownExamples
from services.store.history import History
from services.store.pointer import Pointer
from services.store.storage import address_of, storage_of

__all__ = ["RayCluster", "ShownModels"]

CALL_TIMEOUT_S = 5.0
FLUSH_TIMEOUT_S = 60.0
WARM_UP_DAYS = {"windows": 21, "examples": 10}
"""Rows before a comparison that warm the climatology up: its slowest rate forgets in as many days. Regressors take four
times as long, and both that are compared have the same."""
SETTLED = 0.05
"""History that grew by more than this share between two looks is still being imported: a first model waits."""


class ShownModels:
    """What the live state is shown of the models of all experts."""

    def __init__(self) -> None:
        self._models: dict[str, list[ModelRow]] = {}

    def models(self, expert: Expert, models: list[ModelRow]) -> list[ModelRow]:
        """All models, with these of one expert."""
        self._models = {**self._models, expert.name: models}
        return [row for name in EXPERTS for row in self._models.get(name, [])]


class RayCluster:
    """The running system as the retrainer of one expert's models sees it
    (:class:`services.learn.loop.retrainer.Cluster`).

    Each has one of its own: it remembers how long the history was when it last looked.
    """

    def __init__(self, settings: Settings, expert: Expert = NETWORK, shown: ShownModels | None = None) -> None:
        self._expert, self._shown = expert, shown or ShownModels()
        self.learn = learn_settings(settings.learn, expert)
        self._settings = settings.model_copy(update={"learn": self.learn})
        self._pointer = Pointer(storage_of(settings), expert.name)
        self._namespace = namespace_of(settings)
        self._spec = forecast_spec(settings)
        self._where = address_of(settings).remote
        self._history = History(storage_of(settings), self._spec.channels, settings.stream.step_s)
        self._examples = ShownExamples(storage_of(settings), self._spec)
        self._days = 0.0
        self._zones = 0  # that shards had when they were last seen
        self._comparison = ComparisonProcess()

    def history_span(self) -> tuple[int, int] | None:
        """The oldest and newest ``end_ms`` of the history; ``None`` without rows, or while an import is under way:
        shards are behind, or the history grew fast since the last look.
        """
        if self._behind():
            return None
        span = self._span_ms()
        if span is None:
            return None
        oldest, newest = span
        days = (newest - oldest) / DAY_MS
        settled = days <= self._days * (1 + SETTLED)
        self._days = days
        return (oldest, newest) if settled else None

    def _behind(self) -> bool:
        """Whether a shard has more of the log before it than it reads in a round; one that is being restarted has."""
        try:
            return any(stats["behind"] for stats in self._shards())
        except TrainingError:
            return True

    def _shards(self) -> list[ShardFigures]:
        """Every shard's figures; raises :class:`TrainingError` while one is away."""
        try:
            asked = [self._actor(shard_actor(index)).stats.remote() for index in range(self._settings.stream.shards)]
            return cast(list[ShardFigures], ray.get(asked, timeout=CALL_TIMEOUT_S))
        except (ray.exceptions.RayError, ValueError) as error:
            raise TrainingError("a shard does not answer: it is being restarted") from error

    def news(self, since_ms: int) -> NewData:
        """The newest drift after ``since_ms`` that is wide enough, how many zone rows were closed so far, and how many
        days of the history came since. Where no training here knew a row, as with a submitted model, that is all of it.
        """
        shards = self._shards()
        wide = self._settings.learn.retrain_on_drift
        drifts = [
            event
            for stats in shards
            for event in stats["events"]
            if event["kind"] in DRIFTS and event["at_ms"] > since_ms and (wide == "zone" or event["zone"] is None)
        ]
        newest = max(drifts, key=lambda event: event["at_ms"], default=None)
        words = f"{newest['kind']} at {newest['site']}: {newest['words']}" if newest and wide != "never" else ""
        oldest_ms, newest_ms = (self._span_ms() if self._settings.learn.retrain_days else None) or (0, 0)
        days = self._history.covered_ms(max(since_ms, oldest_ms), newest_ms) / DAY_MS if newest_ms else 0.0
        return NewData(drift=words, rows=sum(stats["zone_rows"] for stats in shards), days=days)

    def _span_ms(self) -> tuple[int, int] | None:
        return self._history.span_ms(time.time_ns() // 1_000_000)

    def history_days(self) -> float:
        """How many days there are rows of, of those that a training reads; 0 where :meth:`history_span` has none. For
        what is fine-tuned, the length of the part that shards have kept examples of; 0 while these are too few.
        """
        span = self.history_span()
        if span is None:
            return 0.0
        oldest, newest = span
        if self._expert is TUNED:
            count, oldest = self._examples.extent()
            if count * (1 - self.learn.held_back) < LEAST_EXAMPLES:
                return 0.0
            return (newest - oldest) / DAY_MS
        window_ms = max(self._window_ms(), int(self.learn.min_days * DAY_MS))
        return self._history.covered_ms(max(oldest, newest - window_ms), newest) / DAY_MS

    def least_days(self) -> float:
        """So many days of rows a training needs at least, whatever the settings say: trees the more, the fewer zones
        there are; 0 for others. Of zones that joined late it needs more than that, and says so when it is tried.
        """
        if self._expert is not TREES:
            return 0.0
        with suppress(TrainingError):  # a shard that is away has its zones all the same
            self._zones = sum(len(stats["zones"]) for stats in self._shards())
        return least_days(self._spec, self._zones) / (1 - self.learn.held_back)  # its twin does without these

    def _window_ms(self) -> int:
        """How far a training looks back: where the settings hold so much back that it would never find enough, so far
        that it does, and a day more, as the first row of a window begins within it.
        """
        return int(max(self.learn.window_days, self.least_days() + 1) * DAY_MS)

    def flush(self) -> dict[str, int]:
        """Have every shard write its rows; one that is being restarted is asked again until the time is over."""
        offsets: dict[str, int] = {}
        deadline_s = time.monotonic() + FLUSH_TIMEOUT_S
        for index in range(self._settings.stream.shards):
            while True:
                left_s = deadline_s - time.monotonic()
                try:
                    offsets |= ray.get(self._actor(shard_actor(index)).flush.remote(), timeout=max(left_s, 0.1))
                    break
                except (ray.exceptions.RayError, ValueError) as error:
                    if left_s <= 0.5:
                        message = f"{shard_actor(index)} did not write its rows within {FLUSH_TIMEOUT_S:g} s"
                        raise TrainingError(message) from error
                    time.sleep(0.5)
        return offsets

    def train(self, order: TrainingRequest, cancelled: threading.Event) -> Candidate:
        """Run the job in a process of its own, which ends with it: torch and Ray Data do not stay in memory here."""
        job = self._job(order)
        gpu = 1 if job.use_gpu and job.workers == 0 else 0
        running = run_job.options(num_gpus=gpu, runtime_env=this_runtime()).remote(job)
        return cast(Candidate, result_of(running, job.learn.timeout_s, cancelled, "the training"))

    def _job(self, order: TrainingRequest) -> Job:
        learn = self._settings.learn
        newest_ms = self.newest_ms()
        if not newest_ms:
            raise TrainingError("there is no history yet")
        after_ms = newest_ms - self._window_ms()
        use_gpu, workers = _devices(learn) if FAMILIES[learn.kind].by_ray else (False, 0)
        return Job(
            name=_name(order.started_ms), storage=str(self._settings.storage_folder.resolve()), where=self._where,
            spec=self._spec, learn=learn, kind=learn.kind, places=self._places(),
            files=tuple(self._history.files(after_ms, newest_ms)), after_ms=after_ms, to_ms=newest_ms,
            log_offsets=order.log_offsets, champion=order.champion, champion_folder=order.champion_folder,
            champion_to_ms=order.champion_to_ms, use_gpu=use_gpu, workers=workers, level=order.level,
            margin=learn.gate_margin, shadow=order.shadow, all_rows=order.all_rows,
        )  # fmt: skip

    def newest_ms(self) -> int:
        """The newest row in the history; 0 without any."""
        span = self._span_ms()
        return span[1] if span else 0

    def compare(
        self, mine: str, theirs: str, theirs_name: str, from_ms: int, level: float, *, worse: bool
    ) -> LiveVerdict:
        """Have the two compared, in a process of its own that is started when it is needed."""
        newest_ms = self.newest_ms()
        after_ms = from_ms - WARM_UP_DAYS[self._expert.takes] * DAY_MS
        asked = Comparison(
            spec=self._spec, places=self._places(), files=tuple(self._history.files(after_ms, newest_ms)),
            after_ms=after_ms, from_ms=from_ms, to_ms=newest_ms, mine=mine, theirs=theirs, theirs_name=theirs_name,
            level=level, margin=self._settings.learn.gate_margin, worse=worse,
            where=self._where,
        )  # fmt: skip
        return cast(LiveVerdict, self._comparison.ask("compare", asked))

    def rest(self) -> None:
        """End the process that compares."""
        self._comparison.end()

    def longest_horizon_ms(self) -> int:
        """The longest of the schema's horizons, or the reach of the expert."""
        return min(max(self._spec.horizons_min), self._expert.reach_min or 2**31) * MINUTE_MS

    def new_copy(self) -> str:
        """Where in the storage a copy of a submitted artefact is to be; another each time."""
        name = f"submitted-{_name(time.time_ns() // 1_000_000)}"
        return str(self._settings.storage_folder.resolve() / MODELS / name)

    def adopt(self, folder: str, copy: str) -> Candidate:
        """Copy an artefact to the storage, and see whether it can serve there; see :func:`submitted_candidate`.

        Raises :class:`TrainingError`, also where there is no history yet.
        """
        if self._expert is TUNED:
            raise TrainingError("what is fine-tuned to these sites is trained here, and not taken from elsewhere")
        newest_ms = self.newest_ms()
        if not newest_ms:
            raise TrainingError("there is no history yet that it could be compared on")
        return submitted_candidate(
            folder, Path(copy), self._where, self._expert, newest_ms,
            lambda name: cast(dict[str, Any], self._comparison.ask("examine", name, self._spec, self._where)),
        )  # fmt: skip

    def serving(self) -> str:
        """The version that the model pointer names now; for an expert that answers in the shards, a file."""
        if self._expert is NETWORK:
            return str(ray.get(self._actor(MODEL_POINTER_ACTOR).get.remote(), timeout=CALL_TIMEOUT_S)["version"])
        return self._pointer.read().version

    def serve(self, version: str, folder: str) -> None:
        """Have the replicas, or the shards, load and serve a version."""
        if self._expert is NETWORK:
            ray.get(self._actor(MODEL_POINTER_ACTOR).set.remote(version, folder), timeout=CALL_TIMEOUT_S)
        else:
            self._pointer.move(version, folder)

    def expect_network(self) -> None:
        """Have the replicas import what a network needs."""
        if self._expert is NETWORK:
            ray.get(self._actor(MODEL_POINTER_ACTOR).expect_network.remote(), timeout=CALL_TIMEOUT_S)

    def event(self, event: LiveEvent) -> None:
        """Show an event on the live state."""
        ray.get(self._actor(live_state_actor()).put_event.remote(event), timeout=CALL_TIMEOUT_S)

    def show(self, models: list[ModelRow], status: LearningFigures) -> None:
        """Show the models and the status on the live state."""
        live_state, all_models = self._actor(live_state_actor()), self._shown.models(self._expert, models)
        component = RETRAINER_ACTOR if self._expert is NETWORK else f"{RETRAINER_ACTOR}-{self._expert.name}"
        calls = [live_state.set_models.remote(all_models), live_state.put_stats.remote(component, status)]
        ray.get(calls, timeout=CALL_TIMEOUT_S)

    def _actor(self, name: str) -> Any:
        return ray.get_actor(name, namespace=self._namespace)

    def _places(self) -> dict[str, Place]:
        return {site: place_of(self._settings, site) for site in self._history.sites()}


def _name(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def _devices(learn: LearnSettings) -> tuple[bool, int]:
    """Whether a training by Ray uses GPUs, and its workers; 0 trains in the job's own process."""
    gpus = int(ray.available_resources().get("GPU", 0))
    use_gpu = learn.use_gpu == "yes" or (learn.use_gpu == "auto" and gpus > 0)
    if learn.workers >= 0:
        return use_gpu, learn.workers
    places = gpus if use_gpu else _nodes()
    return use_gpu, places if places > 1 else 0  # a group of one costs the start of six processes and gains nothing


def _nodes() -> int:
    return sum(bool(node["Alive"]) and node["Resources"].get("CPU", 0) > 0 for node in ray.nodes())
