"""An actor that Ray restarts while what it needs is away."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from edge.log import LogError
from services.errors import HistoryError, HothouseError, SnapshotError, StartError

__all__ = ["RESTART_S", "restarted_until_it_can_begin"]

_log = logging.getLogger(__name__)

_MENDED = (LogError, HistoryError, SnapshotError, StartError, OSError)
"""What may be over by itself, or once somebody has mended it."""
RESTART_S = 3.0
"""A process that starts costs some seconds of a processor."""


@contextmanager
def restarted_until_it_can_begin() -> Iterator[None]:
    """Around what an actor's constructor needs of the log and the storage.

    Ray gives an actor up for good whose constructor raises, also where it restarts it: one that died while its storage
    was away would be lost with it. At the first start what is raised stops the start of the system: with what to do in
    its text, as nothing else of it reaches who starts.
    """
    try:
        yield
    except (LogError, HothouseError, OSError) as error:
        if isinstance(error, HothouseError):
            error.args = (error.words,)
        if isinstance(error, _MENDED) and ray.get_runtime_context().was_current_actor_reconstructed:
            _log.error("it cannot begin yet, and is restarted: %s", error)
            time.sleep(RESTART_S)
            os._exit(1)
        raise
