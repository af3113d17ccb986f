"""Step 15 of the way of a reading: a model's folder on the storage, and a copy of it on each machine that uses it.

Models are read as files. Where the storage is a folder, that is where they are. Where it is an object store, a machine
has the folder under the same path, as a copy of ``models/{name}/``, which is fetched when it is first wanted.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from services.errors import NotStoredError
from services.store.storage.open_storage import open_storage
from services.store.storage.storage import Storage
from services.store.storage.storage_address import StorageAddress

__all__ = ["fetch_folder", "forget_folder", "keep_folder"]

MODELS = "models"


def keep_folder(where: StorageAddress | None, folder: Path) -> None:
    """Put a model's folder onto the storage, the manifest last. Raises ``OSError``.

    ``where`` is ``None`` where the storage is a folder: then it is there already.
    """
    if where is None:
        return
    storage = open_storage(where)
    for path in sorted((one for one in folder.iterdir() if one.is_file()), key=lambda one: one.suffix == ".json"):
        _put(storage, path, f"{MODELS}/{folder.name}/{path.name}")


def fetch_folder(where: StorageAddress | None, folder: Path) -> None:
    """Have the folder on this machine, where the storage has it: whole or not at all. Raises ``OSError``."""
    if where is None or folder.exists():
        return
    storage, key = open_storage(where), f"{MODELS}/{folder.name}"
    names = storage.list_folder(key).names
    if not names:
        return  # whoever wants it says that it is missing
    made = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    made.mkdir(parents=True)
    try:
        for name in names:
            (made / name).write_bytes(storage.read(f"{key}/{name}").content)
        if not folder.exists():
            made.rename(folder)
    except NotStoredError:
        return  # removed meanwhile
    finally:
        shutil.rmtree(made, ignore_errors=True)


def forget_folder(where: StorageAddress | None, folder: Path) -> None:
    """Remove a model from the storage; this machine's folder is the caller's. Raises ``OSError``."""
    if where is None:
        return
    storage, key = open_storage(where), f"{MODELS}/{folder.name}"
    for name in storage.list_folder(key).names:
        storage.delete(f"{key}/{name}")


def _put(storage: Storage, path: Path, key: str) -> None:
    def fill(beside: Path) -> None:
        shutil.copyfile(path, beside)

    storage.put_new(key, fill)
