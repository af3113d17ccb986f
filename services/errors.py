"""All errors that Hothouse raises on purpose.

Foreign errors are translated where they enter (``raise … from error``). The message is one sentence for a person;
``hint`` says what to do next.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "LOOK_AT_THE_DISK",
    "NO_ROOM",
    "AlreadyStoredError",
    "BackupError",
    "ChangedError",
    "ConfigError",
    "FirstError",
    "HistoryError",
    "HothouseError",
    "ModelFilesError",
    "NotStoredError",
    "PromotionRefusedError",
    "RegistryError",
    "RegistryRefusedError",
    "SnapshotError",
    "StartError",
    "StorageAwayError",
    "StorageError",
    "StorageRefusedError",
    "TrainingError",
    "words_of",
]

LOOK_AT_THE_DISK = "Look whether its disk is there and has room, and whether you may read and write there."
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""The numbers of an ``OSError`` that says that a disk is full."""


class FirstError:
    """Does all parts of a work though some fail: ``with first.kept(): ...`` for each, and at the end of ``with first``
    the first error is raised.

    >>> done = []
    >>> with FirstError(ValueError) as first:
    ...     for text in ("x", "2"):
    ...         with first.kept():
    ...             done.append(int(text))
    Traceback (most recent call last):
    ValueError: invalid literal for int() with base 10: 'x'
    >>> done
    [2]
    """

    def __init__(self, *kinds: type[Exception]) -> None:
        self._kinds = kinds
        self._error: Exception | None = None

    def __enter__(self) -> FirstError:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._error is not None:
            raise self._error

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Around a part."""
        try:
            yield
        except self._kinds as error:
            self._error = self._error or error


class HothouseError(Exception):
    """Base of all; ``exit_code`` is what the command line answers with."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def words(self) -> str:
        """The message and what to do next, in one line."""
        return f"{self.message.rstrip('.')}. {self.hint}" if self.hint else self.message


def words_of(error: BaseException) -> str:
    """Any error in one line for people: one of ours with what to do next, another with its kind.

    >>> words_of(KeyError("zone")), words_of(HothouseError("no such model", "List them."))
    ("KeyError: 'zone'", 'no such model. List them.')
    """
    return error.words if isinstance(error, HothouseError) else f"{type(error).__name__}: {error}"


class ConfigError(HothouseError):
    """A setting is wrong: the message names it, its value and what is allowed."""

    exit_code = 2


class StartError(HothouseError):
    """A part of the system did not come up."""

    exit_code = 3


class StorageError(HothouseError, OSError):
    """The storage does not do what it is asked; an ``OSError``, as that of a folder is."""


class StorageAwayError(StorageError):
    """It does not answer, or is too busy. Whether it has done what it was asked nobody knows; it may be asked again,
    after ``pause_s`` at the earliest.
    """

    def __init__(self, message: str, hint: str = "", pause_s: float = 0.0) -> None:
        super().__init__(message, hint)
        self.pause_s = pause_s


class StorageRefusedError(StorageError):
    """It answers, and refuses: the same request would be refused again, with the same credentials."""


class NotStoredError(StorageError, FileNotFoundError):
    """There is no object of that name."""


class AlreadyStoredError(StorageError, FileExistsError):
    """There is an object of that name, with another content."""


class ChangedError(StorageError):
    """The object is not the one any more that was to be replaced: another writer was faster."""


class BackupError(HothouseError):
    """A backup cannot be made, is not whole, or has no empty place to go to."""


class HistoryError(HothouseError):
    """The Parquet history could not be read or written."""


class SnapshotError(HothouseError):
    """A snapshot is torn, corrupt or of a format that is not read."""


class TrainingError(HothouseError):
    """A training run did not produce a model; the champion stays."""


class TooLittleHistoryError(TrainingError):
    """There are too few rows yet to learn from: a training waits for more."""


class ModelFilesError(HothouseError):
    """A model's files are missing, corrupt or do not reproduce their golden output."""


class PromotionRefusedError(HothouseError):
    """A model may not become champion; the message gives the reason."""


class RegistryError(HothouseError):
    """The model registry (MLflow) does not answer; what serves goes on serving."""


class RegistryRefusedError(RegistryError):
    """The model registry answers, and refuses: the same request would be refused again."""
