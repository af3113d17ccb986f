"""Steps 11-16 of the way of a reading: runs retrainings, and tells the replicas which model serves.

Two threads. One waits for a trigger, has a challenger trained and judged, registers it, and moves the ``champion``
alias when it may. The other follows that alias wherever it was moved from (here, the command line, MLflow's page) and
hands it to the slot. So a model reaches the replicas on one way only, and MLflow's aliases are the only state: a
retrainer that is started again goes on from them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from services.config import LearnSettings
from services.errors import ArtefactError, HothouseError, RegistryError, TrainingError
from services.learn.lookout import Lookout
from services.learn.registry import Candidate, ModelRow, Registry
from services.learn.triggers import NOTHING_NEW, News, Trigger, Triggers
from services.messages import ONLINE_VERSION

__all__ = ["Cluster", "Retrainer"]

POLL_S = 0.2
WATCH_S = 0.5
LOOK_S = 2.0
"""How often the history is looked at while the schedule waits for it."""
SHOW_S = 2.0
"""The board keeps nothing over its restart, so it is told again this often."""

_log = logging.getLogger(__name__)


class Cluster(Protocol):
    """What the retrainer needs of the running system; every method may raise, and none may hang."""

    def history_days(self) -> float:
        """Length of the history on the storage, in days; 0 without any. Reads files: not to be asked all the time."""

    def news(self, since_ms: int) -> News:
        """What drifted in rows that end after ``since_ms``; ``rows``: all that were ever closed."""

    def flush(self) -> dict[str, int]:
        """Have every shard write its rows to the history; the log offset that each partition's rows reach."""

    def train(
        self, champion: str, champion_folder: str, log_offsets: dict[str, int], started_ms: int,
        cancelled: threading.Event,
    ) -> Candidate:  # fmt: skip
        """Train, evaluate and judge a challenger; its artefact is whole and verified when this returns.

        Raises :class:`TrainingError` when there is no usable challenger, or soon after ``cancelled`` is set.
        """

    def serving(self) -> str:
        """The version that the slot names now."""

    def serve(self, version: str, folder: str) -> None:
        """Have the replicas load and serve a version."""

    def event(self, event: dict[str, Any]) -> None:
        """Show an event on the board."""

    def show(self, models: list[ModelRow], status: dict[str, Any]) -> None:
        """Show the models and this retrainer's status on the board."""


@dataclass
class _Counts:
    retrains: int = 0
    refused: int = 0
    failed: int = 0
    swaps: int = 0
    forced: int = 0


@dataclass
class _State:
    """What :meth:`Retrainer.status` shows; counts are since this retrainer started."""

    counts: _Counts = field(default_factory=_Counts)
    last_run: dict[str, Any] | None = None
    running: dict[str, Any] | None = None
    errors: dict[str, str] = field(default_factory=dict)  # what fails -> why, until it works again
    registry_error: str = ""
    serving: str = ""


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
        self._state = _State()
        self._stopping = threading.Event()
        self._alias = threading.RLock()  # one thread at a time moves or follows it: no move between check and move
        self._told: str | None = None  # what the slot was last told; None: not known yet
        self._broken: str | None = None  # champion whose files cannot serve: reported once
        self._models: list[ModelRow] = []
        self._shown_s = float("-inf")
        self._looked_s = float("-inf")
        self._why: dict[str, str] = {}  # version -> why it was made champion here
        self._triggers = Triggers(
            settings.retrain_every_s, settings.cool_down_s, settings.min_days, monotonic_s(), settings.retrain_rows
        )
        self._lookout = Lookout(cluster.news)
        self._drift = ""  # the newest that was told
        self._threads = [
            threading.Thread(
                target=self._every, args=(POLL_S, self.retrain_if_due, "schedule"), name="retrain", daemon=True
            ),
            threading.Thread(
                target=self._every, args=(WATCH_S, self._follow, "watch"), name="watch-champion", daemon=True
            ),
        ]

    def start(self) -> None:
        """Start both threads."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End a running training and both threads; idempotent."""
        self._stopping.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout_s)

    def trigger(self, reason: str) -> dict[str, Any]:
        """Ask for a retraining now; raises :class:`TrainingError` when one runs or is asked for already."""
        refusal = self._triggers.ask(reason)
        if refusal is not None:
            raise TrainingError(refusal)
        return {"accepted": True, "reason": reason}

    def promote(self, version: str) -> dict[str, Any]:
        """Make a version champion and tell the slot.

        Raises :class:`PromotionRefusedError` or :class:`RegistryError`.
        """
        with self._alias:
            before = self._registry.champion()
            self._registry.promote(version)
            self._why[version] = "promoted by an operator"
            self.watch()
        return {"version": version, "before": before}

    def rollback(self) -> dict[str, Any]:
        """Go back to the previous champion; raises as :meth:`promote` does."""
        with self._alias:
            before = self._registry.champion()
            version = self._registry.rollback()
            self._why[version] = f"rolled back from {before} by an operator"
            self.watch()
        return {"version": version, "before": before}

    def models(self) -> list[ModelRow]:
        """All models, newest first; raises :class:`RegistryError`."""
        return self._registry.list()

    def status(self) -> dict[str, Any]:
        """What runs, what ran, what comes, and how often; JSON-able."""
        state, now_s = self._state, self._monotonic_s()
        due_s = self._triggers.next_due_s(now_s)
        return {
            "serving": state.serving,
            "running": state.running,
            "last_run": state.last_run,
            "last_error": "; ".join(tuple(state.errors.values())),
            "registry_error": state.registry_error,
            "next_due_s": None if due_s is None else round(due_s - now_s, 1),
            **vars(state.counts),
        }

    def retrain_if_due(self) -> None:
        """Run one retraining to its end, if a trigger asks for one."""
        now_s = self._monotonic_s()
        trigger = self._triggers.due(now_s, history_days=0)  # an operator's wish waits for nothing
        trigger = trigger or self._scheduled(now_s)
        if trigger is not None:
            self._retrain(trigger)

    def _scheduled(self, now_s: float) -> Trigger | None:
        """What starts by itself now; shards, history and registry are looked at only when they decide, not often."""
        if self._triggers.running or now_s < self._looked_s + LOOK_S:
            return None
        self._looked_s = now_s
        if self._models:
            self._triggers.has_model = True
        news = self._news(now_s)
        if self._triggers.due(now_s, float("inf"), news) is None:
            return None
        days = self._cluster.history_days()
        trigger = self._triggers.due(now_s, days, news)
        if trigger is not None and not self._triggers.has_model:
            self._triggers.has_model = bool(self._registry.list())
            trigger = self._triggers.due(now_s, days, news)
        self._state.errors.pop("schedule", None)
        return trigger

    def _news(self, now_s: float) -> News:
        """What the newest model does not know of; nothing while there is no model, while nobody wants to know, or
        while a shard is away: the schedule goes on.
        """
        if self._settings.retrain_on_drift == "never" and not self._settings.retrain_rows:
            return NOTHING_NEW
        if not self._triggers.has_model:
            return NOTHING_NEW
        try:
            news = self._lookout.look(now_s, self._known_to_ms())
        except TrainingError as error:
            self._state.errors["news"] = error.message
            return NOTHING_NEW
        self._state.errors.pop("news", None)
        if news.drift and news.drift != self._drift:
            self._tell("drift", message=news.drift)
            self._drift = news.drift
        return news

    def _known_to_ms(self) -> int:
        """The newest row, of any site, that went into the newest model, its held-back rows too."""
        trained_on = self._models[0]["trained_on"] if self._models else {}
        return int(trained_on.get("known_to_ms") or trained_on.get("to_ms") or 0)

    def watch(self) -> None:
        """Follow the ``champion`` alias once. MLflow that is away, or a torn artefact, leaves what serves in place."""
        with self._alias:
            try:
                version = self._registry.champion()
                if version != self._told:
                    self._swap(version)
                else:
                    self._broken = None
                    self._state.errors.pop("champion", None)
            except RegistryError as error:
                self._report_registry(error.message)
            else:
                self._report_registry("")

    def _retrain(self, trigger: Trigger) -> None:
        started_ms = self._wall_ms()
        run: dict[str, Any] = {"kind": trigger.kind, "reason": trigger.reason, "started_ms": started_ms}
        self._triggers.started(self._monotonic_s())
        self._lookout.training_began()
        self._state.running = run
        self._show()
        try:
            offsets = self._cluster.flush()
            champion = self._registry.champion()
            folder = self._champion_folder(champion)
            candidate = self._cluster.train(champion, folder, offsets, started_ms, self._stopping)
            candidate["params"] |= {"trigger": trigger.kind, "trigger_reason": trigger.reason}
            candidate["forced"] = self._settings.force_promote and not candidate["passed"]
            version = self._registry.register(candidate, started_ms)
            self._triggers.has_model = True
            run |= {"version": version, "verdict": candidate["reason"], **candidate["trained_on"]}
            self._decide(version, candidate, champion, run)
            for name in ("training", "schedule"):  # what the schedule could not read has been read
                self._state.errors.pop(name, None)
        except Exception as error:  # whatever went wrong, the champion stays and the next slot tries again
            if not self._stopping.is_set():
                self._fail(run, error)
        finally:
            self._state.running = None
            self._state.last_run = run | {"ended_ms": self._wall_ms()}
            self._triggers.ended(self._monotonic_s())
            self._show()

    def _decide(self, version: str, candidate: Candidate, judged_against: str, run: dict[str, Any]) -> None:
        counts = self._state.counts
        counts.retrains += 1
        seconds = round((self._wall_ms() - run["started_ms"]) / 1000, 1)
        told = {
            "version": version,
            "trigger": run["reason"],
            "trigger_kind": run["kind"],
            "reason": candidate["reason"],
            "seconds": seconds,
        }
        self._tell("retrain", **told, rows=candidate["trained_on"].get("rows"))
        refusal = self._promote(version, candidate, judged_against)
        if refusal:
            run |= {"result": "refused", "verdict": refusal}
            counts.refused += 1
            self._tell("refused", **told | {"reason": refusal})
        else:
            run["result"] = "forced" if candidate["forced"] else "promoted"
            counts.forced += candidate["forced"]

    def _promote(self, version: str, candidate: Candidate, judged_against: str) -> str:
        """Move the alias to a challenger that may serve, or say why it may not."""
        if not (candidate["passed"] or candidate["forced"]):
            return candidate["reason"]
        with self._alias:
            now = self._registry.champion()
            if now != judged_against:  # an operator's word stands against a verdict that did not know it
                return f"the champion changed meanwhile, from {judged_against} to {now}"
            self._registry.promote(version)
            self._why[version] = ("forced, although: " if candidate["forced"] else "") + candidate["reason"]
            self.watch()
        return ""

    def _fail(self, run: dict[str, Any], error: Exception) -> None:
        message = error.message if isinstance(error, HothouseError) else f"{type(error).__name__}: {error}"
        if not isinstance(error, HothouseError):
            _log.exception("a retraining failed")
        run |= {"result": "failed", "error": message}
        self._state.counts.failed += 1
        self._state.errors["training"] = message
        self._tell("error", message=message, trigger=run["reason"])

    def _champion_folder(self, version: str) -> str:
        """Where the champion's files are; empty without a network, or when they cannot be had."""
        if version == ONLINE_VERSION:
            return ""
        try:
            return str(self._registry.folder(version))
        except ArtefactError as error:
            self._tell("error", version=version, message=f"{version} can be no rival: {error.message}")
            return ""

    def _swap(self, version: str) -> None:
        try:
            if self._told is None:
                self._told = self._state.serving = self._cluster.serving()  # a start is no swap
                if version == self._told:
                    return
            folder = "" if version == ONLINE_VERSION else str(self._registry.folder(version))
            self._cluster.serve(version, folder)
        except ArtefactError as error:
            if version != self._broken:
                message = f"{version} cannot serve, {self._told} stays: {error.message}"
                self._broken, self._state.errors["champion"] = version, message
                self._tell("error", version=version, message=message)
            return
        except RegistryError:
            raise
        except Exception as error:  # a slot that restarts is told at the next look
            self._state.errors["champion"] = f"the slot was not told of {version}: {error}"
            return
        before, self._told, self._broken = self._told, version, None
        self._state.errors.pop("champion", None)
        self._state.serving = version
        self._state.counts.swaps += 1
        reason = self._why.pop(version, "champion alias moved in MLflow")
        self._tell("swap", version=version, before=before, reason=reason)

    def _report_registry(self, problem: str) -> None:
        if bool(problem) != bool(self._state.registry_error):
            message = f"{problem}; {self._told or 'the last champion'} stays" if problem else "MLflow answers again"
            self._tell("error" if problem else "registry", message=message)
        self._state.registry_error = problem

    def _tell(self, kind: str, **what: Any) -> None:
        try:
            self._cluster.event({"time_ms": self._wall_ms(), "kind": kind, **what})
        except Exception:  # a board that restarts must not stop the learning
            _log.warning("the board did not take the event %s %s", kind, what)
        self._show()

    def _follow(self) -> None:
        self.watch()
        if self._monotonic_s() - self._shown_s >= SHOW_S:
            self._show()
        self._state.errors.pop("watch", None)

    def _show(self) -> None:
        self._shown_s = self._monotonic_s()
        with suppress(RegistryError):  # its absence is in the status already; the models stay as they were seen last
            self._models = self._registry.list()
        try:
            self._cluster.show(self._models, self.status())
        except Exception:  # the board restarts: it is told again soon
            _log.info("the board does not answer")

    def _every(self, seconds: float, work: Callable[[], None], name: str) -> None:
        while not self._stopping.wait(seconds):
            try:
                work()
            except Exception as error:  # a thread that died would stop the learning without a word
                message = error.message if isinstance(error, HothouseError) else f"{type(error).__name__}: {error}"
                if message != self._state.errors.get(name):  # it comes again with every turn
                    _log.warning("the retrainer's loop: %s", message, exc_info=True)
                self._state.errors[name] = message
