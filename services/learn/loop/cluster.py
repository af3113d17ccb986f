"""Steps 11-16 of the way of a reading: the running system on Ray, as the retrainer sees it."""

from __future__ import annotations

import secrets
import shutil
import stat
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import ray

from models.families import FAMILIES
from models.spec import Place
from services.config import Settings
from services.errors import NO_ROOM, HothouseError, ModelFilesError, TrainingError
from services.forecast_spec import forecast_spec, place_of
from services.ingest.figures import ShardFigures
from services.installation import namespace_of
from services.learn.experts import EXPERTS, LEAST_EXAMPLES, NETWORK, TUNED, Expert, expert_for, learn_settings
from services.learn.loop.triggers import NewData
from services.learn.promotion.comparison_actor import Comparison, ComparisonActor
from services.learn.records import Candidate, LiveVerdict, TrainingRequest
from services.learn.training.job import Job
from services.learn.training.task import run_job
from services.messages import (
    DRIFTS,
    MODEL_POINTER_ACTOR,
    RETRAINER_ACTOR,
    LearningFigures,
    LiveEvent,
    ModelRow,
    TrainedOn,
    live_state_actor,
    shard_actor,
)
from services.store.examples.shown_examples import ShownExamples
from services.store.history import History
from services.store.pointer import Pointer
from services.store.storage import address_of, forget_folder, keep_folder, storage_of

__all__ = ["RayCluster", "ShownModels", "result_of", "this_runtime"]

CALL_TIMEOUT_S = 5.0
FLUSH_TIMEOUT_S = 60.0
COMPARE_TIMEOUT_S = 300.0
WARM_UP_DAYS = {"windows": 21, "examples": 10}
"""Rows before a comparison that warm the climatology up: its slowest rate forgets in as many days. Regressors take four
times as long, and both that are compared have the same."""
MOST_BYTES = 500_000_000
ARTEFACT_FILES = ("manifest.json", "weights.safetensors", "golden.safetensors")
SETTLED = 0.05
"""History that grew by more than this share between two looks is still being imported: a first model waits."""
DAY_MS = 86_400_000


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
        self._comparing = threading.Lock()
        self._comparer: Any = None

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
        days = (newest_ms - max(since_ms, oldest_ms)) / DAY_MS if newest_ms else 0.0
        return NewData(drift=words, rows=sum(stats["zone_rows"] for stats in shards), days=days)

    def _span_ms(self) -> tuple[int, int] | None:
        return self._history.span_ms(time.time_ns() // 1_000_000)

    def history_days(self) -> float:
        """Length of the history in days; 0 where :meth:`history_span` has none. For what is fine-tuned, of the part
        that shards have kept examples of; 0 while these are too few.
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

    def newest_ms(self) -> int:
        """The newest row in the history; 0 without any."""
        span = self._span_ms()
        return span[1] if span else 0

    def compare(
        self, mine: str, theirs: str, theirs_name: str, from_ms: int, level: float, *, worse: bool
    ) -> LiveVerdict:
        """Ask the :class:`ComparisonActor`, in a process of its own that is started when it is needed."""
        newest_ms = self.newest_ms()
        after_ms = from_ms - WARM_UP_DAYS[self._expert.takes] * DAY_MS
        asked = Comparison(
            spec=self._spec, places=self._places(), files=tuple(self._history.files(after_ms, newest_ms)),
            after_ms=after_ms, from_ms=from_ms, to_ms=newest_ms, mine=mine, theirs=theirs, theirs_name=theirs_name,
            level=level, margin=self._settings.learn.gate_margin, worse=worse,
            where=self._where,
        )  # fmt: skip
        return cast(LiveVerdict, self._ask_comparer("compare", asked))

    def rest(self) -> None:
        """End the process that compares."""
        with self._comparing:
            self._end_comparer()

    def longest_horizon_ms(self) -> int:
        """The longest of the schema's horizons, or the reach of the expert."""
        return min(max(self._spec.horizons_min), self._expert.reach_min or 2**31) * 60_000

    def adopt(self, folder: str) -> Candidate:
        """Copy an artefact to the storage, and see whether it can serve there.

        It counts as trained on every row that there is: what its manifest says cannot be checked. Raises
        :class:`TrainingError` where there is no artefact, no history yet, or no room.
        """
        if self._expert is TUNED:
            raise TrainingError("what is fine-tuned to these sites is trained here, and not taken from elsewhere")
        newest_ms = self.newest_ms()
        if not newest_ms:
            raise TrainingError("there is no history yet that it could be compared on")
        copied = self._settings.storage_folder.resolve() / "models" / f"submitted-{_name(time.time_ns() // 1_000_000)}"
        try:
            try:
                _copy_artefact(Path(folder), copied)
                keep_folder(self._where, copied)  # it may be examined on another machine
            except OSError as error:
                raise TrainingError(f"the model cannot be copied to the storage: {error}") from error
            manifest: dict[str, Any] = self._ask_comparer("examine", str(copied), self._spec, self._where)
        except BaseException:
            shutil.rmtree(copied, ignore_errors=True)
            with suppress(OSError):
                forget_folder(self._where, copied)
            raise
        kind = str(manifest.get("kind", NETWORK.name))
        if expert_for(kind) is not self._expert:
            shutil.rmtree(copied, ignore_errors=True)
            forget_folder(self._where, copied)
            raise TrainingError(f"{folder} holds a model of kind {kind}, which is none for the {self._expert.name}")
        trained_on = TrainedOn(to_ms=newest_ms, to=datetime.fromtimestamp(newest_ms / 1000, UTC).isoformat())
        return Candidate(
            folder=str(copied), kind=kind, weights_sha256=manifest["weights_sha256"], trained_on=trained_on,
            log_offsets={}, params={"submitted": folder, "said_trained_on": str(manifest.get("trained_on"))[:400]},
            held_back_mae={}, curves={}, recipe={}, evidence={}, shadow=True, passed=False,
            reason="Submitted; live rows judge it.", forced=False,
        )  # fmt: skip

    def _ask_comparer(self, method: str, *arguments: Any) -> Any:
        """Raises our own errors that it raises, and :class:`TrainingError` where the process was lost or is late."""
        with self._comparing:
            if self._comparer is None:
                self._comparer = ray.remote(num_cpus=0)(ComparisonActor).remote()
            try:
                return ray.get(getattr(self._comparer, method).remote(*arguments), timeout=COMPARE_TIMEOUT_S)
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, HothouseError):
                    raise error.cause from error
                raise TrainingError(f"the comparison failed: {type(error.cause).__name__}: {error.cause}") from error
            except ray.exceptions.RayError as error:
                self._end_comparer()
                first = (str(error).splitlines() or ["no answer"])[0]
                raise TrainingError(f"the process that compares was lost: {first}") from error

    def _end_comparer(self) -> None:
        if self._comparer is not None:
            ray.kill(self._comparer)
            self._comparer = None

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

    def _job(self, order: TrainingRequest) -> Job:
        learn = self._settings.learn
        newest = self.newest_ms()
        if not newest:
            raise TrainingError("there is no history yet")
        after_ms = newest - int(learn.window_days * DAY_MS)
        by_ray = FAMILIES[learn.kind].by_ray
        gpus = int(ray.available_resources().get("GPU", 0)) if by_ray else 0
        use_gpu = by_ray and (learn.use_gpu == "yes" or (learn.use_gpu == "auto" and gpus > 0))
        return Job(
            name=_name(order.started_ms),
            storage=str(self._settings.storage_folder.resolve()),
            spec=self._spec,
            learn=learn,
            places=self._places(),
            files=tuple(self._history.files(after_ms, newest)),
            after_ms=after_ms,
            to_ms=newest,
            log_offsets=order.log_offsets,
            champion=order.champion,
            champion_folder=order.champion_folder,
            champion_to_ms=order.champion_to_ms,
            use_gpu=use_gpu,
            workers=(_worth_it(gpus if use_gpu else _nodes()) if learn.workers < 0 else learn.workers) if by_ray else 0,
            level=order.level,
            margin=learn.gate_margin,
            shadow=order.shadow,
            all_rows=order.all_rows,
            kind=learn.kind,
            where=self._where,
        )

    def _actor(self, name: str) -> Any:
        return ray.get_actor(name, namespace=self._namespace)

    def _places(self) -> dict[str, Place]:
        return {site: place_of(self._settings, site) for site in self._history.sites()}


def _copy_artefact(folder: Path, to: Path) -> None:
    """Copy the files that an artefact has; plain ones of a sane size only.

    Raises :class:`TrainingError` if there is none, :class:`ModelFilesError` if it is torn, ``OSError`` without room.
    """
    if not (folder / ARTEFACT_FILES[0]).is_file():
        raise TrainingError(f"{folder} holds no model: it has no {ARTEFACT_FILES[0]}")
    to.mkdir(parents=True)
    for name in ARTEFACT_FILES:
        try:
            found = (folder / name).lstat()
            if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
                raise ModelFilesError(f"{name} is not a plain file of at most {MOST_BYTES // 1_000_000} MB")
            shutil.copyfile(folder / name, to / name, follow_symlinks=False)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:  # that says nothing of the model
                raise
            raise ModelFilesError(f"{name} cannot be read: {error}") from error


def this_runtime() -> dict[str, Any]:
    """Ray Train looks its own runtime up by address: with a second one on the machine it needs the address."""
    return {"env_vars": {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}}


def _name(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def _nodes() -> int:
    return sum(bool(node["Alive"]) and node["Resources"].get("CPU", 0) > 0 for node in ray.nodes())


def _worth_it(places: int) -> int:
    """Workers for this many GPUs or nodes: a group of one costs the start of six processes and gains nothing."""
    return places if places > 1 else 0


def result_of(running: Any, timeout_s: float, cancelled: threading.Event, what: str) -> Any:
    """Wait for a task's result; raises :class:`TrainingError`, or our own error that the task raised.

    The task is ended when it takes longer than ``timeout_s``, or soon after ``cancelled`` is set.
    """
    deadline_s = time.monotonic() + timeout_s
    while not ray.wait([running], timeout=0.25)[0]:
        if cancelled.is_set() or time.monotonic() > deadline_s:
            ray.cancel(running, force=True)
            late = f"{what} took longer than {timeout_s:g} s and was ended"
            raise TrainingError("the system stops" if cancelled.is_set() else late)
    try:
        return ray.get(running)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, HothouseError):
            raise error.cause from error
        raise TrainingError(f"{what} failed: {type(error.cause).__name__}: {error.cause}") from error
    except ray.exceptions.RayError as error:
        raise TrainingError(f"the process of {what} was lost: {str(error).splitlines()[0]}") from error
