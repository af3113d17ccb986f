"""Trees of before there was a registry are still read, and are used for what they were grown for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from services.errors import ModelFilesError, StorageAwayError
from services.store.forests import Forests
from services.store.storage import MemoryServer, ObjectStorage, Pauses
from services.store.storage.object_server import Objects
from tests.models.worlds import SPEC
from tests.services.forests import keep_as_before, small_forest

T0 = 1_646_092_800_000  # 2022-03-01 00:00 UTC


def kept(root: Path, to_ms: int = T0) -> str:
    return keep_as_before(root, SPEC, 2, to_ms)


def test_what_was_kept_is_loaded(tmp_path: Path) -> None:
    """The newest is the one of the newest rows; its arrays come back bit for bit."""
    assert Forests(tmp_path).newest() == ""
    kept(tmp_path)
    name, forests = kept(tmp_path, T0 + 86_400_000), Forests(tmp_path)
    (tmp_path / "models" / "forests" / ".20300101T000000-half").mkdir()
    assert forests.newest() == name
    loaded, given = forests.load(name, SPEC, 2).state_dict(), small_forest(SPEC).state_dict()
    assert {n: a.tobytes() for n, a in loaded.items()} == {n: a.tobytes() for n, a in given.items()}
    forests.load(name, SPEC, 2).predict(
        np.zeros((1, 1), np.float32), np.zeros((1, len(SPEC.horizons_min), 1), np.float32)
    )


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("weights.safetensors", b"torn", "torn or altered"),
        ("weights.safetensors", None, "cannot be read"),
        ("manifest.json", b"{", "cannot be read"),
        ("manifest.json", b"[]", "another format"),
        ("manifest.json", b'{"format": 99}', "another format"),
    ],
)
def test_damage_is_named(tmp_path: Path, file: str, content: bytes | None, says: str) -> None:
    """A torn or missing file is an error with the name of the trees."""
    name = kept(tmp_path)
    path = tmp_path / "models" / "forests" / name / file
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(ModelFilesError, match=says) as raised:
        Forests(tmp_path).load(name, SPEC, 2)
    assert name in str(raised.value)


def test_a_storage_that_is_away_is_told_as_other_troubles_of_models_are() -> None:
    """A shard that looks for trees goes on with those that it has."""

    class Away(MemoryServer):
        def list_folder(self, folder: str) -> Objects:
            raise StorageAwayError("s3://b does not answer")

    with pytest.raises(ModelFilesError, match="s3://b does not answer"):
        Forests(ObjectStorage(Away(), Pauses(total_s=0))).newest()


def test_trees_of_other_regressors_are_refused(tmp_path: Path) -> None:
    """Their tests would look at other columns."""
    name = kept(tmp_path)
    with pytest.raises(ModelFilesError, match="other regressors"):
        Forests(tmp_path).load(name, SPEC, 3)
