"""What somebody writes into MLflow who may: paths, files and tags that no registration of ours has made."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from mlflow import MlflowClient

from models import artefact
from services.errors import ModelFilesError, PromotionRefusedError
from services.learn.promotion.registry import Registry
from services.learn.tracking.candidate_run import MOST_RECORD_BYTES
from services.store.storage import MemoryServer, ObjectStorage, kept_folder
from tests.services.learn.synthetic import make_candidate


def client(tmp_path: Path) -> MlflowClient:
    """Somebody else at the same MLflow."""
    return MlflowClient(f"sqlite:///{tmp_path / 'mlflow.sqlite'}")


def test_an_entry_that_names_files_elsewhere_never_serves(registry: Registry, tmp_path: Path) -> None:
    """A whole model outside of the storage, by an absolute path, by ``..`` or by a link, is refused by its place."""
    version = registry.register(make_candidate(tmp_path / "storage" / "models" / "a"), created_ms=1)
    elsewhere = tmp_path / "elsewhere"
    other = make_candidate(elsewhere)
    link = tmp_path / "storage" / "models" / "link"
    link.symlink_to(elsewhere)
    for folder in (elsewhere, tmp_path / "storage" / "models" / ".." / ".." / "elsewhere", link):
        for name, value in (("folder", str(folder)), ("weights_sha256", other["weights_sha256"])):
            client(tmp_path).set_model_version_tag("hothouse", "1", name, json.dumps(value))
        with pytest.raises(PromotionRefusedError, match=r"v1 cannot serve: its files are said to be in .* no model of"):
            registry.promote(version)
    client(tmp_path).set_registered_model_alias("hothouse", "champion", "1")
    with pytest.raises(ModelFilesError, match="no model of"):
        registry.servable(registry.champion())


@pytest.mark.parametrize("tag", ["{", "null", "7", '["a"]', '{"a": 1}', '""'])
def test_an_entry_whose_tags_are_no_tags_of_ours_stops_nothing(registry: Registry, tmp_path: Path, tag: str) -> None:
    """It is listed as refused, it cannot be promoted, in a sentence, and the others are listed and promoted."""
    registry.register(make_candidate(tmp_path / "storage" / "models" / "a"), created_ms=1)
    made = client(tmp_path).create_model_version("hothouse", "file:///etc", tags={"folder": tag, "passed": tag})
    assert int(made.version) == 2
    poisoned, good = registry.list()
    assert (poisoned["version"], good["version"], good["stage"]) == ("v2", "v1", "challenger")
    assert poisoned["folder"] == ""
    with pytest.raises(PromotionRefusedError, match="v2 cannot serve"):
        registry.promote("v2")
    registry.promote("v1")
    assert registry.champion() == "v1"


def test_an_entry_without_tags_is_refused(registry: Registry, tmp_path: Path) -> None:
    """What another tool registers in our name has none."""
    client(tmp_path).create_model_version("hothouse", "file:///etc")
    with pytest.raises(PromotionRefusedError, match="v1 cannot serve: MLflow does not say where its files are"):
        registry.promote("v1")


class Canary:
    """Tells that it was unpickled."""

    def __init__(self, told: Path) -> None:
        self.told = told

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.told),)


@pytest.mark.parametrize("name", ["weights.safetensors", "golden.safetensors", "manifest.json"])
def test_a_pickle_in_place_of_a_file_is_not_unpickled(registry: Registry, tmp_path: Path, name: str) -> None:
    """Also where the entry and the manifest name its own digest: loading refuses it, and runs nothing of it."""
    folder, told = tmp_path / "storage" / "models" / "a", tmp_path / "told"
    make_candidate(folder)
    content = pickle.dumps(Canary(told))
    (folder / name).write_bytes(content)
    if name != "manifest.json":
        manifest = json.loads((folder / "manifest.json").read_bytes())
        manifest |= {"format": 2, f"{name.partition('.')[0]}_sha256": hashlib.sha256(content).hexdigest()}
        (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(artefact.ArtefactError):
        artefact.load(folder)
    assert not told.exists()
    pickle.loads(content)  # it would have told
    assert told.exists()


def test_weights_of_ten_gigabytes_are_not_read(registry: Registry, tmp_path: Path) -> None:
    """By their size, before a byte of them: neither the registry nor a replica fills its memory."""
    folder = tmp_path / "storage" / "models" / "a"
    version = registry.register(make_candidate(folder), created_ms=1)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": artefact.FORMAT}))
    os.truncate(folder / "weights.safetensors", 10 * 1024**3)
    with pytest.raises(PromotionRefusedError, match=r"v1 cannot serve: .*weights.safetensors has 10,737,418,240 bytes"):
        registry.promote(version)
    with pytest.raises(artefact.ArtefactCorruptError, match="has 10,737,418,240 bytes"):
        artefact.load(folder)


def test_a_record_that_grew_is_not_read(registry: Registry, tmp_path: Path) -> None:
    """MLflow's copy of what we registered is JSON of some kilobytes; one of gigabytes is refused by its size."""
    version = registry.register(make_candidate(tmp_path / "storage" / "models" / "a"), created_ms=1)
    mlflow = client(tmp_path)
    run = mlflow.get_run(mlflow.get_model_version("hothouse", "1").run_id)
    os.truncate(Path(urlsplit(run.info.artifact_uri).path) / "candidate.json", MOST_RECORD_BYTES + 1)
    with pytest.raises(ModelFilesError, match="the record of v1 cannot be read: it has"):
        registry.candidate(version)


def test_names_in_a_bucket_lead_out_of_no_folder(tmp_path: Path) -> None:
    """A list of files that names others is refused, before anything is written."""
    storage = ObjectStorage(MemoryServer())
    storage.put("models/a/files.json", json.dumps(["manifest.json", "../../../escaped"]).encode())
    storage.put("models/a/manifest.json", b"{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_folder, "open_storage", lambda _: storage)
        with pytest.raises(OSError, match=r"names '../../../escaped', which is no file's name"):
            kept_folder.fetch_folder(object(), tmp_path / "models" / "a")  # type: ignore[arg-type]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
