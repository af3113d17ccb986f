"""``pretrain ... --upload``: the artefact in the storage, too, for a machine that is gone when it has trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from services.cli.base import options_of

if TYPE_CHECKING:
    from services.store.storage import Storage

__all__ = ["open_for_upload", "upload"]

FOLDER, MANIFEST = "pretrained", "manifest.json"


def open_for_upload(ctx: typer.Context) -> Storage:
    """The storage of the settings. Raises :class:`StorageError` now where it does not answer, and not after hours."""
    from services.store.storage import storage_of

    storage = storage_of(options_of(ctx).settings())
    storage.list_folder(FOLDER)
    return storage


def upload(storage: Storage, artefact: Path) -> str:
    """Put an artefact's files into the storage, the manifest last; the folder's name there, which its weights give.

    Raises :class:`StorageError`.
    """
    weights: str = json.loads((artefact / MANIFEST).read_text())["weights_sha256"]
    folder = f"{FOLDER}/{weights[:12]}"
    for path in sorted(artefact.iterdir(), key=lambda path: (path.name == MANIFEST, path.name)):
        storage.put(f"{folder}/{path.name}", path.read_bytes())
    return folder
