"""Which installation this is: a random id that lies with the state, and the names on a Ray cluster that follow from it.

Two installations may run on one Ray cluster. Neither then sees, nor ends, the actors of the other. The data folder
remembers the id: a storage that is empty all at once is not mounted, or another one, and no new installation.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from services.config import Settings
from services.errors import AlreadyStoredError, NotStoredError, StartError
from services.store.files import write_atomically
from services.store.storage import Storage, storage_of, stored_in

__all__ = [
    "INSTALLATION_FILE",
    "KNOWN_FILE",
    "app_name_of",
    "installation_of",
    "namespace_of",
    "refuse_an_emptied_storage",
    "remember_installation",
]

INSTALLATION_FILE = "installation"
KNOWN_FILE = "known-installation"
"""In the data folder."""
_STATE = frozenset({"snapshots", "history"})
_ID_LENGTH = 12
_OWN_APP = "hothouse"


def installation_of(root: Storage | Path) -> str:
    """The id of the installation whose state lies in a storage; made where there is none, by whoever is first.

    Raises :class:`StartError` if it cannot be read or made, or is no id.
    """
    storage = stored_in(root)
    where = storage.address(INSTALLATION_FILE)
    try:
        try:
            content = storage.read(INSTALLATION_FILE).content
        except NotStoredError:
            with suppress(AlreadyStoredError):  # another process was first: its id holds
                storage.put_new(INSTALLATION_FILE, f"{secrets.token_hex(_ID_LENGTH // 2)}\n".encode())
            content = storage.read(INSTALLATION_FILE).content
        found = content.decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"the id of this installation cannot be kept in {where}: {error}") from error
    if len(found) != _ID_LENGTH or not set(found) <= set("0123456789abcdef"):
        raise StartError(
            f"{where} holds no id of an installation", "Remove it while nothing runs: the next start makes another."
        )
    return found


def refuse_an_emptied_storage(data_dir: Path, storage: Storage) -> None:
    """Raises :class:`StartError` where a storage holds nothing and ``data_dir`` has worked with one that did.

    Called before anything is written to it: what a folder that is not mounted gets is hidden once it is. A new data
    folder remembers nothing, and a storage that was restored holds something.
    """
    known = data_dir / KNOWN_FILE
    if not known.exists() or storage.entry(INSTALLATION_FILE) is not None:
        return
    if not _STATE.intersection(storage.list_folder("").folders):
        raise StartError(
            f"{storage.url} is empty, and {data_dir} belongs to the installation {known.read_text().strip()}",
            f"Mount it, or name the earlier storage. To begin anew on an empty one, remove {known}.",
        )


def remember_installation(data_dir: Path, storage: Storage) -> None:
    """Write into the data folder which installation it belongs to. Raises :class:`StartError`."""
    known, found = data_dir / KNOWN_FILE, installation_of(storage)

    def fill(beside: Path) -> None:
        beside.write_text(f"{found}\n")

    try:
        if not known.exists() or known.read_text().strip() != found:
            write_atomically(known, fill)
    except OSError as error:
        raise StartError(f"the id of this installation cannot be kept in {known}: {error}") from error


def namespace_of(settings: Settings) -> str:
    """The Ray namespace that all actors of this installation are in."""
    return f"hothouse-{installation_of(storage_of(settings))}"


def app_name_of(settings: Settings) -> str:
    """The name of the Serve application: on a cluster of others no two installations may have the same."""
    return namespace_of(settings) if settings.ray.address else _OWN_APP
