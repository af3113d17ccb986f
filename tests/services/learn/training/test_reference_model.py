"""What a challenger is measured against: never flattered by rows that one of the two has seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models import artefact
from models.features.inputs import build_inputs
from models.network.quantile import QuantileNetwork
from models.spec import ForecastSpec, Place
from services.config import LearnSettings
from services.errors import StorageAwayError
from services.learn.promotion.comparison_actor import ComparisonActor
from services.learn.training.job import Job
from services.learn.training.reference_model import reference_model_of
from services.store.storage import MemoryServer, ObjectStorage, Pauses, StorageAddress, kept_folder

SPEC = ForecastSpec(
    channels=("air_temp_c", "rh_pct"), targets=("air_temp_c",), horizons_min=(60,), step_ms=900_000, lookback_steps=4
)
CUT_MS = 1_646_092_800_000
OPTIONS = QuantileNetwork(SPEC, hidden=8).options
VALUES = np.full((2, 4, 2), 20, np.float32)
INPUTS = build_inputs(VALUES, np.full(2, CUT_MS, np.int64), [Place()] * 2, np.full((2, 1, 1, 3), 19, np.float32), SPEC)


def job_over(tmp_path: Path, trained_on: dict[str, Any], spec: ForecastSpec = SPEC) -> Job:
    """A job of ``SPEC`` whose champion v3 was trained as told."""
    folder = tmp_path / "v3"
    artefact.save(
        folder, QuantileNetwork(SPEC, hidden=8), INPUTS, trained_on=trained_on, seed=0, metrics={}
    )  # fmt: skip
    return Job(
        name="x", storage=str(tmp_path), spec=spec, learn=LearnSettings(), places={}, files=(), after_ms=0,
        to_ms=CUT_MS + 1, log_offsets={}, champion="v3", champion_folder=str(folder), use_gpu=False, workers=0,
    )  # fmt: skip


def test_champion_of_before_the_cut_is_reference_and_start(tmp_path: Path) -> None:
    """A champion that has seen nothing after the cut is measured from the cut on, and lends its weights."""
    reference = reference_model_of(job_over(tmp_path, {"to_ms": CUT_MS}), CUT_MS, OPTIONS)
    assert (reference.name, reference.from_ms, reference.note) == ("v3", CUT_MS, "")
    assert reference.start is not None
    assert reference.predict(INPUTS).shape == (2, 1, 1, 3)


def test_champion_that_has_seen_held_back_rows(tmp_path: Path) -> None:
    """Its weights are not used, and only rows after its own are compared; the note says so."""
    reference = reference_model_of(job_over(tmp_path, {"to_ms": CUT_MS + 5}), CUT_MS, OPTIONS)
    assert (reference.name, reference.from_ms, reference.start) == ("v3", CUT_MS + 5, None)
    assert "v3 has seen rows after the cut" in reference.note


@pytest.mark.parametrize(
    ("trained_on", "registered_ms", "seen_ms"),
    [
        ({"to_ms": CUT_MS - 9}, CUT_MS + 5, CUT_MS + 5),
        ({"to_ms": CUT_MS + 7}, CUT_MS + 5, CUT_MS + 7),
        ({}, CUT_MS + 5, CUT_MS + 5),
    ],
)
def test_the_later_of_manifest_and_registry_counts(
    tmp_path: Path, trained_on: dict[str, Any], registered_ms: int, seen_ms: int
) -> None:
    """A manifest that was made elsewhere may say little or nothing: what the registry holds is as good a reason."""
    job = replace(job_over(tmp_path, trained_on), champion_to_ms=registered_ms)
    reference = reference_model_of(job, CUT_MS, OPTIONS)
    assert (reference.name, reference.from_ms, reference.start) == ("v3", seen_ms, None)
    assert "v3 has seen rows after the cut" in reference.note


def test_champion_of_another_network_is_still_the_reference(tmp_path: Path) -> None:
    """Other network options end the warm start alone: the champion itself is what is to be beaten."""
    reference = reference_model_of(job_over(tmp_path, {"to_ms": CUT_MS}), CUT_MS, {**OPTIONS, "hidden": 16})
    assert (reference.name, reference.start) == ("v3", None)
    assert "another network" in reference.note
    assert reference.predict(INPUTS).shape == (2, 1, 1, 3)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("torn", "is torn or altered"),
        ("no folder", "its files are damaged or missing"),
        ("schema", "was made for schema"),
        ("lineage", "neither its manifest nor the registry says what it was trained on"),
    ],
)
def test_champion_that_cannot_be_measured_is_named(tmp_path: Path, damage: str, says: str) -> None:
    """Torn files, another schema or no lineage: the climatology stands in, and the note says for whom and why."""
    spec = replace(SPEC, lookback_steps=5) if damage == "schema" else SPEC
    job = job_over(tmp_path, {} if damage == "lineage" else {"to_ms": CUT_MS}, spec)
    if damage == "torn":
        (tmp_path / "v3" / "weights.safetensors").write_bytes(b"torn")
    elif damage == "no folder":
        job = replace(job, champion_folder="")
    reference = reference_model_of(job, CUT_MS, OPTIONS)
    assert (reference.name, reference.from_ms, reference.start) == ("the climatology", CUT_MS, None)
    assert reference.note.startswith("v3 could not be measured: ")
    assert says in reference.note
    np.testing.assert_array_equal(reference.predict(INPUTS), INPUTS.baseline)


def test_climatology_needs_no_note(tmp_path: Path) -> None:
    """Where the climatology serves it is the reference, and nothing is remarkable about it."""
    job = replace(job_over(tmp_path, {"to_ms": CUT_MS}), champion="online", champion_folder="")
    reference = reference_model_of(job, CUT_MS, OPTIONS)
    assert (reference.name, reference.note, reference.start) == ("the climatology", "", None)


class Away(MemoryServer):
    """An object store that does not answer."""

    def get(self, key: str, start: int = 0, length: int | None = None) -> Any:
        raise StorageAwayError("s3://b does not answer")


def test_a_storage_that_is_away_is_no_reason_to_compare_with_the_climatology(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether the champion's files are whole: neither a training nor a comparison does without it."""
    monkeypatch.setattr(kept_folder, "open_storage", lambda _: ObjectStorage(Away(), Pauses(total_s=0)))
    where, folder = StorageAddress(url="s3://b"), str(tmp_path / "v3")
    job = replace(job_over(tmp_path / "elsewhere", {"to_ms": CUT_MS}), champion_folder=folder, where=where)
    with pytest.raises(StorageAwayError):
        reference_model_of(job, CUT_MS, OPTIONS)
    monkeypatch.setattr("os.nice", lambda _: 0)
    with pytest.raises(StorageAwayError):
        ComparisonActor().examine(folder, SPEC, where)
