"""Ray for a test, started with patience and ended whatever happens; and its processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import ray

from services.config import Settings
from services.installation import INSTALLATION_FILE
from services.runtime.ray_runtime import NOT_IN_TIME

__all__ = ["NAMESPACE", "installed", "local_ray", "once_more", "processes"]

INSTALLATION = "0123456789ab"
NAMESPACE = f"hothouse-{INSTALLATION}"
"""Where the actors of :func:`installed` settings are."""


def installed(settings: Settings) -> Settings:
    """The same settings, whose state is that of the installation that tests with stand-ins for its actors share."""
    settings.storage_folder.mkdir(parents=True, exist_ok=True)
    (settings.storage_folder / INSTALLATION_FILE).write_text(INSTALLATION)
    return settings


@contextmanager
def local_ray(**options: Any) -> Iterator[None]:
    """A runtime of two logical CPUs; ``options`` of ``ray.init`` besides."""
    wanted = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 100_000_000, "log_to_driver": False}

    def start() -> None:
        ray.shutdown()  # what an earlier test, or a first try, has left
        ray.init(**wanted | options)

    try:
        once_more(start)
        yield
    finally:
        ray.shutdown()


def once_more(start: Callable[[], Any]) -> Any:
    """Start a node, at the second try if need be: Ray gives one 30 s, however busy the machine is."""
    try:
        return start()
    except Exception as error:  # Ray's own for this is a plain one
        if NOT_IN_TIME not in str(error):
            raise
    return start()


def processes(title: str) -> list[psutil.Process]:
    """Ours whose command line begins with ``title``."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if " ".join(process.cmdline()).startswith(title):
                found.append(process)
        except psutil.Error:
            continue
    return found
