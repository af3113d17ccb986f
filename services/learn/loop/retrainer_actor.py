"""Steps 11-16 of the way of a reading: the retrainer as a named Ray actor."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import ray

from services.config import Settings
from services.installation import namespace_of
from services.messages import RETRAINER_ACTOR
from services.observe.logs import log_to_file

if TYPE_CHECKING:
    from services.learn.records import ModelRow

__all__ = ["RetrainerActor", "start_retrainer"]


class RetrainerActor:
    """The actor ``retrainer``: only delegates. A refusal reaches callers as the cause of Ray's own error."""

    def __init__(self, settings: Settings) -> None:
        os.nice(5)  # it gives way to forecasts and requests; its start, which imports MLflow, most of all
        log_to_file(settings.logs_dir, RETRAINER_ACTOR)
        # Here and not above: who only starts the actor needs neither MLflow nor pyarrow.
        from services.learn.loop.cluster import RayCluster
        from services.learn.loop.retrainer import Retrainer
        from services.learn.promotion.registry import open_registry
        from services.learn.trees.forest_loop import ForestLoop

        self._retrainer = Retrainer(settings.learn, open_registry(settings), RayCluster(settings))
        self._retrainer.start()
        # A cluster of its own: each remembers how long the history was when it last looked.
        self._forests = ForestLoop(RayCluster(settings))
        self._forests.start()

    def trigger(self, reason: str = "operator") -> dict[str, Any]:
        """Ask for a retraining now: ``{accepted, reason}``."""
        return self._retrainer.trigger(reason)

    def promote(self, version: str) -> dict[str, Any]:
        """Make a version champion: ``{version, before}``."""
        return self._retrainer.promote(version)

    def rollback(self) -> dict[str, Any]:
        """Go back to the previous champion: ``{version, before}``."""
        return self._retrainer.rollback()

    def submit(self, folder: str) -> dict[str, Any]:
        """Register an artefact that was made elsewhere: ``{accepted, version, against}``."""
        return self._retrainer.submit(folder)

    def models(self) -> list[ModelRow]:
        """All models, newest first."""
        return self._retrainer.models()

    def status(self) -> dict[str, Any]:
        """What runs, what ran, what comes."""
        return self._retrainer.status()

    def stop(self) -> bool:
        """End a running training and the threads."""
        self._retrainer.stop()
        self._forests.stop()
        return True


def start_retrainer(settings: Settings) -> Any:
    """Start the actor, or find the one that runs; the model pointer and the live state must be there. Returns its
    handle.
    """
    # A little CPU, so that it is placed where work is: heads and drivers' nodes offer none.
    actor: Any = ray.remote(num_cpus=0.02, max_restarts=-1, max_task_retries=0, max_concurrency=8)(RetrainerActor)
    options = {"name": RETRAINER_ACTOR, "namespace": namespace_of(settings), "get_if_exists": True}
    return actor.options(**options).remote(settings)
