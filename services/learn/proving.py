"""Steps 14 and 17 of the way of a reading: what is compared on live rows, and what comes of it.

A challenger is in shadow until rows enough have come; then one verdict is given. A new champion is watched: it is
compared with the one before it again and again, and goes if it is worse. What is compared stands in the registry, so
that a retrainer that is started again goes on with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from models.budget import level_of
from services.config import LearnSettings
from services.errors import ArtefactError, PromotionRefusedError, TrainingError
from services.learn.records import ModelRow, Shadow
from services.learn.registry import Registry
from services.messages import ONLINE_VERSION

__all__ = ["Outcome", "Prover", "Proving"]

_log = logging.getLogger(__name__)

LOOK_S = 5.0
SHARE = 10.0
"""A comparison that took a second is not made again for ten: most of the time nothing is compared."""
PATIENCE = 5
"""Comparisons that fail for want of a process are tried so often; then the challenger is refused."""
WATCH_BUDGET = 0.05
"""The chance that a champion that is no worse is sent away, over all looks of its watch."""
HOUR_MS = 3_600_000
DEFAULT_HOURS = 24.0
"""A submitted model is judged on live rows also where others are not."""


class Prover(Protocol):
    """Compares models on the history; every method may raise, and none may hang."""

    def newest_ms(self) -> int:
        """The newest row in the history; 0 without any."""

    def compare(
        self, mine: str, theirs: str, theirs_name: str, from_ms: int, level: float, *, worse: bool
    ) -> dict[str, Any]:
        """A verdict ``{promote, reason, evidence}`` over rows after ``from_ms``: see ``services.learn.measure``."""

    def rest(self) -> None:
        """Nothing is being compared: let go of what it took."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a look at the live rows came to; ``kind`` is ``passed``, ``refused``, ``worse`` or ``kept``."""

    kind: str
    version: str
    against: str
    reason: str
    evidence: dict[str, Any]


class Proving:
    """Compares while something is to be compared; :meth:`look` gives what was decided, at most one thing a call.

    ``monotonic_s`` paces it; verdicts depend on rows and on what the registry says, not on it.
    """

    def __init__(
        self, settings: LearnSettings, registry: Registry, prover: Prover, monotonic_s: Callable[[], float]
    ) -> None:
        self._settings, self._registry, self._prover = settings, registry, prover
        self._monotonic_s = monotonic_s
        self._next_s = float("-inf")
        self._seen_ms = 0
        self._failures = 0

    def begin(self, against: str, from_ms: int, now_ms: int) -> Shadow:
        """A comparison with ``against`` over rows that end after ``from_ms``, as long from ``now_ms`` on as set."""
        hours = self._settings.shadow_hours or DEFAULT_HOURS
        return Shadow(against=against, from_ms=from_ms, until_ms=now_ms + round(hours * HOUR_MS))

    def begin_watch(self, against: str) -> Shadow:
        """A comparison of a new champion with what served before it, over rows that come from now on."""
        from_ms = self._prover.newest_ms()
        return Shadow(against=against, from_ms=from_ms, until_ms=from_ms + round(self._settings.watch_hours * HOUR_MS))

    def level(self, models: list[ModelRow], champion: str) -> float:
        """The chance of a mistake that the next challenger of ``champion`` may take."""
        judged = sum(row["judged_against"] == champion for row in models)
        return level_of(self._settings.gate_budget, judged + 1)

    def look(self) -> Outcome | None:
        """Compare what is to be compared, if there are new rows and it is time."""
        now_s = self._monotonic_s()
        if now_s < self._next_s:
            return None
        self._next_s = now_s + LOOK_S
        models = self._registry.list()
        challenger = next((row for row in models if row["stage"] == "shadow"), None)
        champion = next((row for row in models if row["stage"] == "champion" and row["watch"]), None)
        if challenger is None and champion is None:
            self._prover.rest()
            return None
        newest_ms = self._prover.newest_ms()
        if newest_ms <= self._seen_ms and not self._failures:
            return None
        try:
            outcome = self._watched(champion, newest_ms) or self._shadowed(challenger, models, newest_ms)
            self._failures = 0
            self._seen_ms = newest_ms
        except TrainingError as error:  # the process that compares was lost: another one will do
            self._failures += 1
            if challenger is None or self._failures < PATIENCE:
                raise
            self._failures = 0
            reason = f"It could not be compared with what serves: {error.message}"
            outcome = Outcome("refused", challenger["version"], "", reason, {})
        finally:
            self._next_s = self._monotonic_s() + max(LOOK_S, SHARE * (self._monotonic_s() - now_s))
        return outcome

    def _shadowed(self, row: ModelRow | None, models: list[ModelRow], newest_ms: int) -> Outcome | None:
        if row is None or row["shadow"] is None or newest_ms < row["shadow"]["until_ms"]:
            return None
        against, version = row["shadow"]["against"], row["version"]
        serving = self._registry.champion()
        if serving != against:
            reason = f"the champion changed meanwhile, from {against} to {serving}"
            return Outcome("refused", version, "", reason, {})
        level = self.level(models, against)
        try:
            found = self._compare(row, against, row["shadow"]["from_ms"], level, worse=False)
        except ArtefactError as error:
            return Outcome("refused", version, "", f"{version} cannot serve: {error.message}", {})
        kind = "passed" if found["promote"] else "refused"
        return Outcome(kind, version, against, f"In shadow: {found['reason']}", found["evidence"])

    def _watched(self, row: ModelRow | None, newest_ms: int) -> Outcome | None:
        """``worse`` or ``kept`` once that is known; a look an hour of event time costs a part of the budget."""
        if row is None or row["watch"] is None:
            return None
        watch = row["watch"]
        hour = (newest_ms - watch["from_ms"]) // HOUR_MS
        over = newest_ms >= watch["until_ms"]
        if hour <= (max(self._seen_ms, watch["from_ms"]) - watch["from_ms"]) // HOUR_MS and not over:
            return None
        try:
            level = level_of(WATCH_BUDGET, max(hour, 1))
            found = self._compare(row, watch["against"], watch["from_ms"], level, worse=True)
        except ArtefactError:
            return None  # the replicas say what is wrong with it; it is not compared, and not called worse
        evidence, version = found["evidence"], row["version"]
        if found["promote"]:
            return Outcome("worse", version, watch["against"], found["reason"], evidence)
        return Outcome("kept", version, watch["against"], found["reason"], evidence) if over else None

    def _compare(self, row: ModelRow, against: str, from_ms: int, level: float, *, worse: bool) -> dict[str, Any]:
        folder = str(self._registry.folder(row["version"]))
        try:
            theirs = "" if against == ONLINE_VERSION else str(self._registry.folder(against))
        except (ArtefactError, PromotionRefusedError) as error:
            _log.warning("%s cannot be compared with: %s", against, error.message)
            theirs, against = "", f"the climatology ({against} cannot be loaded)"
        name = "the climatology" if against == ONLINE_VERSION else against
        return self._prover.compare(folder, theirs, name, from_ms, level, worse=worse)
