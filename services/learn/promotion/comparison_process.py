"""Steps 14 and 17 of the way of a reading: the process that compares models, which lives while it is needed."""

from __future__ import annotations

import threading
from typing import Any

import ray

from services.errors import HothouseError, TrainingError
from services.learn.promotion.comparison_actor import ComparisonActor

__all__ = ["ComparisonProcess"]

TIMEOUT_S = 300.0


class ComparisonProcess:
    """Started when something is asked, ended by :meth:`end` or when it is lost. One question at a time."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._actor: Any = None

    def ask(self, method: str, *arguments: Any) -> Any:
        """What a method of the actor gives.

        Raises our own errors that it raises, and :class:`TrainingError` where the process was lost or is late.
        """
        with self._asking:
            if self._actor is None:
                self._actor = ray.remote(num_cpus=0)(ComparisonActor).remote()
            try:
                return ray.get(getattr(self._actor, method).remote(*arguments), timeout=TIMEOUT_S)
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, HothouseError):
                    raise error.cause from error
                raise TrainingError(f"the comparison failed: {type(error.cause).__name__}: {error.cause}") from error
            except ray.exceptions.RayError as error:
                self._end()
                first = (str(error).splitlines() or ["no answer"])[0]
                raise TrainingError(f"the process that compares was lost: {first}") from error

    def end(self) -> None:
        """End the process: the models that it has loaded leave memory."""
        with self._asking:
            self._end()

    def _end(self) -> None:
        if self._actor is not None:
            ray.kill(self._actor)
            self._actor = None
