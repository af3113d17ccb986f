"""Steps 14 and 17 of the way of a reading: comparisons on live rows, and their outcomes.

A challenger is in shadow until enough rows have come; then it gets one verdict. A new champion is watched: it is
compared with the one before it again and again, and is withdrawn if it is worse. The registry says what is compared, so
that a retrainer that is started again goes on with it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from models.durations import HOUR_MS
from models.evaluation.budget import level_of
from services.config import LearnSettings
from services.errors import HothouseError, ModelFilesError, PromotionRefusedError, RegistryError
from services.learn.experts import number_of
from services.learn.promotion.registry import Registry
from services.learn.promotion.shadow_capacity import begun_ms
from services.learn.records import LiveVerdict
from services.messages import ONLINE_VERSION, ModelRow, Shadow

__all__ = ["ComparisonOutcome", "LiveComparison", "ModelComparer"]

_log = logging.getLogger(__name__)

LOOK_S = 5.0
SHARE, LONGEST_PAUSE_S = 10.0, 60.0
"""A comparison that took a second is not made again for ten, but at the latest after a minute."""
PATIENCE = 5
"""Comparisons that fail are tried this often. Then the challenger is refused, or the champion's watch ends; the
champion is withdrawn if its own files fail."""
WATCH_BUDGET = 0.05
"""The chance that a champion which is no worse is withdrawn, over all comparisons of its watch together."""
DEFAULT_HOURS = 24.0
"""A submitted model is judged on live rows also where others are not."""


class ModelComparer(Protocol):
    """Compares models on the history; every method may raise, and none may hang."""

    def newest_ms(self) -> int:
        """The newest row in the history; 0 without any."""

    def longest_horizon_ms(self) -> int:
        """How long after its origin the last truth of a forecast comes."""

    def compare(
        self, mine: str, theirs: str, theirs_name: str, from_ms: int, level: float, *, worse: bool
    ) -> LiveVerdict:
        """The verdict over rows after ``from_ms`` on two artefacts, by their folders; an empty ``theirs`` is the
        climatology. ``level`` is the significance level, ``worse`` asks whether ``mine`` is worse, not better.
        """

    def rest(self) -> None:
        """Nothing is being compared: release what comparisons hold."""


@dataclass(frozen=True, slots=True)
class ComparisonOutcome:
    """The outcome of a look at the live rows; ``kind`` is ``passed``, ``refused``, ``worse``, ``kept``, or ``longer``
    for a challenger that goes on in ``shadow``.
    """

    kind: str
    version: str
    against: str  # empty: there was no verdict
    reason: str
    evidence: dict[str, Any]
    shadow: Shadow | None = None


class LiveComparison:
    """Compares what the registry says is to be compared. :meth:`look` gives one outcome a call, and the same one again
    until :meth:`done` says that it was acted upon.

    ``monotonic_s`` paces it; verdicts depend on rows and on what the registry says, not on it.
    """

    def __init__(
        self, settings: LearnSettings, registry: Registry, comparer: ModelComparer, monotonic_s: Callable[[], float]
    ) -> None:
        self._settings, self._registry, self._comparer = settings, registry, comparer
        self._monotonic_s = monotonic_s
        self._next_s = float("-inf")
        self.newest_ms = 0  # the newest row in the history, as of the last look; 0: none was needed yet
        self._seen_ms = self._watched_ms = 0
        self._failures: Counter[str] = Counter()  # version -> comparisons that failed in a row
        self._outcome: ComparisonOutcome | None = None

    def begin(self, against: str, from_ms: int, now_ms: int) -> Shadow:
        """A comparison with ``against`` over rows that end after ``from_ms``. It ends with the rows of
        ``learn.shadow_hours`` from ``now_ms`` on, once the truth at the longest horizon has come for each.
        """
        hours = self._settings.shadow_hours or DEFAULT_HOURS
        until_ms = now_ms + round(hours * HOUR_MS) + self._comparer.longest_horizon_ms()
        return Shadow(against=against, from_ms=from_ms, until_ms=until_ms)

    def level(self, models: list[ModelRow], champion: str, version: str = "") -> float:
        """The significance level for ``version``, by default for the next challenger of ``champion``.

        All challengers of a champion share ``learn.gate_budget`` (:func:`~models.evaluation.budget.level_of`). They are
        numbered in the order in which they came, those in shadow included. A challenger that leaves without a verdict
        may free its number, but its level was counted before, so that the sum never exceeds the budget.
        """
        before = [row for row in models if not version or number_of(row["version"]) < number_of(version)]
        against = [{row["judged_against"], row["shadow"]["against"] if row["shadow"] else ""} for row in before]
        of_it = sum(champion in names for names in against)
        return level_of(self._settings.gate_budget, of_it + 1)

    def done(self, outcome: ComparisonOutcome) -> None:
        """An outcome was acted upon."""
        if self._outcome == outcome:
            self._outcome = None
            self._failures.pop(outcome.version, None)

    def look(self) -> ComparisonOutcome | None:
        """The outcome of a comparison that is due, if there are new rows and it is time; ``None`` without one."""
        if self._outcome is not None:
            return self._outcome
        now_s = self._monotonic_s()
        if now_s < self._next_s:
            return None
        self._next_s = now_s + LOOK_S
        models = self._registry.list()
        in_shadow = [row for row in models if row["stage"] == "shadow" and row["shadow"]]
        challenger = min(in_shadow, key=lambda row: row["shadow"]["until_ms"] if row["shadow"] else 0, default=None)
        champion = next((row for row in models if row["stage"] == "champion" and row["watch"]), None)
        if challenger is None and champion is None:
            self._comparer.rest()
            return None
        newest_ms = self.newest_ms = self._comparer.newest_ms()
        if not newest_ms or (newest_ms <= self._seen_ms and not self._failures):
            return None
        try:
            self._outcome = self._watched(champion, newest_ms) or self._shadowed(challenger, models, newest_ms)
            if self._outcome is None:
                self._seen_ms = newest_ms
        finally:
            took_s = self._monotonic_s() - now_s
            self._next_s = self._monotonic_s() + min(max(LOOK_S, SHARE * took_s), LONGEST_PAUSE_S)
        return self._outcome

    def _shadowed(self, row: ModelRow | None, models: list[ModelRow], newest_ms: int) -> ComparisonOutcome | None:
        if row is None or row["shadow"] is None or newest_ms < row["shadow"]["until_ms"]:
            return None
        against, version = row["shadow"]["against"], row["version"]
        serving = self._registry.champion()
        if serving != against:
            reason = f"the champion changed meanwhile, from {against} to {serving}"
            return ComparisonOutcome("refused", version, "", reason, {})
        try:
            found = self._compare(row, row["shadow"], self.level(models, against, version), worse=False)
        except ModelFilesError as error:
            return ComparisonOutcome("refused", version, "", f"{version} cannot serve: {error.message}", {})
        except HothouseError as error:
            reason = f"It could not be compared with what serves: {error.message}"
            return self._failed(ComparisonOutcome("refused", version, "", reason, {}), error)
        evidence, from_ms = found["evidence"], row["shadow"]["from_ms"]
        # The next challenger may be days away, and all that was held back was compared when this one was trained.
        if _hardly_any_row(evidence, begun_ms(row)):
            longer = self.begin(against, from_ms, newest_ms)
            return ComparisonOutcome("longer", version, against, found["reason"], evidence, longer)
        kind = "passed" if found["promote"] else "refused"
        return ComparisonOutcome(kind, version, against, f"In shadow: {found['reason']}", evidence)

    def _watched(self, row: ModelRow | None, newest_ms: int) -> ComparisonOutcome | None:
        """``worse`` or ``kept`` once that is known; a look an hour of event time costs a part of the budget."""
        if row is None or row["watch"] is None:
            return None
        watch, version, watch_ms = row["watch"], row["version"], round(self._settings.watch_hours * HOUR_MS)
        if not watch_ms:
            self._registry.watch(version, None)
            return None
        if watch["from_ms"] < 0:
            until_ms = newest_ms + watch_ms
            self._registry.watch(version, Shadow(against=watch["against"], from_ms=newest_ms, until_ms=until_ms))
            return None
        hour, over = (newest_ms - watch["from_ms"]) // HOUR_MS, newest_ms >= watch["until_ms"]
        looked_hour = (max(self._watched_ms, watch["from_ms"]) - watch["from_ms"]) // HOUR_MS
        if hour <= looked_hour and not over:
            return None
        try:
            self._registry.folder(version)
        except ModelFilesError as error:  # replicas that have it in memory serve it, one that restarts cannot
            reason = f"It cannot serve: {error.message}"
            return self._failed(ComparisonOutcome("worse", version, watch["against"], reason, {}), error)
        try:
            found = self._compare(row, watch, level_of(WATCH_BUDGET, max(hour, 1)), worse=True)
        except HothouseError as error:
            reason = f"It could not be compared with {watch['against']}: {error.message}"
            return self._failed(ComparisonOutcome("kept", version, watch["against"], reason, {}), error)
        self._watched_ms = newest_ms
        self._failures.pop(version, None)
        against, evidence = watch["against"], found["evidence"]
        if found["promote"]:
            return ComparisonOutcome(
                "worse", version, against, f"Worse than {against} on live rows. {found['reason']}", evidence
            )
        if not over:
            return None
        if _hardly_any_row(evidence, watch["from_ms"]) and watch["until_ms"] - watch["from_ms"] <= watch_ms:
            # Once more as long, so that it is compared at all.
            self._registry.watch(version, Shadow(**{**watch, "until_ms": newest_ms + watch_ms}))
            return None
        return ComparisonOutcome("kept", version, against, found["reason"], evidence)

    def _failed(self, last: ComparisonOutcome, error: HothouseError) -> ComparisonOutcome:
        """``last`` when patience is over; before, and where MLflow is what fails, ``error``."""
        if isinstance(error, RegistryError):
            raise error
        self._failures[last.version] += 1
        if self._failures[last.version] < PATIENCE:
            raise error
        return last

    def _compare(self, row: ModelRow, shadow: Shadow, level: float, *, worse: bool) -> LiveVerdict:
        folder, against = str(self._registry.folder(row["version"])), shadow["against"]
        name, theirs = "the climatology", ""
        if against != ONLINE_VERSION:
            try:
                name, theirs = against, str(self._registry.folder(against))
            except (ModelFilesError, PromotionRefusedError) as error:
                _log.warning("%s cannot be compared with: %s", against, error.message)
                name = f"the climatology ({against} cannot be loaded)"
        return self._comparer.compare(folder, theirs, name, shadow["from_ms"], level, worse=worse)


def _hardly_any_row(evidence: Mapping[str, Any], since_ms: int) -> bool:
    """Whether there was nothing to compare on that came after ``since_ms``, as after an outage."""
    return not evidence.get("missing") and ("mae_ratio" not in evidence or evidence["newest_ms"] <= since_ms)
