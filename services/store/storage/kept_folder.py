"""Step 15 of the way of a reading: a model's folder on the storage, and a copy of it on each machine that uses it.

Models are read as files. Where the storage is a folder, that is where they are. Where it is an object store, a machine
has the folder under the same path, as a copy of ``models/{name}/``, which is fetched when it is first wanted.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path

from services.errors import NotStoredError, StorageError
from services.store.storage.open_storage import open_storage
from services.store.storage.storage import Storage
from services.store.storage.storage_address import StorageAddress

__all__ = ["fetch_folder", "forget_folder", "keep_folder"]

MODELS, FILES = "models", "files.json"


def keep_folder(where: StorageAddress | None, folder: Path) -> None:
    """Put a model's folder onto the storage, and last the names of its files. Raises ``OSError``; of these
    :class:`AlreadyStoredError` where a model of that name is there with other files.

    ``where`` is ``None`` where the storage is a folder: then it is there already.
    """
    if where is None:
        return
    storage, paths = open_storage(where), sorted(path for path in folder.iterdir() if path.is_file())
    for path in paths:
        _put(storage, path, f"{MODELS}/{folder.name}/{path.name}")
    storage.put_new(f"{MODELS}/{folder.name}/{FILES}", json.dumps([path.name for path in paths]).encode())


def fetch_folder(where: StorageAddress | None, folder: Path) -> None:
    """Have the folder on this machine, where the storage has it: whole or not at all. Raises ``OSError``."""
    if where is None or folder.exists():
        return
    storage, key = open_storage(where), f"{MODELS}/{folder.name}"
    names = _names(storage, key)
    if not names:
        return  # whoever wants it says that it is missing
    made = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    made.mkdir(parents=True)
    try:
        for name in names:
            with (made / name).open("wb") as file:
                file.write(storage.read(f"{key}/{name}").content)
                file.flush()
                os.fsync(file.fileno())
        try:
            made.rename(folder)
        except OSError:  # another process was faster
            if not folder.exists():
                raise
    except NotStoredError:
        return  # removed meanwhile
    finally:
        shutil.rmtree(made, ignore_errors=True)


def forget_folder(where: StorageAddress | None, folder: Path) -> None:
    """Remove a model from the storage; this machine's folder is the caller's. Raises ``OSError``."""
    if where is None:
        return
    storage, key = open_storage(where), f"{MODELS}/{folder.name}"
    for name in (*_names(storage, key), FILES):
        storage.delete(f"{key}/{name}")


def _names(storage: Storage, key: str) -> list[str]:
    """Not by a list, which may lag behind; but for models that somebody copied there."""
    try:
        names = [str(name) for name in json.loads(storage.read(f"{key}/{FILES}").content)]
    except NotStoredError:
        return list(storage.list_folder(key).names)
    for name in names:
        if Path(name).name != name or name == "..":  # whoever may write there must not write elsewhere on this machine
            raise StorageError(f"{key}/{FILES} names {name!r}, which is no file's name")
    return names


def _put(storage: Storage, path: Path, key: str) -> None:
    def fill(beside: Path) -> None:
        shutil.copyfile(path, beside)

    storage.put_new(key, fill)
