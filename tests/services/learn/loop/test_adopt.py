"""A submitted model that finds no room on the storage: it is no model's fault, and nothing of it stays."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from services.config import load_settings
from services.errors import StorageError, TrainingError
from services.learn.experts import NETWORK
from services.learn.loop.cluster import RayCluster
from services.learn.promotion import submitted_model
from services.learn.promotion.submitted_model import submitted_candidate

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(("name", "error"), [("copyfile", FULL), ("keep", FULL), ("keep", StorageError("it is away"))])
def test_a_model_that_finds_no_room_is_not_called_torn(
    name: str, error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was answered with an internal error, or registered as one that cannot be read."""

    def full(*_: Any, **__: Any) -> None:
        raise error

    cluster, made = RayCluster(load_settings(data_dir=tmp_path / "data")), tmp_path / "made"
    made.mkdir()
    for file in submitted_model.ARTEFACT_FILES:
        (made / file).write_text("{}")
    monkeypatch.setattr(cluster, "newest_ms", lambda: 5)
    if name == "keep":
        monkeypatch.setattr(submitted_model, "keep_folder", full)
    else:
        monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(TrainingError, match=r"cannot be copied to the storage: .*(No space left|away)"):
        cluster.adopt(str(made), cluster.new_copy())
    assert list((tmp_path / "data/storage/models").iterdir()) == []


def test_a_model_of_another_expert_is_refused_and_leaves_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is told also where the copy in the object store cannot be removed just now."""
    made = tmp_path / "made"
    made.mkdir()
    for file in submitted_model.ARTEFACT_FILES:
        (made / file).write_text("{}")

    def away(*_: Any) -> None:
        raise StorageError("it is away")

    monkeypatch.setattr(submitted_model, "forget_folder", away)
    with pytest.raises(TrainingError, match="holds a model of kind trees, which is none for the network"):
        submitted_candidate(str(made), tmp_path / "copy", None, NETWORK, 5, lambda folder: {"kind": "trees"})
    assert not (tmp_path / "copy").exists()
