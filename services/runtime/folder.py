"""The data folder: made when it is missing, used by one running system at a time."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import TextIO

from services.errors import ConfigError, StartError

__all__ = ["LOCK_FILE", "FolderLock"]

LOCK_FILE = "lock"


class FolderLock:
    """Holds a data folder; the kernel releases it when the process dies.

    Raises :class:`ConfigError` when the folder cannot be made or written, :class:`StartError` when another system
    holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: TextIO | None = None

    def __enter__(self) -> FolderLock:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = (self._folder / LOCK_FILE).open("w")
        except OSError as error:
            raise ConfigError(
                f"data_dir is {str(self._folder)!r}: it must be a folder that can be written ({error.strerror})",
                "Choose another with data_dir.",
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise StartError(
                f"another Hothouse already runs on {self._folder}", "Stop it, or choose another folder with data_dir."
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
