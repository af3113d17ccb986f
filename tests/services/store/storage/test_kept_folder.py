"""A model's folder on an object store: a name stands for one content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from services.errors import AlreadyStoredError
from services.store.storage import MemoryServer, ObjectStorage, StorageAddress, keep_folder, kept_folder


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "weights.safetensors").write_bytes(b"other"),
        lambda folder: (folder / "more.json").write_bytes(b"{}"),
        lambda folder: (folder / "weights.safetensors").unlink(),
    ],
    ids=["another content", "a file more", "a file fewer"],
)
def test_a_name_is_not_used_for_another_model(
    change: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same folder again changes nothing; one of that name with other files is refused, and the first stays."""
    server = MemoryServer()
    monkeypatch.setattr(kept_folder, "open_storage", lambda _: ObjectStorage(server))
    where, folder = StorageAddress(url="s3://b"), tmp_path / "v1"
    folder.mkdir()
    (folder / "manifest.json").write_bytes(b"{}")
    (folder / "weights.safetensors").write_bytes(b"weights")
    keep_folder(where, folder)
    keep_folder(where, folder)
    names = server.objects["models/v1/files.json"].content
    change(folder)
    with pytest.raises(AlreadyStoredError):
        keep_folder(where, folder)
    assert server.objects["models/v1/files.json"].content == names
    assert server.objects["models/v1/weights.safetensors"].content == b"weights"
