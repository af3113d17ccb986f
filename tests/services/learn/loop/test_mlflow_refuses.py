"""MLflow refuses a model or does not answer: no files stay that nobody looks after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException, get_error_code

from services.errors import RegistryError, RegistryRefusedError
from services.learn.loop.retrainer import PRUNE_S
from services.learn.promotion.pruning import GRACE_MS
from services.learn.records import Candidate
from tests.services.learn.fakes import Clock, FakeCluster, Make


def test_what_mlflow_refuses_is_not_asked_again(
    make: Make, cluster: FakeCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registration that MLflow refuses ends the retraining at once, in MLflow's own words; one of 503 is repeated."""
    retrainer, asked = make(timeout_s=60), list[str]()

    def wait(seconds: float) -> bool:
        clock.now_s += seconds
        return False

    def refuse(code: int) -> Callable[..., None]:
        def log_batch(*_: Any, **__: Any) -> None:
            asked.append("log_batch")
            raise MlflowException("Metric name is too long", error_code=get_error_code(code))

        return log_batch

    monkeypatch.setattr(retrainer._stopping, "wait", wait)
    for code, tries in ((400, 1), (503, 6)):
        asked.clear()
        cluster.results = [True]
        monkeypatch.setattr(MlflowClient, "log_batch", refuse(code))
        retrainer.retrain_if_due()
        assert (len(asked), retrainer.status()["last_run"]["result"]) == (tries, "failed"), code
        assert "Metric name is too long" in retrainer.status()["last_error"]
        clock.now_s += 100
    # Nobody can ask for what was refused; of the other MLflow may know more than it could say.
    assert [path.name for path in cluster.folder.iterdir()] == ["run2"]


def test_files_of_what_mlflow_refuses_stay_where_a_version_names_them(
    make: Make, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow took the version, and refused what came after it."""
    cluster.results = [False]
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "set_registered_model_alias", refused)
        make().retrain_if_due()
    assert [row["folder"] for row in make().models()] == [str(cluster.folder / "run1")]
    assert (cluster.folder / "run1" / "weights.safetensors").exists()


def test_files_of_a_submitted_model_that_mlflow_refuses_go(
    make: Make, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are a copy: whoever submitted it has his own."""
    monkeypatch.setattr(MlflowClient, "log_batch", refused)
    with pytest.raises(RegistryRefusedError):
        make().submit("made")
    assert list(cluster.folder.iterdir()) == []


def test_nothing_is_copied_for_an_mlflow_that_is_away(
    make: Make, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever tries again and again does not fill the disk."""
    monkeypatch.setattr(MlflowClient, "get_model_version_by_alias", away)
    for _ in range(2):
        with pytest.raises(RegistryError, match="MLflow does not answer"):
            make().submit("made")
    assert not cluster.folder.exists()


@pytest.mark.parametrize(("call", "stays"), [("log_batch", False), ("set_registered_model_alias", True)])
def test_files_of_a_submitted_model_go_once_mlflow_answers_unless_a_version_names_them(
    make: Make, cluster: FakeCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch, call: str, stays: bool
) -> None:
    """Of a registration without an answer nobody knows whether it was done, also for a while after."""
    retrainer, copy = make(retrain_every_s=0), cluster.folder / "made"
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, call, away)
        with pytest.raises(RegistryError, match="MLflow does not answer"):
            retrainer.submit("made")
    clock.now_s += PRUNE_S
    retrainer.retrain_if_due()
    assert copy.exists()
    clock.now_s += GRACE_MS / 1000
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "search_registered_models", away)
        retrainer.retrain_if_due()
        assert "MLflow does not answer" in retrainer.status()["last_error"]
    assert copy.exists()
    clock.now_s += PRUNE_S
    retrainer.retrain_if_due()
    assert copy.exists() == stays
    assert [row["folder"] for row in retrainer.models()] == [str(copy)] * stays
    assert retrainer.status()["last_error"] == ""


@pytest.mark.parametrize(("call", "stays"), [("log_batch", False), ("set_registered_model_alias", True)])
def test_a_retrainer_that_is_killed_leaves_no_files_that_nobody_looks_after(
    make: Make, cluster: FakeCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch, call: str, stays: bool
) -> None:
    """Killed while MLflow was asked to take what was trained: the next one removes what no version names. Damaged
    notes beside it stay, and are in nobody's way.
    """

    def kill(*_: Any, **__: Any) -> None:
        raise Killed

    cluster.results, folder = [True], cluster.folder / "run1"
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, call, kill)
        patch.setattr("services.learn.promotion.unregistered.Unregistered._forget", kill)
        with pytest.raises(Killed):
            make().retrain_if_due()
    notes = cluster.folder.parent / "unregistered" / "network"
    damaged = {"0.json": "{", "1.json": '{"folder": 3}', "2.json": "[]", "3.json": "{}"}
    for name, content in damaged.items():
        (notes / name).write_text(content)
    again = make(retrain_every_s=0)
    for waits_s in (PRUNE_S, GRACE_MS / 1000 - 1):
        clock.now_s += waits_s
        again.retrain_if_due()
        assert folder.exists()
    clock.now_s += PRUNE_S
    again.retrain_if_due()
    assert folder.exists() == stays
    assert {note.name: note.read_text() for note in notes.iterdir()} == damaged
    assert again.status()["last_error"] == ""
    assert [row["folder"] for row in again.models()] == [str(folder)] * stays


def test_a_copy_that_was_made_when_the_retrainer_was_killed_is_looked_after(
    make: Make, cluster: FakeCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before MLflow was asked to take a submitted model: the next one removes its copy."""
    copy = cluster.folder / "made"

    def kill(folder: str, there: str) -> Candidate:
        (Path(there) / "deep").mkdir(parents=True)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "adopt", kill)
        with pytest.raises(Killed):
            make().submit("made")
    assert copy.exists()
    again = make(retrain_every_s=0)
    for _ in range(2):
        again.retrain_if_due()
        clock.now_s += max(PRUNE_S, GRACE_MS / 1000)
    again.retrain_if_due()
    assert not copy.exists()


class Killed(BaseException):
    """Stands for kill -9."""


def away(*_: Any, **__: Any) -> None:
    """What MLflow's client says of a server that does not answer."""
    raise MlflowException("no answer", error_code=get_error_code(503))


def refused(*_: Any, **__: Any) -> None:
    """What MLflow answers whoever may not write."""
    raise MlflowException("no", error_code=get_error_code(403))
