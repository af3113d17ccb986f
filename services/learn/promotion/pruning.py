"""Step 15 of the way of a reading: files of old models are removed; what is recorded of them stays.

This takes two steps, because a model may be promoted at any moment, also in MLflow's page. First a model is marked, and
from then on it cannot be promoted. A promotion that had begun before ends within the time of grace. Then, right before
files are removed, their use is checked again; a model that is in use loses its mark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from services.messages import ModelRow, Pruned

__all__ = ["GRACE_MS", "Pruner", "in_use"]

GRACE_MS = 120_000


class Models(Protocol):
    """The part of :class:`services.learn.promotion.registry.Registry` that is needed here; everything may raise."""

    def list(self) -> list[ModelRow]:
        """All models, newest first."""

    def mark_pruned(self, version: str, pruned: Pruned | None) -> None:
        """Record that a version cannot serve any more, or that it can."""

    def remove_files(self, version: str) -> None:
        """Remove a version's files."""


def in_use(rows: Sequence[ModelRow], serving: str) -> set[str]:
    """The versions that somebody may load: with an alias, in shadow, the champion under watch, the rival of one that
    is, or ``serving``, which the model pointer names.
    """
    used = {serving} | {row["version"] for row in rows if row["aliases"]}
    for row in rows:
        for comparison in (row["shadow"], row["watch"]):
            if comparison is not None:
                used |= {row["version"], comparison["against"]}
    return used


class Pruner:
    """Keeps the files of models in use and of the ``keep`` newest that have any; 0 keeps all.

    ``serving`` gives the version that the model pointer names, and raises where the model pointer is away: then nothing
    is removed. Called where no training runs: one may begin with the weights of a model that was champion when it
    began.
    """

    def __init__(self, models: Models, keep: int, serving: Callable[[], str], wall_ms: Callable[[], int]) -> None:
        self._models, self._keep = models, keep
        self._serving, self._wall_ms = serving, wall_ms

    def turn(self) -> list[str]:
        """Mark what is old, and remove the files of what was marked long enough ago; the versions that lost theirs."""
        if not self._keep:
            return []
        rows, now_ms = self._models.list(), self._wall_ms()
        removed = [row["version"] for row in rows if self._is_due(row, now_ms) and self._removed(row["version"])]
        with_files = [row for row in rows if row["folder"] and row["pruned"] is None]
        used = in_use(rows, self._serving()) if len(with_files) > self._keep else set()
        for row in with_files[self._keep :]:
            if row["version"] not in used:
                self._models.mark_pruned(row["version"], Pruned(at_ms=now_ms, done=False))
        return removed

    def _is_due(self, row: ModelRow, now_ms: int) -> bool:
        pruned = row["pruned"]
        # A mark may be of a clock that was ahead, and its time years away.
        return pruned is not None and not pruned["done"] and abs(now_ms - pruned["at_ms"]) >= GRACE_MS

    def _removed(self, version: str) -> bool:
        """Look again at who uses what, and remove the files, or the mark."""
        rows = self._models.list()
        pruned = next((row["pruned"] for row in rows if row["version"] == version), None)
        if pruned is None:
            return False  # somebody has removed the version itself
        if version in in_use(rows, self._serving()):
            self._models.mark_pruned(version, None)
            return False
        self._models.remove_files(version)
        self._models.mark_pruned(version, Pruned(at_ms=pruned["at_ms"], done=True))
        return True
