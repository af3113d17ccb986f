"""An actor whose storage is away when Ray restarts it begins later."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from services.errors import ConfigError, SnapshotError, StartError, StorageAwayError
from services.learn.loop import cluster, retrainer_actor
from services.runtime import restarted_actor
from services.runtime.restarted_actor import restarted_until_it_can_begin
from tests.services.ingest.rig import Crashed


@pytest.fixture
def restarts(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """As if in an actor, at its first start or at a later one; the end of the process is an exception."""

    def ended(code: int) -> None:
        raise Crashed

    context = SimpleNamespace(was_current_actor_reconstructed=request.param)
    monkeypatch.setattr(restarted_actor.ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(restarted_actor.os, "_exit", ended)
    monkeypatch.setattr(restarted_actor, "RESTART_S", 0)


@pytest.mark.parametrize(
    ("restarts", "error", "becomes"),
    [
        (True, StorageAwayError("away"), Crashed),
        (True, StartError("the id cannot be read"), Crashed),
        (True, SnapshotError("no snapshot can be read"), Crashed),
        (True, ConfigError("other settings"), ConfigError),
        (False, StorageAwayError("away"), StorageAwayError),
    ],
    indirect=["restarts"],
)
def test_what_will_be_back_ends_a_restarted_process_only(
    restarts: None, error: Exception, becomes: type[BaseException]
) -> None:
    """Ray starts another one then; what stops a first start is told to whoever starts."""
    with pytest.raises(becomes), restarted_until_it_can_begin():
        raise error


@pytest.mark.parametrize("restarts", [False], indirect=True)
def test_what_stops_a_first_start_says_what_to_do(restarts: None) -> None:
    """Ray tells whoever starts the text of an error, and nothing else of it."""
    with pytest.raises(ConfigError, match=r"^stream.step_s changed. Set it back.$"), restarted_until_it_can_begin():
        raise ConfigError("stream.step_s changed", "Set it back.")


@pytest.mark.parametrize("restarts", [True], indirect=True)
def test_the_retrainer_waits_for_its_storage(restarts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at the history before it does anything."""

    def away(*_: object) -> None:
        raise StorageAwayError("the bucket does not answer")

    monkeypatch.setattr(cluster, "RayCluster", away)
    monkeypatch.setattr(retrainer_actor.os, "nice", lambda by: 0)
    monkeypatch.setattr(retrainer_actor, "log_to_file", lambda *_: None)
    settings = SimpleNamespace(
        logs_dir=None, logs=SimpleNamespace(format="text", level="INFO"), learn=SimpleNamespace(tuned_every_days=0)
    )
    with pytest.raises(Crashed):
        retrainer_actor.RetrainerActor(settings)  # type: ignore[arg-type]
