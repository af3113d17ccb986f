"""A data folder that was moved, or brought back elsewhere: what names files in it by their path follows.

The pointers to what serves, and the registry where it is an SQLite file. Rows, snapshots and the log name no paths.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import suppress

from services.config import Settings
from services.errors import ModelFilesError
from services.learn.experts import EXPERTS
from services.learn.promotion.artefact_files import MODELS
from services.learn.tracking.registry_file import REGISTRY_FILE, artefact_root, move_artefacts
from services.store.pointer import Pointer
from services.store.storage import Storage

__all__ = ["bring_along"]

_log = logging.getLogger(__name__)


def bring_along(settings: Settings, storage: Storage) -> None:
    """Have models be looked for where they are now, while nothing runs on the state. Changes nothing otherwise."""
    for expert in EXPERTS.values():
        with suppress(ModelFilesError):  # a pointer that cannot be read: whoever follows it says so
            Pointer(storage, expert.name).bring_along(settings.storage_folder / MODELS)
    registry = settings.data_dir / REGISTRY_FILE
    if settings.learn.mlflow_uri or not registry.exists():
        return
    names = frozenset(expert.registered for expert in EXPERTS.values())
    try:
        if move_artefacts(registry, artefact_root(settings.storage_folder), names):
            _log.warning(
                "the data folder has moved to %s: the registry's files are looked for there", settings.data_dir
            )
    except sqlite3.Error as error:
        _log.warning("the paths in %s were not looked at: %s", registry, error)
