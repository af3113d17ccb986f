"""Steps 15 and 16 of the way of a reading: the ``champion`` alias, who moves it and who follows it.

The alias in the registry says what should serve. It is moved here, or in MLflow's page; in both cases it is followed
here, and here only, to the model pointer and so to the replicas.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import Protocol

from services.errors import ModelFilesError, PromotionRefusedError, RegistryError
from services.learn.learning_status import LearningStatus
from services.learn.promotion.registry import Registry
from services.messages import ONLINE_VERSION, Shadow

__all__ = ["ChampionAlias", "ServingPointer"]


_log = logging.getLogger(__name__)


class ServingPointer(Protocol):
    """What tells the replicas what to serve; both methods may raise, and none may hang."""

    def serving(self) -> str:
        """The version that the model pointer names now."""

    def serve(self, version: str, folder: str) -> None:
        """Have the replicas load and serve a version."""

    def expect_network(self) -> None:
        """Have the replicas prepare for a network."""


class ChampionAlias:
    """Moves and follows the alias; one thread at a time does either, so that nothing moves between check and move."""

    def __init__(self, registry: Registry, pointer: ServingPointer, learning_status: LearningStatus) -> None:
        self._registry, self._pointer, self._learning_status = registry, pointer, learning_status
        self._lock = threading.RLock()
        self._told: str | None = None  # what the model pointer was last told; None: not known yet
        self._broken: str | None = None  # champion whose files cannot serve: reported once
        self._expected = False
        self._why: dict[str, str] = {}  # version -> why it was made champion here

    def promote(self, version: str, why: str) -> str:
        """Make a version champion and tell the model pointer; the version before.

        Raises :class:`PromotionRefusedError` or :class:`RegistryError`.
        """
        with self._lock:
            before = self._registry.champion()
            if version not in (before, ONLINE_VERSION):
                self._registry.watch(version, _due(before))  # first: a promotion that nobody watches must not be
            self._why[version] = why  # first: where MLflow goes away in the middle, the move is followed later
            try:
                self._registry.promote(version)
            except PromotionRefusedError:
                del self._why[version]
                raise
            self.follow()
        return before

    def succeed(self, version: str, judged_against: str, why: str) -> str:
        """:meth:`promote` a challenger, unless the champion is no longer the one that it was judged against.

        Returns why it was not promoted, empty if it was or serves already. Raises what :meth:`promote` raises.
        """
        with self._lock:
            now = self._registry.champion()
            if now == version:
                return ""
            if now != judged_against:  # an operator's word stands against a verdict that did not know it
                return f"the champion changed meanwhile, from {judged_against} to {now}"
            self.promote(version, why)
        return ""

    def expect_network(self) -> None:
        """Have the replicas prepare for a first network, once. A failure does not matter."""
        if not self._expected:
            with suppress(Exception):
                self._pointer.expect_network()
                self._expected = True

    def rollback(self, leave: str = "") -> tuple[str, str]:
        """Go back from ``leave``, by default from whatever serves: the version now, and the one before.

        Raises as :meth:`promote` does, and :class:`PromotionRefusedError` where ``leave`` is not champion now. So a
        request that is sent twice does not come back to the model that it left.
        """
        with self._lock:
            before = self._registry.champion()
            if leave not in ("", before):
                raise PromotionRefusedError(
                    f"{before} is the champion, not {leave}", "`hothouse models list` shows what serves."
                )
            version = self._registry.rollback()
            self._why[version] = f"rolled back from {before} by an operator"
            self._registry.watch(version, None)  # whoever goes back does not want to be sent forward again
            self.follow()
        return version, before

    def send_back(self, version: str, to: str, reason: str) -> None:
        """Withdraw a champion in favour of ``to``, unless it is champion no longer; may be called again.

        The online learners alone serve where ``to`` cannot.
        """
        with self._lock:
            if self._registry.champion() != version:
                self._registry.watch(version, None)
                return
            self._registry.withdraw(version, reason)  # first: should MLflow go away now, it is found worse again
            try:
                self._registry.promote(to)
            except PromotionRefusedError as error:
                _log.warning("%s cannot serve again: %s", to, error.message)
                to = ONLINE_VERSION
                self._registry.promote(to)
            self._why[to] = f"back from {version}. {reason}"
            self._learning_status.counts["rollbacks"] += 1
            self._learning_status.tell("rollback", version=to, before=version, reason=reason)
            self.follow()
            self._registry.watch(version, None)
            if to != ONLINE_VERSION:
                self._registry.watch(to, None)  # what has just proved better needs no proof

    def follow(self) -> None:
        """Follow the alias once. MLflow that is away, or a torn artefact, leaves what serves in place."""
        with self._lock:
            try:
                version = self._registry.champion()
                if version != self._told:
                    self._swap(version)
                else:
                    self._broken = None
                    self._learning_status.errors.pop("champion", None)
            except RegistryError as error:
                self._report_registry(error.words)
            else:
                self._report_registry("")

    def folder(self, version: str) -> str:
        """Where a version's files are; empty for ``online``, and, with an event, when they cannot be had."""
        if version == ONLINE_VERSION:
            return ""
        try:
            return str(self._registry.folder(version))
        except ModelFilesError as error:
            self._learning_status.tell(
                "error", version=version, message=f"{version} cannot be compared with: {error.message}"
            )
            return ""

    def _swap(self, version: str) -> None:
        learning_status = self._learning_status
        try:
            if self._told is None:
                self._told = learning_status.serving = self._pointer.serving()  # a start is no swap
                if version == self._told:
                    return
            goes_back = self._registry.is_previous(version)  # moved there in MLflow's page, or a rollback was cut short
            # A move in MLflow's page leaves `previous` as it was, and so does a promotion that MLflow cut short.
            with suppress(PromotionRefusedError):  # what served is no longer in the registry
                self._registry.keep_previous(self._told)
            folder = self._folder_to_serve(version)
            if folder is None:
                return
            lost = version == ONLINE_VERSION and not self._registry.list()
            if folder and version not in self._why:  # somebody moved the alias in MLflow
                self._registry.watch(version, None if goes_back else _due(self._told))  # as after a rollback
            self._pointer.serve(version, folder)
        except RegistryError:
            raise
        except Exception as error:  # a model pointer that restarts, or whose storage is away, is told at the next look
            learning_status.errors["champion"] = f"the model pointer was not told of {version}: {error}"
            return
        before, self._told, self._broken = self._told, version, None
        learning_status.errors.pop("champion", None)
        learning_status.serving = version
        learning_status.counts["swaps"] += 1
        moved = "MLflow has lost its models" if lost else "champion alias moved in MLflow"
        moved = "went back to the model that served before" if goes_back else moved
        reason = self._why.pop(version, moved)
        learning_status.tell("swap", version=version, before=before, reason=reason)

    def _folder_to_serve(self, version: str) -> str | None:
        """Where a version's files are, empty for ``online``; ``None``, which is told once, where they cannot serve."""
        if version == ONLINE_VERSION:
            return ""
        try:
            return str(self._registry.servable(version))
        except ModelFilesError as error:
            if version != self._broken:
                message = f"{version} cannot serve, {self._told} stays: {error.message}"
                self._broken, self._learning_status.errors["champion"] = version, message
                self._learning_status.tell("error", version=version, message=message)
            return None

    def _report_registry(self, problem: str) -> None:
        learning_status = self._learning_status
        if bool(problem) != bool(learning_status.registry_error):
            message = f"{problem}; {self._told or 'the last champion'} stays" if problem else "MLflow answers again"
            learning_status.tell("error" if problem else "registry", message=message)
        learning_status.registry_error = problem


def _due(against: str) -> Shadow:
    """A watch that begins with the next row."""
    return Shadow(against=against, from_ms=-1, until_ms=-1)
