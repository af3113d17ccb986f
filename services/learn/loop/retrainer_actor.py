"""Steps 11 to 16 of the way of a reading: the retrainer as a named Ray actor."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import ray

from services.config import Settings
from services.errors import PromotionRefusedError
from services.installation import namespace_of
from services.messages import RETRAINER_ACTOR
from services.observe.logs import log_to_file
from services.runtime.restarted_actor import restarted_until_it_can_begin

if TYPE_CHECKING:
    from services.learn.loop.retrainer import Retrainer
    from services.messages import LearningFigures, ModelRow, ModelSubmitted, Moved, TrainingAccepted

__all__ = ["RetrainerActor", "start_retrainer"]


class RetrainerActor:
    """The actor ``retrainer``: a slow loop for the models of each expert, and otherwise delegates. A refusal reaches
    callers as the cause of Ray's own error.
    """

    def __init__(self, settings: Settings) -> None:
        os.nice(5)  # it gives way to forecasts and requests; its start, which imports MLflow, most of all
        log_to_file(settings.logs_dir, RETRAINER_ACTOR, settings.logs.format, settings.logs.level)
        # Here and not above: who only starts the actor needs neither MLflow nor pyarrow.
        from services.learn.experts import EXPERTS, TUNED
        from services.learn.loop.cluster import RayCluster, ShownModels
        from services.learn.loop.retrainer import Retrainer
        from services.learn.promotion.registry import open_registry

        shown = ShownModels()
        self._retrainers: dict[str, Retrainer] = {}
        with restarted_until_it_can_begin():
            for name, expert in EXPERTS.items():
                if expert is TUNED and not settings.learn.tuned_every_days:
                    continue
                cluster = RayCluster(settings, expert, shown)
                self._retrainers[name] = Retrainer(cluster.learn, open_registry(settings, expert), cluster)
        for retrainer in self._retrainers.values():
            retrainer.start()

    def trigger(self, reason: str = "operator", expert: str = "network") -> TrainingAccepted:
        """Ask for a retraining now."""
        return self._of(expert).trigger(reason)

    def promote(self, version: str, expert: str = "network") -> Moved:
        """Make a version champion. A version says whose it is; ``online`` does not."""
        from services.learn.experts import expert_of

        whose = expert_of(version)
        return self._of(expert if whose is None else whose.name).promote(version)

    def rollback(self, expert: str = "network", leave: str = "") -> Moved:
        """Go back from ``leave``, by default from whatever serves."""
        return self._of(expert).rollback(leave)

    def submit(self, folder: str) -> ModelSubmitted:
        """Register an artefact that was made elsewhere. Its kind says for whom."""
        from services.learn.experts import expert_in

        return self._of(expert_in(folder).name).submit(folder)

    def models(self) -> list[ModelRow]:
        """All models, those of each expert newest first."""
        return [row for retrainer in self._retrainers.values() for row in retrainer.models()]

    def status(self, expert: str = "network") -> LearningFigures:
        """What runs, what ran, what comes."""
        return self._of(expert).status()

    def stop(self) -> bool:
        """End a running training and the threads."""
        for retrainer in self._retrainers.values():
            retrainer.stop()
        return True

    def _of(self, expert: str) -> Retrainer:
        if expert not in self._retrainers:
            raise PromotionRefusedError(f"{expert!r} has no models; {' and '.join(self._retrainers)} have")
        return self._retrainers[expert]


def start_retrainer(settings: Settings) -> Any:
    """Start the actor, or find the one that runs; the model pointer and the live state must be there. Returns its
    handle.
    """
    # A little CPU, so that it is placed where work is: heads and drivers' nodes offer none.
    actor: Any = ray.remote(num_cpus=0.02, max_restarts=-1, max_task_retries=0, max_concurrency=8)(RetrainerActor)
    options = {"name": RETRAINER_ACTOR, "namespace": namespace_of(settings), "get_if_exists": True}
    return actor.options(**options).remote(settings)
