"""What a folder does that other storages need not."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.store.storage.folder_storage import FolderStorage


@pytest.mark.timeout(30)
@pytest.mark.parametrize("replaces", [False, True])
def test_a_file_that_another_writer_removed_half_written_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaces: bool
) -> None:
    """The writer had the lock by then, and does not wait for itself."""
    storage, rename, removed = FolderStorage(tmp_path), Path.replace, []
    version = storage.put_new("slot.json", b"old") if replaces else ""

    def vanish(self: Path, target: Path) -> Path:
        if not removed:
            removed.append(self.name)
            self.unlink()
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", vanish)
    if replaces:
        storage.swap("slot.json", b"new", version)
    else:
        storage.put_new("slot.json", b"new")
    assert removed
    assert storage.read("slot.json").content == b"new"
