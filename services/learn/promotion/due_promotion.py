"""Step 15 of the way of a reading: challengers whose verdict stands become champion, also where that was cut short.

A challenger that live rows need not judge is registered, and promoted in a second step. The registry says from the
first on that the second is due: a process that is killed in between, or an MLflow that goes away, loses no verdict.
"""

from __future__ import annotations

import logging

from edge.timing import Backoff
from services.errors import PromotionRefusedError, words_of
from services.learn.learning_status import LearningStatus
from services.learn.promotion.champion import ChampionAlias
from services.learn.promotion.registry import Registry

__all__ = ["DuePromotion"]

FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 60.0
"""How soon a promotion is tried again where MLflow is away."""

_log = logging.getLogger(__name__)


class DuePromotion:
    """For one thread. The registry is asked until nothing is due, and again after :meth:`look_again`."""

    def __init__(self, registry: Registry, champion: ChampionAlias, learning_status: LearningStatus) -> None:
        self._registry, self._champion, self._learning_status = registry, champion, learning_status
        self._may_be_due = True  # a process before this one may have left it
        self._pause = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    def look_again(self) -> None:
        """A retraining failed; MLflow may have taken its challenger before it went away."""
        self._may_be_due = True

    def succeed(self, version: str, judged_against: str, reason: str, *, forced: bool) -> str:
        """Promote a challenger, or say why not (:meth:`ChampionAlias.succeed`); it is not due any more then.

        Raises as that does; after a :class:`RegistryError` it is due as before.
        """
        try:
            why = f"forced, although: {reason}" if forced else reason
            refusal = self._champion.succeed(version, judged_against, why)
        except PromotionRefusedError:
            self._registry.no_longer_due(version)
            raise
        self._registry.no_longer_due(version)  # also where an earlier try moved the alias, and MLflow went away then
        return refusal

    def make_up(self, now_s: float) -> None:
        """Promote what is due, if anything is. A failure is told and tried again; it must not stop the schedule."""
        if not self._may_be_due or not self._pause.is_over(now_s):
            return
        try:
            due = self._registry.due()
            if due is None:
                self._may_be_due = False
            else:
                self._promote(*due)
        except Exception as error:
            message = words_of(error)
            self._learning_status.errors["due"] = f"a promotion that may be due was not made: {message}"
            _log.warning("a promotion that may be due was not made", exc_info=True)
            self._pause.failed(now_s)
            return
        self._learning_status.errors.pop("due", None)
        self._pause.reset()

    def _promote(self, version: str, judged_against: str) -> None:
        row = next(row for row in self._registry.list() if row["version"] == version)
        if row["stage"] in ("previous", "withdrawn"):  # it was champion already, and somebody went back
            self._registry.no_longer_due(version)
            return
        try:
            refusal = self.succeed(version, judged_against, row["reason"], forced=row["forced"])
        except PromotionRefusedError as error:
            refusal = error.message
        if refusal:
            self._learning_status.counts["refused"] += 1
            self._learning_status.tell("refused", version=version, reason=refusal)
