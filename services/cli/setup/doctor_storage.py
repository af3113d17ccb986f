"""Does the storage do what writers rely on? A bucket is written to and cleaned up; a folder is checked with the data
folder.
"""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Callable
from dataclasses import replace

from services.cli.setup.check import Check, CheckState
from services.config import Settings
from services.errors import AlreadyStoredError, ChangedError, HothouseError

__all__ = ["check_storage"]

NAME = "storage"
FOLDER = "doctor"
PATIENCE_S = 3.0


def check_storage(settings: Settings) -> Check | None:
    """Whether the bucket lets us write, list and remove, and refuses a second writer; ``None`` for a folder."""
    if not settings.storage.url:
        return None
    if importlib.util.find_spec("obstore") is None:
        return Check(NAME, CheckState.FAIL, "obstore is not installed", "pip install '.[cluster]' in Hothouse's folder")
    from services.store.storage import address_of, open_storage

    try:
        storage = open_storage(replace(address_of(settings), retry_s=PATIENCE_S))
        key = f"{FOLDER}/{uuid.uuid4().hex}"
        version = storage.put_new(key, b"1")
        try:
            fences = _refuses(lambda: storage.put_new(key, b"2"))
            storage.swap(key, b"3", version)
            fences &= _refuses(lambda: storage.swap(key, b"4", version))
            storage.list_folder(FOLDER)
        finally:
            storage.delete(key)
    except HothouseError as error:
        return Check(NAME, CheckState.FAIL, error.message, error.hint)
    if not fences:
        return Check(
            NAME, CheckState.FAIL, f"{storage.url} does not heed conditions (If-Match, If-None-Match)",
            "Two writers could destroy each other's work there: use a server that has conditional writes.",
        )  # fmt: skip
    return Check(NAME, CheckState.OK, f"{storage.url} can be written, and refuses a second writer")


def _refuses(write: Callable[[], object]) -> bool:
    try:
        write()
    except (AlreadyStoredError, ChangedError):
        return True
    return False
