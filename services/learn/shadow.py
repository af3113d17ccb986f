"""Steps 14 and 17 of the way of a reading: challengers in shadow and champions under watch, from beginning to end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from services.config import LearnSettings
from services.errors import PromotionRefusedError
from services.learn.champion import Champion
from services.learn.proving import Outcome, Proving
from services.learn.records import Candidate, Shadow
from services.learn.registry import Registry
from services.learn.standing import Standing

__all__ = ["Shadows"]


class Shadows:
    """Registers challengers, and does what :class:`services.learn.proving.Proving` finds out about them."""

    def __init__(
        self, settings: LearnSettings, registry: Registry, proving: Proving, champion: Champion, standing: Standing
    ) -> None:
        self._settings, self._registry, self._proving = settings, registry, proving
        self._champion, self._standing = champion, standing

    def of(self, candidate: Candidate, against: str) -> Shadow | None:
        """The comparison that a trained challenger waits for; ``None`` where its verdict stands.

        Rows that were held back count beside live ones: all that neither of the two was trained on.
        """
        if not candidate["shadow"]:
            return None
        rivals = [row["trained_on"] for row in self._registry.list() if row["version"] == against]
        seen_ms = max(int(one.get("to_ms") or 0) for one in (candidate["trained_on"], *rivals))
        return self._proving.begin(against, seen_ms, int(candidate["trained_on"]["known_to_ms"]))

    def register(self, candidate: Candidate, at_ms: int, against: str, shadow: Shadow | None) -> str:
        """Register a challenger, and begin its comparison; one that is in shadow gives way to it."""
        version = self._registry.register(candidate, at_ms, shadow, against)
        for row in self._registry.list():
            if row["stage"] == "shadow" and row["version"] != version:
                self._refuse(row["version"], f"{version} took its place before it was judged", {}, "")
        if shadow is not None:
            until = datetime.fromtimestamp(shadow["until_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
            self._standing.tell(
                "shadow", version=version, reason=f"Compared with {against} on live rows until {until}."
            )
        return version

    def prove(self) -> None:
        """Have what is to be compared compared, and do what comes of it. Raises what registry and prover raise."""
        self._champion.begin_watch(self._begin_watch)
        outcome = self._proving.look()
        if outcome is None:
            return
        if outcome.kind == "worse":
            reason = f"Worse than {outcome.against} on live rows. {outcome.reason}"
            self._champion.send_back(outcome.version, outcome.against, reason)
        elif outcome.kind == "kept":
            self._registry.watch(outcome.version, None)
            self._standing.tell("watched", version=outcome.version, reason=f"It stays. {outcome.reason}")
        elif outcome.kind == "passed":
            self._accept(outcome)
        else:
            self._refuse(outcome.version, outcome.reason, outcome.evidence, outcome.against)

    def _begin_watch(self, version: str, before: str) -> None:
        self._registry.watch(version, self._proving.begin_watch(before) if self._settings.watch_hours else None)

    def _accept(self, outcome: Outcome) -> None:
        self._registry.settle(outcome.version, True, outcome.reason, outcome.evidence, outcome.against)
        try:
            refusal = self._champion.succeed(outcome.version, outcome.against, outcome.reason)
        except PromotionRefusedError as error:
            refusal = error.message
        if refusal:
            self._refuse(outcome.version, refusal, outcome.evidence, outcome.against)

    def _refuse(self, version: str, reason: str, evidence: dict[str, Any], against: str) -> None:
        self._registry.settle(version, False, reason, evidence, against)
        self._standing.counts.refused += 1
        self._standing.tell("refused", version=version, reason=reason)
