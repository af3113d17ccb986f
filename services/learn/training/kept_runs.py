"""Step 13 of the way of a reading: what a training that is under way keeps on the storage, ``train/{name}/``.

The end of each epoch is an object, in a folder or a bucket, which a training of the same name goes on from, on another
machine, too. Ray Train's checkpoints are not used: one that finds no room ends the training.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from services.errors import NotStoredError
from services.store.storage import FolderStorage, Storage, StorageAddress, open_storage

if TYPE_CHECKING:
    from models.network.progress import TrainingProgress  # trees are trained without torch

__all__ = ["KEPT_RUNS", "TRAININGS", "KeptRuns"]

TRAININGS = "train"
"""Folder of the storage for trainings."""
KEPT_RUNS = 3
"""How many trainings stay on the storage, so that people can look into a run."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptRuns:
    """The trainings in a ``folder`` of a machine; ``where`` is the bucket that keeps them, ``None`` for the folder."""

    folder: Path
    where: StorageAddress | None = None

    @property
    def storage(self) -> Storage:
        """Where they are kept."""
        return FolderStorage(self.folder) if self.where is None else open_storage(self.where)

    def key(self, name: str, file: str = "") -> str:
        """A file of a training on :attr:`storage`, or the training's folder."""
        return "/".join(filter(None, (self._root, name, file)))

    def names(self) -> list[str]:
        """Trainings that keep anything, by name."""
        return list(self.storage.list_folder(self._root).folders)

    def keep(self, name: str, progress: TrainingProgress) -> None:
        """Put the end of an epoch onto the storage. Where that cannot be done, as on a disk that is full, the training
        goes on all the same.
        """
        from models.network.progress import PROGRESS_FILE

        try:
            with tempfile.TemporaryDirectory(prefix="hothouse-epoch-") as folder:
                progress.save(Path(folder))
                content = Path(folder, PROGRESS_FILE).read_bytes()
            self.storage.put(self.key(name, PROGRESS_FILE), content)
        except OSError as error:
            _log.warning("an epoch of %s is not kept: %s", name, error)

    def kept(self, name: str) -> TrainingProgress | None:
        """Where a training stopped, if it did. Raises :class:`ProgressError`."""
        from models.network.progress import PROGRESS_FILE, ProgressError, TrainingProgress

        try:
            content = self.storage.read(self.key(name, PROGRESS_FILE)).content
        except NotStoredError:
            return None
        except OSError as error:
            raise ProgressError(str(error)) from error
        try:
            with tempfile.TemporaryDirectory(prefix="hothouse-epoch-") as folder:
                Path(folder, PROGRESS_FILE).write_bytes(content)
                return TrainingProgress.load(Path(folder))
        except OSError as error:
            raise ProgressError(str(error)) from error

    def forget_old(self, coming: str) -> None:
        """Leave the newest, of which the coming one is one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        here = sorted(path.name for path in self.folder.iterdir() if path.is_dir() and path.name != coming)
        for name in here[: -(KEPT_RUNS - 1)]:
            shutil.rmtree(self.folder / name, ignore_errors=True)
        if self.where is None:
            return
        for name in sorted(name for name in self.names() if name != coming)[: -(KEPT_RUNS - 1)]:
            for file in self.storage.list_folder(self.key(name)).names:
                self.storage.delete(self.key(name, file))

    @property
    def _root(self) -> str:
        return "" if self.where is None else TRAININGS
