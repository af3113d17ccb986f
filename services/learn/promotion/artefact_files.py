"""Step 15 of the way of a reading: the files of registered models, checked before anybody loads them.

What a registry says of a model's files is not trusted: whoever may write into MLflow may write any path.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from models.artefact import ArtefactError, check_size
from models.families import UnknownFamilyError, takes_of
from services.errors import ModelFilesError, StorageAwayError
from services.learn.experts import NETWORK, Expert
from services.store.storage import FolderStorage, fetch_folder, forget_folder, open_storage

if TYPE_CHECKING:
    from services.store.storage import Storage, StorageAddress

__all__ = ["MODELS", "ArtefactFiles", "check_files", "check_fits"]

MODELS = "models"
"""The folder of artefacts in the storage."""
MANIFEST = "manifest.json"
WEIGHTS, GOLDEN = "weights.safetensors", "golden.safetensors"


class ArtefactFiles:
    """The artefacts in the folder ``models`` of ``storage``, this machine's copy of what the object store ``where``
    keeps, if there is one.
    """

    def __init__(self, storage: Path, where: StorageAddress | None) -> None:
        self._storage, self._where = storage, where

    @property
    def storage(self) -> Storage:
        """Where artefacts are kept."""
        return FolderStorage(self._storage) if self._where is None else open_storage(self._where)

    def fetch(self, said: str, weights_sha256: str) -> Path:
        """The folder ``said`` of an artefact, on this machine and whole.

        Raises :class:`ModelFilesError` when it is torn or gone, or is no model of this storage, and
        :class:`StorageAwayError` where nobody can know that now.
        """
        folder = self._here(said)
        if folder is None:
            raise ModelFilesError(f"its files are said to be in {said}, which is no model of {self._storage}")
        try:
            fetch_folder(self._where, folder)
        except StorageAwayError:
            raise
        except OSError as error:
            raise ModelFilesError(f"the artefact {folder.name} cannot be had: {error}") from error
        check_files(folder, weights_sha256)
        return folder

    def remove(self, said: str) -> None:
        """Remove an artefact, here and from the object store; not one of another place. Raises ``OSError``."""
        if (folder := self._here(said)) is not None:
            forget_folder(self._where, folder)
            with suppress(FileNotFoundError):
                shutil.rmtree(folder)

    def _here(self, said: str) -> Path | None:
        """Where the model that ``said`` names is here; ``None`` for what is no model of this storage.

        A data folder that was moved, or brought back elsewhere, has its models under the names that they had.
        """
        folder = Path(said)
        if self._is_ours(folder):
            return folder
        moved = self._storage / MODELS / folder.name
        there = self._where is not None or moved.exists()  # an object store brings it
        return moved if there and self._is_ours(moved) else None

    def _is_ours(self, folder: Path) -> bool:
        """Whether it is a model of the storage; a tag may say anything, and a link may lead anywhere."""
        return folder.resolve().parent == (self._storage / MODELS).resolve()


def check_files(folder: Path, weights_sha256: str) -> None:
    """Whether an artefact is whole, without loading it; raises :class:`ModelFilesError`.

    This finds what a disk or a copy does to files. Whether the model reproduces its golden output is checked when it
    is saved and again by every replica before it swaps.
    """
    try:
        for name in (MANIFEST, WEIGHTS, GOLDEN):
            check_size(folder / name)
        manifest = json.loads((folder / MANIFEST).read_bytes())
        found, golden = _digest(folder / WEIGHTS), _digest(folder / GOLDEN)
    except (OSError, ValueError, RecursionError, ArtefactError) as error:
        raise ModelFilesError(f"the artefact in {folder} cannot be read: {error}") from error
    if not isinstance(manifest, dict):
        raise ModelFilesError(f"the artefact in {folder} cannot be read: {MANIFEST} is not an object")
    if found != weights_sha256:
        raise ModelFilesError(f"the weights in {folder} are not those that were registered (SHA-256 {found[:12]}...)")
    if golden != manifest.get("golden_sha256"):
        raise ModelFilesError(f"{folder / GOLDEN} is torn or altered: its SHA-256 is not the manifest's")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_fits(folder: Path, schema_hash: str, expert: Expert) -> None:
    """Whether an artefact that is whole was made for ``schema_hash`` and for this expert's place; raises
    :class:`ModelFilesError`.
    """
    manifest = json.loads((folder / MANIFEST).read_bytes())
    made_for, kind = manifest.get("schema_hash"), manifest.get("kind", NETWORK.name)
    if made_for != schema_hash:
        raise ModelFilesError(
            f"it was made for schema {made_for}, rows now have {schema_hash}",
            "Train a model for these settings, or set step, targets, horizons and look-back as they were.",
        )
    try:
        takes = takes_of(kind)
    except UnknownFamilyError as error:
        raise ModelFilesError(
            str(error), "Another version of Hothouse made it; train one with this version."
        ) from error
    if takes != expert.takes:
        raise ModelFilesError(f"a model of kind {kind} takes {takes}, the {expert.name} takes {expert.takes}")
