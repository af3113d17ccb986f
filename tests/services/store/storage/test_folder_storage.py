"""What a folder does that other storages need not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from services.errors import AlreadyStoredError, StorageError
from services.store.storage.folder_storage import FolderStorage


@pytest.mark.timeout(30)
def test_a_new_object_waits_for_nobody(tmp_path: Path) -> None:
    """A writer that hangs while it holds the lock stops others from replacing what is there, and from nothing else."""
    storage = FolderStorage(tmp_path)
    with storage._locked():
        storage.put_new("new", b"1")
        with pytest.raises(AlreadyStoredError, match="new is there already"):
            storage.put_new("new", b"2")
    assert storage.read("new").content == b"1"


@pytest.mark.timeout(30)
@pytest.mark.parametrize("replaces", [False, True])
def test_a_file_that_another_writer_removed_half_written_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaces: bool
) -> None:
    """One that replaces has the lock by then, and does not wait for itself."""
    storage, rename, link, removed = FolderStorage(tmp_path), Path.replace, os.link, list[str]()
    version = storage.put_new("slot.json", b"old") if replaces else ""

    def vanish(self: Path, target: Path) -> Path:
        if not removed:
            removed.append(self.name)
            self.unlink()
        return rename(self, target)

    def vanish_new(beside: Path, target: Path) -> None:
        if not removed:
            removed.append(beside.name)
            beside.unlink()
        link(beside, target)

    monkeypatch.setattr(Path, "replace", vanish)
    monkeypatch.setattr(os, "link", vanish_new)
    if replaces:
        storage.swap("slot.json", b"new", version)
    else:
        storage.put_new("slot.json", b"new")
    assert removed
    assert storage.read("slot.json").content == b"new"


@pytest.mark.parametrize("key", ["{}/elsewhere", "../elsewhere", "folder/../../elsewhere", "folder//elsewhere"])
def test_a_key_leads_nowhere_else(tmp_path: Path, key: str) -> None:
    """What a file that somebody forged says is no way out of the folder."""
    (tmp_path / "elsewhere").write_text("of before")
    storage, key = FolderStorage(tmp_path / "storage"), key.format(tmp_path)
    storage.put("folder/object", b"")
    asks: list[Callable[[], object]] = [
        lambda: storage.read(key), lambda: storage.put(key, b"new"), lambda: storage.put_new(key, b"new"),
        lambda: storage.delete(key), lambda: storage.list_folder(key), lambda: storage.local(key),
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(StorageError, match="is no name of an object"):
            ask()
    assert (tmp_path / "elsewhere").read_text() == "of before"
    assert storage.list_folder("").folders == ("folder",)
