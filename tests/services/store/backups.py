"""Where backups of tests come from and go to."""

from __future__ import annotations

from pathlib import Path

from services.store.storage import FolderStorage, MemoryServer, ObjectStorage, Storage

__all__ = ["bucket_of", "folder_of", "quiet"]


def quiet(_count: int, _size: int) -> None:
    """Nobody looks at the progress."""


def folder_of(root: Path) -> Storage:
    """The folder."""
    return FolderStorage(root / "storage")


def bucket_of(_root: Path) -> Storage:
    """The bucket."""
    return ObjectStorage(MemoryServer())
