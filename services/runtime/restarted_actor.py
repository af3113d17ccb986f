"""An actor that Ray restarts while what it needs is away."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from edge.log import LogError
from services.errors import HistoryError, StartError

__all__ = ["RESTART_S", "restarted_until_it_can_begin"]

_log = logging.getLogger(__name__)

RESTART_S = 3.0
"""A process that starts costs some seconds of a processor."""


@contextmanager
def restarted_until_it_can_begin() -> Iterator[None]:
    """Around what an actor's constructor needs of the log and the storage.

    Ray gives an actor up for good whose constructor raises, also where it restarts it: one that died while its storage
    was away would be lost with it. At the first start what is raised stops the start of the system.
    """
    try:
        yield
    except (LogError, HistoryError, StartError, OSError) as error:
        if ray.get_runtime_context().was_current_actor_reconstructed:
            _log.error("it cannot begin yet, and is restarted: %s", error)
            time.sleep(RESTART_S)
            os._exit(1)
        raise
