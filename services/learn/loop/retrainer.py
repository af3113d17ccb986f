"""Steps 11 to 17 of the way of a reading: runs retrainings, and keeps the loop going.

Three threads. One waits for a trigger, has a challenger trained and judged on held-back rows, and registers it. One
has it compared with the champion on live rows, promotes it when it may, and takes a champion back that turns out worse
(:mod:`services.learn.promotion.shadow`). One follows the ``champion`` alias wherever it was moved from, and hands it to
the model pointer (:mod:`services.learn.promotion.champion`). So a model reaches the replicas on one way only, and
MLflow's record is the only state: a retrainer that is started again goes on from it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol, cast

from edge.timing import Backoff, Periodic
from services.config import LearnSettings
from services.errors import (
    HothouseError,
    ModelFilesError,
    RegistryError,
    RegistryRefusedError,
    TooLittleHistoryError,
    TrainingError,
    words_of,
)
from services.learn.learning_status import LearningStatus, StatusSink
from services.learn.loop.due_training import DueTraining, StreamHistory
from services.learn.loop.triggers import Trigger
from services.learn.promotion.champion import ChampionAlias, ServingPointer
from services.learn.promotion.due_promotion import DuePromotion
from services.learn.promotion.live_comparison import LiveComparison, ModelComparer
from services.learn.promotion.pruning import Pruner
from services.learn.promotion.registry import Registry
from services.learn.promotion.shadow import Shadows
from services.learn.promotion.unregistered import Unregistered
from services.learn.records import Candidate, TrainingRequest, refused_candidate
from services.messages import (
    ONLINE_VERSION,
    EventDetails,
    LearningFigures,
    ModelRow,
    ModelSubmitted,
    Moved,
    TrainedOn,
    TrainingAccepted,
    TrainingRun,
)

__all__ = ["Cluster", "Retrainer"]

POLL_S = 0.2
WATCH_S = 2.0
"""How often MLflow is asked who is champion: of three experts, each half second, it kept a fifth of a core busy."""
PROVE_S = 1.0
REGISTER_S, LONGEST_REGISTER_S = 2.0, 60.0
"""How soon an MLflow that is away is asked again to take or promote what was trained; longer and longer pauses."""
PRUNE_S = 60.0
SHOW_S = 2.0
"""The live state keeps nothing over its restart, so it is told again this often."""

_log = logging.getLogger(__name__)


class Cluster(ModelComparer, ServingPointer, StatusSink, StreamHistory, Protocol):
    """What the retrainer needs of the running system; every method may raise, and none may hang."""

    def flush(self) -> dict[str, int]:
        """Have every shard write its rows to the history; the log offset that each partition's rows reach."""

    def train(self, order: TrainingRequest, cancelled: threading.Event) -> Candidate:
        """Train, evaluate and judge a challenger; its artefact is whole and verified when this returns.

        Raises :class:`TrainingError` when there is no usable challenger, or soon after ``cancelled`` is set.
        """

    def new_copy(self) -> str:
        """Where a copy of an artefact that was made elsewhere is to be; another each time."""

    def adopt(self, folder: str, copy: str) -> Candidate:
        """A copy of an artefact that was made elsewhere, not judged yet.

        Raises :class:`ModelFilesError` where it cannot serve.
        """


class Retrainer:
    """The slow loop. Methods may be called from any thread; failures become events and status, never a dead thread.

    ``wall_ms`` stamps what people see; intervals are measured with ``monotonic_s``.
    """

    def __init__(
        self, settings: LearnSettings, registry: Registry, cluster: Cluster,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._registry = registry
        self._cluster = cluster
        self._wall_ms = wall_ms
        self._monotonic_s = monotonic_s
        self._learning_status = LearningStatus(
            cluster, registry.list, wall_ms, lambda: self._due_training.next_training()
        )
        self._champion = ChampionAlias(registry, cluster, self._learning_status)
        self._comparison = LiveComparison(settings, registry, cluster, monotonic_s)
        self._shadows = Shadows(registry, self._comparison, self._champion, self._learning_status, settings.shadows)
        self._stopping = threading.Event()
        self._shows = Periodic(SHOW_S)
        self._pruner = Pruner(registry, settings.keep_models, cluster.serving, wall_ms)
        self._prunes = Periodic(PRUNE_S, monotonic_s())
        self._unregistered = Unregistered(registry, monotonic_s)
        self._due_promotion = DuePromotion(registry, self._champion, self._learning_status)
        self._due_training = DueTraining(
            settings, registry, cluster, self._comparison, self._learning_status, wall_ms, monotonic_s
        )
        self._triggers = self._due_training.triggers
        work: dict[str, tuple[float, Callable[[], None]]] = {
            "schedule": (POLL_S, self.retrain_if_due),
            "watch": (WATCH_S, self._follow),
            "prove": (PROVE_S, self._shadows.prove),
        }
        self._threads = [
            threading.Thread(target=self._every, args=(seconds, turn, name), name=name, daemon=True)
            for name, (seconds, turn) in work.items()
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End a running training and the threads; idempotent."""
        self._stopping.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout_s)

    def trigger(self, reason: str) -> TrainingAccepted:
        """Ask for a retraining now; raises :class:`TrainingError` when one runs or is asked for already."""
        refusal = self._triggers.ask(reason)
        if refusal is not None:
            raise TrainingError(refusal)
        return TrainingAccepted(accepted=True, reason=reason)

    def promote(self, version: str) -> Moved:
        """Make a version champion and tell the model pointer.

        Raises :class:`PromotionRefusedError` or :class:`RegistryError`.
        """
        return Moved(version=version, before=self._champion.promote(version, "promoted by an operator"))

    def rollback(self, leave: str = "") -> Moved:
        """Go back from ``leave``, by default from whatever serves; raises as :meth:`promote` does."""
        version, before = self._champion.rollback(leave)
        return Moved(version=version, before=before)

    def submit(self, folder: str) -> ModelSubmitted:
        """Register an artefact that was made elsewhere; live rows judge it, whatever it says of itself.

        Raises :class:`ModelFilesError` where it cannot serve; the registry names the reason then, too. Where MLflow is
        away no copy of it stays: none is made, or :meth:`retrain_if_due` removes it later, also after a restart.
        """
        now_ms = self._wall_ms()
        champion = self._registry.champion()  # first: an MLflow that is away says so before anything is copied
        copy = self._cluster.new_copy()
        with self._unregistered.asking(copy):
            try:
                candidate = self._cluster.adopt(folder, copy)
            except ModelFilesError as error:
                refused = refused_candidate(f"{folder} cannot serve: {error.message}")
                version = self._registry.register(refused, now_ms)
                self._learning_status.tell("refused", version=version, reason=refused["reason"])
                raise
            newest_ms = int(candidate["trained_on"]["to_ms"])
            shadow = self._comparison.begin(champion, newest_ms, newest_ms)
            version = self._shadows.register(candidate, now_ms, champion, shadow)
        return ModelSubmitted(accepted=True, version=version, against=champion)

    def models(self) -> list[ModelRow]:
        """All models, newest first; raises :class:`RegistryError`."""
        return self._registry.list()

    def status(self) -> LearningFigures:
        """What runs, what ran, what comes, and how often; JSON-able."""
        return self._learning_status.status()

    def watch(self) -> None:
        """Follow the ``champion`` alias once."""
        self._champion.follow()

    def prove(self) -> None:
        """Have what stands in the registry compared on live rows once, and do what comes of it."""
        self._shadows.prove()

    def retrain_if_due(self) -> None:
        """Run one retraining to its end, if a trigger asks for one; otherwise remove files that are no longer needed.

        First it makes up for the promotion of an earlier retraining, if that was cut short.
        """
        now_s = self._monotonic_s()
        self._due_promotion.make_up(now_s)
        trigger = self._triggers.due(now_s, history_days=0)  # an operator's wish waits for nothing
        trigger = trigger or self._due_training.due(now_s)
        if trigger is not None:
            self._retrain(trigger)
        elif self._prunes.due(now_s):
            self._prune()

    def _prune(self) -> None:
        """Remove old files. A failure is shown in the status and tried again; it must not stop the schedule."""
        try:
            removed = self._pruner.turn()
            self._unregistered.tidy()
        except Exception as error:
            message = words_of(error)
            self._learning_status.errors["pruning"] = f"files of old models could not be removed: {message}"
            _log.warning("files of old models could not be removed", exc_info=True)
            return
        self._learning_status.errors.pop("pruning", None)
        for version in removed:
            _log.info("the files of %s were pruned", version)

    def _retrain(self, trigger: Trigger) -> None:
        learning_status, started_ms, started_s = self._learning_status, self._wall_ms(), self._monotonic_s()
        run = TrainingRun(kind=trigger.kind, reason=trigger.reason, started_ms=started_ms)
        self._triggers.started(started_s, trigger.kind)
        try:
            self._champion.expect_network()
            learning_status.running = run
            learning_status.show()
            candidate, champion = self._train(trigger, started_ms)
            self._triggers.trained(self._monotonic_s())
            run |= {"trained_ms": self._wall_ms(), "took_s": self._monotonic_s() - started_s}
            with self._unregistered.asking(candidate["folder"]):
                version = self._until_mlflow_answers(lambda: self._register(candidate, started_ms, champion))
            self._triggers.has_model = True
            run |= {"version": version, "verdict": candidate["reason"]}
            run |= cast(TrainingRun, candidate["trained_on"])  # every field of which a run has, too
            self._decide(version, candidate, champion, run)
            for name in ("training", "schedule"):  # what the schedule could not read has been read
                learning_status.errors.pop(name, None)
        except Exception as error:  # whatever went wrong, the champion stays, and a later try may be better
            self._due_promotion.look_again()
            if isinstance(error, TooLittleHistoryError) and trigger.kind != "operator":
                run |= {"result": "too early", "error": error.message}  # no fault: it waits for more
                for name in ("training", "schedule"):
                    learning_status.errors.pop(name, None)
            elif not self._stopping.is_set():
                self._fail(run, error)
        finally:
            learning_status.running = None
            result = run.get("result")
            # First: who sees that it ended may ask for the next one.
            self._triggers.ended(self._monotonic_s(), failed=result == "failed", too_little=result == "too early")
            learning_status.last_run = run | {
                "ended_ms": self._wall_ms(), "took_s": self._monotonic_s() - started_s
            }  # fmt: skip
            learning_status.show()

    def _train(self, trigger: Trigger, started_ms: int) -> tuple[Candidate, str]:
        """A challenger, and the champion that it was measured against."""
        offsets = self._cluster.flush()
        champion, models = self._registry.champion(), self._registry.list()
        known_of = next((row["trained_on"] for row in models if row["version"] == champion), TrainedOn())
        # Where no network ever served what was held back is enough, and the watch can take it back. What comes after
        # one that was taken out of service must not undo that at once.
        ever_served = champion != ONLINE_VERSION or any("previous" in row["aliases"] for row in models)
        shadow = bool(self._settings.shadow_hours) and ever_served and not self._settings.force_promote
        order = TrainingRequest(
            champion=champion, champion_folder=self._champion.folder(champion), log_offsets=offsets,
            started_ms=started_ms, level=self._comparison.level(models, champion), shadow=shadow,
            all_rows=shadow and trigger.kind == "drift",
            # Of a model that was made elsewhere the registry says more than its manifest, which cannot be checked.
            champion_to_ms=int(known_of.get("to_ms") or 0),
        )  # fmt: skip
        # Not before: what drifted is still new where shards or MLflow were away.
        self._due_training.drift_feed.training_began()
        candidate = self._cluster.train(order, self._stopping)
        candidate["params"] |= {"trigger": trigger.kind, "trigger_reason": trigger.reason}
        candidate["forced"] = self._settings.force_promote and not candidate["passed"]
        return candidate, champion

    def _register(self, candidate: Candidate, started_ms: int, champion: str) -> str:
        shadow = self._shadows.of(candidate, champion)
        return self._shadows.register(candidate, started_ms, champion, shadow)

    def _until_mlflow_answers(self, work: Callable[[], str]) -> str:
        """The result of ``work``, which is tried again while MLflow is away, for as long as a training may take.

        Raises :class:`RegistryError` when that time is over or the retrainer stops, and at once where MLflow refuses.
        """
        began_s, backoff = self._monotonic_s(), Backoff(REGISTER_S, LONGEST_REGISTER_S)
        while True:
            try:
                return work()
            except RegistryRefusedError:
                raise
            except RegistryError as error:
                self._learning_status.errors["training"] = f"a trained challenger waits for MLflow: {error.message}"
                if self._monotonic_s() - began_s > self._settings.timeout_s or self._stopping.wait(backoff.next_s()):
                    raise

    def _decide(self, version: str, candidate: Candidate, judged_against: str, run: TrainingRun) -> None:
        learning_status, counts = self._learning_status, self._learning_status.counts
        counts["retrains"] += 1
        told = EventDetails(
            version=version, trigger=run["reason"], trigger_kind=run["kind"], reason=candidate["reason"],
            seconds=round(run["took_s"], 1),
        )  # fmt: skip
        learned = EventDetails(**told)
        learned["rows"] = candidate["trained_on"].get("rows")
        learning_status.tell("retrain", **learned)
        if candidate["shadow"]:
            run["result"] = "in shadow"
            return
        refusal = candidate["reason"]
        if candidate["passed"] or candidate["forced"]:
            reason, forced = candidate["reason"], candidate["forced"]
            succeed = self._due_promotion.succeed
            refusal = self._until_mlflow_answers(lambda: succeed(version, judged_against, reason, forced=forced))
        if refusal:
            run |= {"result": "refused", "verdict": refusal}
            counts["refused"] += 1
            told["reason"] = refusal
            learning_status.tell("refused", **told)
        else:
            run["result"] = "forced" if candidate["forced"] else "promoted"
            counts["forced"] += candidate["forced"]

    def _fail(self, run: TrainingRun, error: Exception) -> None:
        message = words_of(error)
        if not isinstance(error, HothouseError):
            _log.exception("a retraining failed")
        run |= {"result": "failed", "error": message}
        self._learning_status.counts["failed"] += 1
        self._learning_status.errors["training"] = message
        self._learning_status.tell("error", message=message, trigger=run["reason"])

    def _follow(self) -> None:
        self._champion.follow()
        if self._shows.due(self._monotonic_s()):
            self._learning_status.show()
            if self._learning_status.models:  # an operator may promote any of them at any time
                self._champion.expect_network()

    def _every(self, seconds: float, work: Callable[[], None], name: str) -> None:
        while not self._stopping.wait(seconds):
            try:
                work()
            except Exception as error:  # a thread that died would stop the learning without a word
                message = words_of(error)
                if message != self._learning_status.errors.get(name):  # it comes again with every turn
                    _log.warning("the retrainer's loop: %s", message, exc_info=True)
                self._learning_status.errors[name] = message
            else:
                if name != "schedule":  # its errors stay until the schedule could look again
                    self._learning_status.errors.pop(name, None)
