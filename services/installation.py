"""Which installation this is: a random id that lies with the state, and the names on a Ray cluster that follow from it.

Two installations may run on one Ray cluster. Neither then sees, nor ends, the actors of the other.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from services.config import Settings
from services.errors import StartError

__all__ = ["INSTALLATION_FILE", "app_name_of", "installation_of", "namespace_of"]

INSTALLATION_FILE = "installation"
_ID_LENGTH = 12
_OWN_APP = "hothouse"


def installation_of(storage: Path) -> str:
    """The id of the installation whose state lies in ``storage``; made where there is none, by whoever is first.

    Raises :class:`StartError` if the file cannot be read or made, or holds no id.
    """
    path = storage / INSTALLATION_FILE
    try:
        if not path.exists():
            storage.mkdir(parents=True, exist_ok=True)
            beside = storage / f".{INSTALLATION_FILE}-{secrets.token_hex(8)}"
            try:
                beside.write_text(secrets.token_hex(_ID_LENGTH // 2) + "\n")
                with suppress(FileExistsError):  # another process was first: its id holds
                    _publish(beside, path)
            finally:
                beside.unlink(missing_ok=True)
        found = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"the id of this installation cannot be kept in {path}: {error}") from error
    if len(found) != _ID_LENGTH or not set(found) <= set("0123456789abcdef"):
        raise StartError(
            f"{path} holds no id of an installation", "Remove it while nothing runs: the next start makes another."
        )
    return found


def _publish(beside: Path, path: Path) -> None:
    """Give a whole file its name, which it gets once; raises ``FileExistsError`` if that is taken."""
    try:
        os.link(beside, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        with path.open("x") as file:
            file.write(beside.read_text())


def namespace_of(settings: Settings) -> str:
    """The Ray namespace that all actors of this installation are in."""
    return f"hothouse-{installation_of(settings.storage_folder)}"


def app_name_of(settings: Settings) -> str:
    """The name of the Serve application: on a cluster of others no two installations may have the same."""
    return namespace_of(settings) if settings.ray.address else _OWN_APP
