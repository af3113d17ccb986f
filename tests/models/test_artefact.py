"""A model as files: whole, unaltered, of the right schema, or refused."""

import json

import numpy as np
import pytest
import torch

from models import artefact
from models.network.quantile import QuantileNetwork
from tests.models.worlds import PLACE, SPEC, rows, window_set


@pytest.fixture(scope="module")
def golden():
    """Three real inputs."""
    windows = window_set(3)
    return windows.inputs(windows.origins(SPEC.steps_per_day)[:3])


@pytest.fixture
def folder(tmp_path, golden):
    """A saved model with random weights."""
    torch.manual_seed(3)
    network = QuantileNetwork(SPEC, hidden=8)
    torch.nn.init.normal_(network.head.weight)
    artefact.save(
        tmp_path / "m1", network, golden, trained_on={"first_ms": 1, "offsets": {"0": 12}}, seed=7, metrics={"mae": 0.4}
    )
    return tmp_path / "m1"


def test_a_model_goes_round(folder, golden):
    """A loaded model reproduces its golden output, names what it was trained on, and forecasts from rows."""
    model = artefact.load(folder, SPEC.hash)
    model.verify_golden()
    assert model.manifest["trained_on"] == {"first_ms": 1, "offsets": {"0": 12}}
    assert model.spec == SPEC
    values = rows(2, 1)[:, : SPEC.lookback_steps]
    forecast = model.predict(values, np.array([1_646_300_000_000 // 900_000 * 900_000]), [PLACE], golden.baseline[:1])
    assert forecast.shape == (1, 4, 3, 3)
    assert np.isfinite(forecast).all()


def test_nothing_but_the_three_files_is_left(folder):
    """Saving leaves no temporary folder behind."""
    assert sorted(path.name for path in folder.iterdir()) == [
        "golden.safetensors", "manifest.json", "weights.safetensors",
    ]  # fmt: skip
    assert [path.name for path in folder.parent.iterdir()] == ["m1"]


def test_an_artefact_never_changes(folder, golden):
    """A folder that exists is not written again."""
    with pytest.raises(FileExistsError):
        artefact.save(folder, QuantileNetwork(SPEC), golden, trained_on={}, seed=1, metrics={})


def test_a_machine_that_trains_networks_alone_need_not_grow_trees(tmp_path, golden, monkeypatch):
    """The manifest then says so of LightGBM."""

    def version(package):
        if package == "lightgbm":
            raise artefact.PackageNotFoundError(package)
        return "1.0"

    monkeypatch.setattr(artefact, "version", version)
    manifest = artefact.save(
        tmp_path / "m1", QuantileNetwork(SPEC, hidden=8), golden, trained_on={}, seed=7, metrics={}
    )
    assert manifest["versions"]["lightgbm"] == "not installed"
    assert manifest["versions"]["torch"] == "1.0"


def test_a_failed_save_leaves_nothing(tmp_path, golden):
    """Metrics that JSON cannot hold stop the save and leave no folder."""
    with pytest.raises(ValueError, match="JSON"):
        artefact.save(tmp_path / "m2", QuantileNetwork(SPEC), golden, trained_on={}, seed=1, metrics={"x": np.nan})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["weights.safetensors", "golden.safetensors", "manifest.json"])
def test_a_missing_file_is_missing(folder, name):
    """Each absent file is named."""
    (folder / name).unlink()
    with pytest.raises(artefact.ArtefactMissingError, match=name):
        artefact.load(folder)


@pytest.mark.parametrize("name", ["weights.safetensors", "golden.safetensors", "manifest.json"])
def test_a_torn_file_is_corrupt(folder, name):
    """Half a file is refused."""
    path = folder / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(artefact.ArtefactCorruptError):
        artefact.load(folder)


@pytest.mark.parametrize("key", ["spec", "options"])
def test_a_manifest_without_its_parts_is_corrupt(folder, key):
    """A manifest that lacks a part is refused, not guessed."""
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest[key]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(artefact.ArtefactCorruptError):
        artefact.load(folder)


def test_another_schema_is_refused(folder):
    """A model for other rows is not served, and the reason says which."""
    with pytest.raises(artefact.ArtefactSchemaError, match="0123"):
        artefact.load(folder, "0123")


def test_a_model_of_before_there_were_kinds_is_a_network(folder, golden):
    """A manifest of format 1 names no kind, and has a network's options under ``network``: it serves as it did."""
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["format"], manifest["kind"]) == (2, "network")
    old = {name: value for name, value in manifest.items() if name not in ("kind", "options")}
    (folder / "manifest.json").write_text(json.dumps(old | {"format": 1, "network": manifest["options"]}))
    model = artefact.load(folder, SPEC.hash)
    model.verify_golden()
    assert model.kind == "network"
    np.testing.assert_array_equal(model.model.answer(golden), model.golden[1])


def test_an_unknown_format_is_refused(folder):
    """A newer format is named."""
    manifest = json.loads((folder / "manifest.json").read_text()) | {"format": 99}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(artefact.ArtefactSchemaError, match="99"):
        artefact.load(folder)


def test_a_model_that_answers_otherwise_is_refused(folder):
    """When the network no longer gives the golden output, verifying says so."""
    model = artefact.load(folder)
    with torch.no_grad():
        model.model.head.bias += 1
    with pytest.raises(artefact.ArtefactCorruptError, match="golden"):
        model.verify_golden()
