"""The registry's contract, on MLflow's SQLite store."""

from __future__ import annotations

import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException, RestException, get_error_code

from services.errors import (
    ModelFilesError,
    PromotionRefusedError,
    RegistryError,
    RegistryRefusedError,
    StorageAwayError,
)
from services.learn.promotion.registry import Registry
from services.learn.tracking.registry_owner import registry_owner
from services.store.storage import FolderStorage
from tests.services.learn.synthetic import SCHEMA, make_candidate


def models(tmp_path: Path) -> Path:
    """Where the registry's storage has its models."""
    return tmp_path / "storage" / "models"


def test_empty_registry_serves_the_climatology(registry: Registry) -> None:
    """Before the first promotion the champion is the climatology and there is nothing to go back to."""
    assert registry.champion() == "online"
    assert registry.list() == []
    with pytest.raises(PromotionRefusedError, match="no previous model"):
        registry.rollback()


def test_lineage_and_evidence_survive(registry: Registry, tmp_path: Path) -> None:
    """A registered model is listed with its range, weights, errors and verdict, as it was handed in."""
    candidate = make_candidate(models(tmp_path) / "a")
    assert registry.register(candidate, created_ms=1) == "v1"
    (row,) = registry.list()
    assert (row["stage"], row["aliases"], row["passed"]) == ("challenger", ["challenger"], True)
    for name in ("weights_sha256", "trained_on", "held_back_mae", "reason", "folder"):
        assert row[name] == candidate[name]  # type: ignore[literal-required]


@pytest.mark.parametrize("step", ["log_batch", "log_artifacts", "create_model_version", "set_terminated"])
@pytest.mark.parametrize("done", [False, True])
def test_a_registration_that_was_cut_short_is_completed(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, done: bool
) -> None:
    """One run and one version, whichever call fails, and whether MLflow had done it or not when the answer was lost."""
    candidate, original = make_candidate(models(tmp_path) / "a"), getattr(MlflowClient, step)

    def cut(*arguments: Any, **named: Any) -> None:
        if done:
            original(*arguments, **named)
        raise MlflowException("the connection was reset")

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, step, cut)
        with pytest.raises(RegistryError, match="reset"):
            registry.register(candidate, created_ms=1)
    assert registry.register(candidate, created_ms=1) == "v1"
    assert [row["version"] for row in registry.list()] == ["v1"]
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.sqlite'}")
    (run,) = client.search_runs([client.get_experiment_by_name("hothouse").experiment_id])
    assert run.info.status == "FINISHED"
    curve = next(iter(candidate["curves"]))
    assert len(client.get_metric_history(run.info.run_id, curve)) == len(candidate["curves"][curve])


def test_promotion_and_rollback_move_the_aliases(registry: Registry, tmp_path: Path) -> None:
    """Promotion makes the old champion ``previous``; a rollback exchanges the two, any number of times."""
    for name in ("a", "b"):
        registry.promote(registry.register(make_candidate(models(tmp_path) / name), created_ms=1))
    assert registry.champion() == "v2"
    assert registry.rollback() == "v1"
    assert registry.champion() == "v1"
    assert registry.rollback() == "v2"
    assert {row["version"]: row["stage"] for row in registry.list()} == {"v2": "champion", "v1": "previous"}


def test_refused_model_is_listed_with_its_reason(registry: Registry, tmp_path: Path) -> None:
    """A model that the gate refused is in the list, as refused, with the gate's reason; the champion stays."""
    registry.promote(registry.register(make_candidate(models(tmp_path) / "a"), created_ms=1))
    registry.register(make_candidate(models(tmp_path) / "b", passed=False), created_ms=2)
    newest = registry.list()[0]
    assert (newest["version"], newest["stage"]) == ("v2", "refused")
    assert "worse than persistence" in newest["reason"]
    assert registry.champion() == "v1"


@pytest.mark.parametrize("damage", ["truncate", "delete", "manifest", "golden", "no golden"])
def test_damaged_artefact_is_never_promoted(registry: Registry, tmp_path: Path, damage: str) -> None:
    """Torn weights, missing weights, a torn manifest, or a golden output that is torn or gone, which no replica would
    load: promotion is refused and the champion stays.
    """
    version = registry.register(make_candidate(models(tmp_path) / "a"), created_ms=1)
    weights = models(tmp_path) / "a" / "weights.safetensors"
    if damage == "truncate":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif damage == "delete":
        weights.unlink()
    elif damage == "golden":
        weights.with_name("golden.safetensors").write_bytes(b"torn")
    elif damage == "no golden":
        weights.with_name("golden.safetensors").unlink()
    else:
        (models(tmp_path) / "a" / "manifest.json").write_text('{"name": ')
    with pytest.raises(PromotionRefusedError, match="v1 cannot serve"):
        registry.promote(version)
    with pytest.raises(ModelFilesError):
        registry.folder(version)
    assert registry.champion() == "online"


def test_model_of_another_schema_is_never_promoted(registry: Registry, tmp_path: Path) -> None:
    """A model that was made for other rows is refused, by promotion and by rollback, and the champion stays."""
    from mlflow import MlflowClient

    registry.promote(registry.register(make_candidate(models(tmp_path) / "a"), created_ms=1))
    other = registry.register(make_candidate(models(tmp_path) / "b", schema="other"), created_ms=2)
    with pytest.raises(PromotionRefusedError, match=f"v2 cannot serve: it was made for schema other, .* {SCHEMA}"):
        registry.promote(other)
    MlflowClient(f"sqlite:///{tmp_path / 'mlflow.sqlite'}").set_registered_model_alias("hothouse", "previous", "2")
    with pytest.raises(PromotionRefusedError, match="schema other"):
        registry.rollback()
    assert registry.champion() == "v1"


@pytest.mark.parametrize("version", ["v9", "9", "latest", ""])
def test_unknown_version_is_refused_in_one_sentence(registry: Registry, version: str) -> None:
    """Promoting a version that does not exist raises PromotionRefusedError."""
    with pytest.raises(PromotionRefusedError):
        registry.promote(version)


def test_promoting_what_serves_is_refused(registry: Registry, tmp_path: Path) -> None:
    """The champion cannot become its own predecessor."""
    registry.promote(registry.register(make_candidate(models(tmp_path) / "a"), created_ms=1))
    with pytest.raises(PromotionRefusedError, match="serves already"):
        registry.promote("v1")


def test_going_back_to_the_climatology(registry: Registry, tmp_path: Path) -> None:
    """Promoting ``climatology`` takes the champion away and keeps it as ``previous``."""
    registry.promote(registry.register(make_candidate(models(tmp_path) / "a"), created_ms=1))
    registry.promote("online")
    assert registry.champion() == "online"
    assert registry.rollback() == "v1"


def test_alias_moved_in_mlflow_itself_counts(registry: Registry, tmp_path: Path) -> None:
    """A champion set by another MLflow client, such as MLflow's own page, is the champion here."""
    from mlflow import MlflowClient

    registry.register(make_candidate(models(tmp_path) / "a"), created_ms=1)
    MlflowClient(f"sqlite:///{tmp_path / 'mlflow.sqlite'}").set_registered_model_alias("hothouse", "champion", "1")
    assert registry.champion() == "v1"


def test_another_systems_models_are_left_alone(registry: Registry, tmp_path: Path) -> None:
    """Two systems on one MLflow: the second is refused, moves no alias and prunes nothing; the first goes on, also from
    a backup that was brought back elsewhere. One whose owner is gone is taken over once the tag is.
    """
    storages = [FolderStorage(tmp_path / name) for name in ("first", "second")]
    first, second = (
        Registry(registry._uri, tmp_path / "storage", SCHEMA, owner=partial(registry_owner, storage))
        for storage in storages
    )
    first.promote(first.register(make_candidate(models(tmp_path) / "a"), created_ms=1))
    for asked in (second.champion, second.list, lambda: second.promote("online"), second.rollback):
        with pytest.raises(RegistryRefusedError, match="keeps the models of another system"):
            asked()
    assert first.champion() == "v1"
    storages[1].put("registry-owner", storages[0].read("registry-owner").content)
    assert second.champion() == "v1"
    storages[1].put("registry-owner", b"0123456789abcdef")
    third = Registry(registry._uri, tmp_path / "storage", SCHEMA, owner=partial(registry_owner, storages[1]))
    with pytest.raises(RegistryRefusedError, match="0123456789abcdef"):
        third.champion()
    MlflowClient(registry._uri).delete_registered_model_tag("hothouse", "hothouse.owner")
    assert third.champion() == "v1"


def test_whose_models_they_are_is_asked_again_where_the_storage_is_away(registry: Registry, tmp_path: Path) -> None:
    """A storage that is away decides nothing."""
    answers = iter([StorageAwayError("the storage is away")])

    def owner() -> str:
        for error in answers:
            raise error
        return "ours"

    ours = Registry(registry._uri, tmp_path / "storage", SCHEMA, owner=owner)
    with pytest.raises(RegistryError, match="the storage is away") as told:
        ours.champion()
    assert not isinstance(told.value, RegistryRefusedError)
    assert ours.champion() == "online"


def test_an_mlflow_that_comes_back_empty_is_used_again(registry: Registry, tmp_path: Path) -> None:
    """Its server lost its files, or somebody removed the models: once that is told, there are new ones."""
    registry.promote(registry.register(make_candidate(models(tmp_path) / "a"), created_ms=1))
    MlflowClient(registry._uri).delete_registered_model("hothouse")
    with pytest.raises(PromotionRefusedError, match="not in MLflow any more"):
        registry.champion()
    assert registry.champion() == "online"
    registry.promote(registry.register(make_candidate(models(tmp_path) / "b"), created_ms=2))
    assert registry.champion() == "v1"


def test_mlflow_away_is_one_clear_error(tmp_path: Path) -> None:
    """A registry that cannot be reached raises RegistryError that names the address, within seconds."""
    with pytest.raises(RegistryError, match=r"does not answer at http://127\.0\.0\.1:1"):
        Registry("http://127.0.0.1:1", tmp_path, SCHEMA).champion()


def test_threads_make_the_file_once(tmp_path: Path) -> None:
    """Several threads that use a new registry at the same moment all get its answer."""
    registry = Registry(f"sqlite:///{tmp_path / 'mlflow.sqlite'}", tmp_path, SCHEMA)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: registry.champion(), range(4))) == ["online"] * 4


def answer(status: int) -> MlflowException:
    """What MLflow's client makes of an answer that is no JSON, such as a proxy's."""
    words = f"API request to endpoint /api failed with error code {status} != 200. Response body: 'no'"
    return MlflowException(words, error_code=get_error_code(status))


REFUSALS = [
    answer(400), answer(401), answer(403), answer(405), answer(413),
    RestException({"error_code": "INVALID_PARAMETER_VALUE", "message": "no"}),
    RestException({"error_code": "PERMISSION_DENIED", "message": "no"}),
]  # fmt: skip
PASSING = [
    answer(429), answer(500), answer(502), answer(503), MlflowException("API request failed with exception no route"),
    RestException({"error_code": "TEMPORARILY_UNAVAILABLE", "message": "no"}), requests.ConnectionError("no"),
    RestException({"error_code": "REQUEST_LIMIT_EXCEEDED", "message": "no"}),
]  # fmt: skip


@pytest.mark.parametrize("error", [*REFUSALS, *PASSING], ids=str)
def test_a_refusal_is_told_from_an_mlflow_that_is_away(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Wrong requests and credentials are final, with MLflow's sentence and what to do; all else may pass."""

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(MlflowClient, "log_batch", fail)
    with pytest.raises(RegistryError) as caught:
        registry.register(make_candidate(models(tmp_path) / "a"), created_ms=1)
    refused = any(error is one for one in REFUSALS)
    assert type(caught.value).__name__ == ("RegistryRefusedError" if refused else "RegistryError")
    assert ("refuses" if refused else "does not answer") in caught.value.message
    assert str(error) in caught.value.message
    assert bool(caught.value.hint) == refused


def test_more_models_than_a_page_are_all_listed(registry: Registry, tmp_path: Path) -> None:
    """The first of 1,200 is in the list too, and a champion among them is found."""
    registry.register(make_candidate(models(tmp_path) / "a"), created_ms=1)
    with sqlite3.connect(tmp_path / "mlflow.sqlite") as file:
        file.executemany(
            "insert into model_versions (workspace, name, version, creation_time, last_updated_time, current_stage, "
            "source, status) values ('default', 'hothouse', ?, 1, 1, 'None', 'file:///x', 'READY')",
            [(number,) for number in range(2, 1201)],
        )
    file.close()
    MlflowClient(f"sqlite:///{tmp_path / 'mlflow.sqlite'}").set_registered_model_alias("hothouse", "champion", "7")
    assert [row["version"] for row in registry.list()] == [f"v{number}" for number in range(1200, 0, -1)]
    assert registry.champion() == "v7"


def test_a_list_that_has_not_changed_costs_one_small_request(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions are read again after a write of ours, after one that others make, after an alias moved, and not else."""
    made: Counter[str] = Counter()

    def count(name: str) -> None:
        original = getattr(MlflowClient, name)
        monkeypatch.setattr(MlflowClient, name, lambda *a, **k: (made.update([name]), original(*a, **k))[1])

    registry.register(make_candidate(models(tmp_path) / "a"), created_ms=1)
    first = registry.list()
    others = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.sqlite'}")
    for name in ("search_model_versions", "search_registered_models", "get_registered_model"):
        count(name)
    assert [registry.list() for _ in range(5)] == [first] * 5
    assert made == {"search_registered_models": 5}
    registry.withdraw("v1", "because")
    assert registry.list()[0]["stage"] == "withdrawn"
    others.create_model_version("hothouse", "file:///x")
    assert [row["version"] for row in registry.list()] == ["v2", "v1"]
    others.set_registered_model_alias("hothouse", "champion", "1")
    assert registry.list()[1]["stage"] == "champion"
    others.delete_model_version("hothouse", "2")
    assert [row["version"] for row in registry.list()] == ["v1"]
    assert made["search_model_versions"] == 4
