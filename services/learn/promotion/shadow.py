"""Steps 14 and 17 of the way of a reading: challengers in shadow and champions under watch, from beginning to end."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

from services.errors import PromotionRefusedError
from services.learn.learning_status import LearningStatus
from services.learn.promotion.champion import ChampionAlias
from services.learn.promotion.live_comparison import ComparisonOutcome, LiveComparison
from services.learn.promotion.registry import Registry
from services.learn.promotion.shadow_capacity import gives_way
from services.learn.records import Candidate
from services.messages import ModelRow, Shadow

__all__ = ["Shadows"]


class Shadows:
    """Registers challengers, and does what :class:`services.learn.promotion.live_comparison.LiveComparison` finds out
    about them.

    Everything that is done with an outcome may be done again: MLflow may go away in the middle of it.
    """

    def __init__(
        self,
        registry: Registry,
        comparison: LiveComparison,
        champion: ChampionAlias,
        learning_status: LearningStatus,
        places: int,
    ) -> None:
        self._registry, self._comparison, self._places = registry, comparison, places
        self._champion, self._learning_status = champion, learning_status
        self._lock = threading.Lock()  # what is in shadow does not change between a look and what follows from it

    def of(self, candidate: Candidate, against: str) -> Shadow | None:
        """The comparison that a trained challenger waits for; ``None`` if its verdict stands.

        Rows that were held back count beside live ones: all that neither of the two was trained on.
        """
        if not candidate["shadow"]:
            return None
        rivals = [row["trained_on"] for row in self._registry.list() if row["version"] == against]
        seen_ms = max(int(one.get("to_ms") or 0) for one in (candidate["trained_on"], *rivals))
        return self._comparison.begin(against, seen_ms, int(candidate["trained_on"]["known_to_ms"]))

    def register(self, candidate: Candidate, at_ms: int, against: str, shadow: Shadow | None) -> str:
        """Register a challenger, and begin its comparison; where all places are taken, another gives way to it.

        Raises :class:`RegistryError`, and may then be called again: a challenger is registered once.
        """
        with self._lock:
            version = self._registry.register(candidate, at_ms, shadow, against)
            for row in gives_way(self._registry.list(), version, self._places) if shadow is not None else ():
                reason = f"{version} took its place before it was judged"
                # It keeps its number: else whoever asks again and again would get fresh tries for nothing.
                number_of = row["shadow"]["against"] if row["shadow"] else ""
                self._refuse(ComparisonOutcome("refused", row["version"], number_of, reason, {}))
        if shadow is not None:
            until = datetime.fromtimestamp(shadow["until_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
            self._learning_status.tell(
                "shadow", version=version, reason=f"Compared with {against} on live rows until {until}."
            )
        return version

    def prove(self) -> None:
        """Make the comparisons that are due, and act on their outcomes. Raises the errors of registry and comparer."""
        outcome = self._comparison.look()
        if outcome is None:
            return
        with self._lock:
            row = next((row for row in self._registry.list() if row["version"] == outcome.version), None)
            if row is not None:
                self._act(outcome, row)
            self._comparison.done(outcome)

    def _act(self, outcome: ComparisonOutcome, row: ModelRow) -> None:
        if outcome.kind == "worse":
            self._registry.keep_evidence(outcome.version, "watch", outcome.evidence)
            self._champion.send_back(outcome.version, outcome.against, outcome.reason)
        elif outcome.kind == "kept":
            self._registry.keep_evidence(outcome.version, "watch", outcome.evidence)
            self._registry.watch(outcome.version, None)
            self._learning_status.tell("watched", version=outcome.version, reason=f"It stays. {outcome.reason}")
        elif row["stage"] not in ("shadow", "champion"):
            return  # another one has taken its place while it was compared
        elif outcome.kind == "passed":
            self._accept(outcome)
        elif row["stage"] == "shadow" and outcome.shadow is not None:
            self._registry.stay_in_shadow(outcome.version, outcome.shadow)
        elif row["stage"] == "shadow":
            self._refuse(outcome)

    def _accept(self, outcome: ComparisonOutcome) -> None:
        # First: a process that is killed after the move must not leave a champion that is recorded as refused.
        self._registry.keep_evidence(outcome.version, "shadow", outcome.evidence)
        self._registry.record_verdict(outcome.version, True, outcome.reason, outcome.against)
        try:
            refusal = self._champion.succeed(outcome.version, outcome.against, outcome.reason)
        except PromotionRefusedError as error:
            refusal = error.message
        if refusal:
            self._refuse(ComparisonOutcome("refused", outcome.version, outcome.against, refusal, outcome.evidence))
        else:
            self._registry.settle(outcome.version, True, outcome.reason, outcome.against)

    def _refuse(self, outcome: ComparisonOutcome) -> None:
        self._registry.keep_evidence(outcome.version, "shadow", outcome.evidence)
        self._registry.settle(outcome.version, False, outcome.reason, outcome.against)
        self._learning_status.counts["refused"] += 1
        self._learning_status.tell("refused", version=outcome.version, reason=outcome.reason)
