"""A data folder that was moved, or a backup that was brought back elsewhere: its models serve, and learning goes on."""

from __future__ import annotations

import logging
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from mlflow import MlflowClient

from services.app.whole_system import System
from services.config import load_settings
from services.errors import ModelFilesError
from services.learn.promotion.registry import Registry
from services.learn.tracking.registry_file import artefact_root, move_artefacts
from services.moved_folder import bring_along
from services.store.pointer import Pointer
from services.store.storage import storage_of
from tests.services.learn.synthetic import SCHEMA, make_candidate


def registry_in(data_dir: Path) -> Registry:
    """The registry of a data folder, with models of another schema than that of the settings."""
    return Registry(f"sqlite:///{data_dir / 'mlflow.sqlite'}", data_dir / "storage", SCHEMA)


def moved(tmp_path: Path, empty_mlflow: bytes, to: str = "after") -> Path:
    """A data folder whose champion is v1, under another name than the one that it was filled under."""
    before = tmp_path / "before"
    before.mkdir()
    (before / "mlflow.sqlite").write_bytes(empty_mlflow)
    move_artefacts(before / "mlflow.sqlite", artefact_root(before / "storage"), frozenset({"hothouse"}))
    registry = registry_in(before)
    registry.promote(registry.register(make_candidate(before / "storage" / "models" / "a"), created_ms=1))
    for expert in ("network", "tuned"):
        Pointer(before / "storage", expert).move("v1", str(before / "storage" / "models" / "a"))
    return before.rename(tmp_path / to)


@pytest.mark.parametrize("name", ["after", "before and after, 50 %"])
def test_the_champion_of_a_folder_that_was_moved_serves(tmp_path: Path, empty_mlflow: bytes, name: str) -> None:
    """Pointers, promotion, a rollback, the record of a training: all find the files, by a start alone."""
    data_dir = moved(tmp_path, empty_mlflow, name)
    system = System(load_settings(data_dir=data_dir))
    try:
        system._claim_state()
    finally:
        system._parts.close()
    here = data_dir / "storage" / "models" / "a"
    assert {Pointer(data_dir / "storage", expert).read().folder for expert in ("network", "tuned")} == {str(here)}
    registry = registry_in(data_dir)
    assert registry.champion() == "v1"
    assert registry.servable("v1") == here
    assert registry.candidate("v1")["weights_sha256"] == registry.list()[0]["weights_sha256"]


def test_learning_goes_on_in_the_new_place(tmp_path: Path, empty_mlflow: bytes) -> None:
    """What is registered after the move lies there, and files of old models can be removed there."""
    data_dir = moved(tmp_path, empty_mlflow)
    settings = load_settings(data_dir=data_dir)
    bring_along(settings, storage_of(settings))
    registry, models = registry_in(data_dir), data_dir / "storage" / "models"
    registry.promote(registry.register(make_candidate(models / "b"), created_ms=2))
    assert not (tmp_path / "before").exists()
    assert registry.rollback() == "v1"
    client = MlflowClient(f"sqlite:///{data_dir / 'mlflow.sqlite'}")
    for number in ("1", "2"):
        run = client.get_run(client.get_model_version("hothouse", number).run_id)
        copy = Path(urlsplit(run.info.artifact_uri).path) / "model"
        assert copy.is_relative_to(data_dir)
        registry.remove_files(f"v{number}")
        assert not any(copy.glob("*"))
    assert list(models.iterdir()) == []


def test_a_copy_leaves_the_original_alone(tmp_path: Path, empty_mlflow: bytes) -> None:
    """Both are there, and each has its own models."""
    data_dir = moved(tmp_path, empty_mlflow)
    (original := tmp_path / "before" / "storage" / "models" / "a").mkdir(parents=True)
    settings = load_settings(data_dir=data_dir)
    bring_along(settings, storage_of(settings))
    registry_in(data_dir).remove_files("v1")
    assert original.exists()
    assert not (data_dir / "storage" / "models" / "a").exists()


def test_a_folder_that_stays_is_not_changed(
    tmp_path: Path, empty_mlflow: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A second start moves no pointer and says nothing; neither does one that names the folder by a link."""
    data_dir = moved(tmp_path, empty_mlflow)
    settings = load_settings(data_dir=data_dir)
    bring_along(settings, storage_of(settings))
    assert "has moved to" in caplog.text
    caplog.clear()
    (tmp_path / "link").symlink_to(data_dir)
    for path in (data_dir, tmp_path / "link"):
        again = load_settings(data_dir=path)
        bring_along(again, storage_of(again))
    assert Pointer(data_dir / "storage", "network").read().generation == 3
    assert caplog.records == []


def test_what_cannot_be_read_stops_no_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A torn pointer and a torn registry are told by those who follow them."""
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "slot.json").write_text("{")
    (tmp_path / "mlflow.sqlite").write_bytes(b"torn" * 1000)
    settings = load_settings(data_dir=tmp_path)
    with caplog.at_level(logging.WARNING):
        bring_along(settings, storage_of(settings))
    assert "mlflow.sqlite were not looked at" in caplog.text
    with pytest.raises(ModelFilesError):
        Pointer(tmp_path / "storage", "network").read()
