"""The slow loop, with MLflow and without a cluster."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from services.errors import HistoryError, PromotionRefusedError, RegistryError, TrainingError
from services.learn.records import Candidate, Order
from services.learn.registry import Registry
from tests.patience import patience_s, until
from tests.services.learn.fakes import Clock, FakeCluster, Make


def test_challenger_that_passed_is_promoted_and_served(make: Make, cluster: FakeCluster) -> None:
    """A passed challenger becomes champion, the slot is told once, and lineage holds the flushed offsets."""
    retrainer = make()
    cluster.results = [True]
    retrainer.watch()
    retrainer.retrain_if_due()
    assert cluster.served == [("v1", str(cluster.folder / "run1"))]
    assert cluster.kinds() == ["retrain", "swap"]
    models, status = cluster.shown
    assert (models[0]["version"], models[0]["stage"]) == ("v1", "champion")
    assert (status["retrains"], status["swaps"], status["refused"], status["serving"]) == (1, 1, 0, "v1")
    retrainer.watch()
    assert len(cluster.served) == 1


def test_refused_challenger_leaves_the_champion(make: Make, cluster: FakeCluster, clock: Clock) -> None:
    """A refused challenger is registered with its reason, an event says so, and the champion serves on."""
    retrainer = make()
    cluster.results = [True, False]
    retrainer.retrain_if_due()
    clock.now_s += 100
    retrainer.retrain_if_due()
    assert cluster.slot == "v1"
    assert cluster.kinds() == ["retrain", "swap", "retrain", "refused"]
    assert "worse than persistence" in cluster.events[-1]["reason"]
    assert [order.champion_folder for order in cluster.orders] == ["", str(cluster.folder / "run1")]
    assert retrainer.status()["last_run"]["result"] == "refused"


def test_force_promote_promotes_and_says_so(make: Make, cluster: FakeCluster) -> None:
    """With force_promote a refused challenger serves, recorded as forced with the gate's reason."""
    retrainer = make(force_promote=True)
    cluster.results = [False]
    retrainer.retrain_if_due()
    assert cluster.slot == "v1"
    assert retrainer.status()["forced"] == 1
    row = retrainer.models()[0]
    assert (row["forced"], row["passed"], row["stage"]) == (True, False, "champion")
    assert "forced" in cluster.events[-1]["reason"]


@pytest.mark.parametrize("error", [TrainingError("the training diverged"), RuntimeError("bug")])
def test_failed_training_is_an_event_and_the_next_slot_tries_again(
    make: Make, cluster: FakeCluster, clock: Clock, error: Exception
) -> None:
    """Whatever a training raises, the champion stays, status and event tell, and the schedule goes on."""
    retrainer = make(force_promote=True)
    cluster.results = [error, True]
    retrainer.retrain_if_due()
    assert cluster.kinds() == ["error"]
    assert str(error) in retrainer.status()["last_error"]
    assert cluster.served == []
    clock.now_s += 100
    retrainer.retrain_if_due()
    assert cluster.slot == "v1"
    assert retrainer.status()["last_error"] == ""


@pytest.mark.parametrize("force", [False, True])
def test_rollback_during_a_training_stands(
    make: Make, cluster: FakeCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    """A challenger that was judged against a champion of before an operator's rollback is refused, and says why."""
    retrainer = make(force_promote=force)
    cluster.results = [True, True, not force]
    for _ in range(2):
        retrainer.retrain_if_due()
        clock.now_s += 100
    assert cluster.slot == "v2"
    whole = cluster.train

    def meanwhile(order: Order, cancelled: threading.Event) -> Candidate:
        retrainer.rollback()
        return whole(order, cancelled)

    monkeypatch.setattr(cluster, "train", meanwhile)
    retrainer.retrain_if_due()
    assert cluster.slot == "v1"
    assert cluster.kinds()[-2:] == ["retrain", "refused"]
    assert cluster.events[-1]["reason"] == "the champion changed meanwhile, from v2 to v1"
    status = retrainer.status()
    assert (status["last_run"]["result"], status["refused"], status["forced"]) == ("refused", 1, 0)


def test_torn_artefact_is_not_promoted_even_when_forced(
    make: Make, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A challenger whose files are torn after training is refused promotion, force_promote or not."""
    retrainer = make(force_promote=True)
    whole = cluster.train

    def torn(order: Order, cancelled: threading.Event) -> Candidate:
        candidate = whole(order, cancelled)
        Path(candidate["folder"], "weights.safetensors").write_bytes(b"torn")
        return candidate

    monkeypatch.setattr(cluster, "train", torn)
    cluster.results = [True]
    retrainer.retrain_if_due()
    assert cluster.served == []
    assert "v1 cannot serve" in retrainer.status()["last_error"]


def test_alias_moved_in_mlflow_is_followed(make: Make, cluster: FakeCluster, tmp_path: Path) -> None:
    """A champion set with MLflow's own means reaches the slot; a torn one does not, and is reported once."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.sqlite'}")
    retrainer = make(retrain_every_s=0)
    cluster.results = [False, False]
    for _ in range(2):
        retrainer.trigger("test")
        retrainer.retrain_if_due()
    client.set_registered_model_alias("hothouse", "champion", "1")
    retrainer.watch()
    assert cluster.slot == "v1"
    assert cluster.events[-1]["reason"] == "champion alias moved in MLflow"
    (tmp_path / "run2" / "weights.safetensors").unlink()
    client.set_registered_model_alias("hothouse", "champion", "2")
    for _ in range(3):
        retrainer.watch()
    assert cluster.slot == "v1"
    assert cluster.kinds().count("error") == 1
    assert "v2 cannot serve, v1 stays" in cluster.events[-1]["message"]
    assert "v2 cannot serve" in retrainer.status()["last_error"]
    client.set_registered_model_alias("hothouse", "champion", "1")
    retrainer.watch()
    assert retrainer.status()["last_error"] == ""


def test_a_move_in_mlflow_keeps_what_served_as_previous(make: Make, cluster: FakeCluster, tmp_path: Path) -> None:
    """A rollback goes back to it; and a model that was made for other rows is not served however it became champion."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.sqlite'}")
    retrainer = make(retrain_every_s=0)
    cluster.results = [True, True, False, False]
    for _ in range(4):
        retrainer.trigger("test")
        retrainer.retrain_if_due()
    client.set_registered_model_alias("hothouse", "champion", "3")
    retrainer.watch()
    assert retrainer.rollback() == {"version": "v2", "before": "v3"}
    manifest = tmp_path / "run4" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"schema_hash": "other"}))
    client.set_registered_model_alias("hothouse", "champion", "4")
    retrainer.watch()
    assert cluster.slot == "v2"
    assert "v4 cannot serve, v2 stays: it was made for schema other" in cluster.events[-1]["message"]
    assert retrainer.rollback() == {"version": "v2", "before": "v4"}
    assert (cluster.slot, retrainer.status()["last_error"]) == ("v2", "")


def test_a_registry_that_lost_what_serves_stops_no_swap(make: Make, cluster: FakeCluster) -> None:
    """The slot names a version that MLflow no longer has: the next promotion reaches it all the same."""
    cluster.slot, cluster.results = "v9", [True]
    retrainer = make()
    retrainer.retrain_if_due()
    assert (cluster.slot, retrainer.status()["last_error"]) == ("v1", "")


def test_the_schedule_counts_from_the_models_of_before(make: Make, cluster: FakeCluster, clock: Clock) -> None:
    """A retrainer that is restarted more often than the schedule strikes trains all the same."""
    cluster.results = [True, True]
    make(retrain_every_s=3600).retrain_if_due()
    made_ms = cluster.shown[0][0]["created_ms"]
    again = make(retrain_every_s=3600, wall_ms=lambda: made_ms + 3_000_000)
    again.watch()
    again._follow()
    again.retrain_if_due()
    clock.now_s += 599
    again.retrain_if_due()
    assert len(cluster.orders) == 1
    clock.now_s += 2
    again.retrain_if_due()
    assert len(cluster.orders) == 2


def test_a_promotion_that_mlflow_cuts_short_is_completed(
    make: Make, cluster: FakeCluster, registry: Registry, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow goes away between the two aliases: what served before is ``previous`` once it is back, and the reason is
    the verdict's.
    """
    monkeypatch.setattr("services.learn.retrainer.REGISTER_S", 0.01)
    retrainer, keep, tried = make(), registry.keep_previous, list[str]()
    cluster.results = [True, True, True]
    for _ in range(2):
        retrainer.retrain_if_due()
        clock.now_s += 100

    def away(version: str) -> None:
        tried.append(version)
        if len(tried) < 3:
            raise RegistryError("MLflow does not answer at http://mlflow")
        keep(version)

    monkeypatch.setattr(registry, "keep_previous", away)
    retrainer.retrain_if_due()
    for _ in range(2):
        retrainer.watch()
    assert (registry.champion(), cluster.slot, tried[0]) == ("v3", "v3", "v2")
    swap = next(event for event in reversed(cluster.events) if event["kind"] == "swap")
    assert swap["version"] == "v3"
    assert "moved in MLflow" not in swap["reason"]
    assert retrainer.rollback() == {"version": "v2", "before": "v3"}


def test_rollback_and_promote_reach_the_slot_at_once(make: Make, cluster: FakeCluster, clock: Clock) -> None:
    """An operator's rollback and promotion are served when the call returns; a second wish is refused in words."""
    retrainer = make()
    cluster.results = [True, True]
    retrainer.retrain_if_due()
    with pytest.raises(PromotionRefusedError, match="no previous model"):
        retrainer.rollback()
    clock.now_s += 100
    retrainer.retrain_if_due()
    assert retrainer.rollback() == {"version": "v1", "before": "v2"}
    assert cluster.slot == "v1"
    assert retrainer.promote("online") == {"version": "online", "before": "v1"}
    assert cluster.served[-1] == ("online", "")
    retrainer.trigger("now")
    with pytest.raises(TrainingError, match="asked for"):
        retrainer.trigger("again")


def test_mlflow_away_keeps_the_champion_and_is_reported_once(
    make: Make, cluster: FakeCluster, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While MLflow does not answer nothing is swapped; its going and its coming back are one event each."""
    retrainer = make()
    cluster.results = [True]
    retrainer.retrain_if_due()
    before = len(cluster.events)

    def away() -> str:
        raise RegistryError("MLflow does not answer at http://mlflow")

    with monkeypatch.context() as patch:
        patch.setattr(registry, "champion", away)
        for _ in range(3):
            retrainer.watch()
        assert "does not answer" in retrainer.status()["registry_error"]
    retrainer.watch()
    assert cluster.kinds()[before:] == ["error", "registry"]
    assert retrainer.status()["registry_error"] == ""
    assert cluster.slot == "v1"


@pytest.mark.parametrize("cut_short", [False, True])
def test_a_training_outlasts_an_mlflow_that_is_away_at_its_end(
    make: Make, cluster: FakeCluster, registry: Registry, monkeypatch: pytest.MonkeyPatch, cut_short: bool
) -> None:
    """What was trained waits until it is registered, and is registered once, also where MLflow went in between."""
    monkeypatch.setattr("services.learn.retrainer.REGISTER_S", 0.01)
    retrainer, register, waited = make(), registry.register, []
    cluster.results = [True]

    def away(*arguments: Any) -> str:
        waited.append(retrainer.status()["last_error"])
        if len(waited) < 3:
            if cut_short and len(waited) == 2:
                register(*arguments)
            raise RegistryError("MLflow does not answer at http://mlflow")
        return register(*arguments)

    monkeypatch.setattr(registry, "register", away)
    retrainer.retrain_if_due()
    assert "waits for MLflow" in waited[1]
    assert [row["version"] for row in registry.list()] == ["v1"]
    assert cluster.slot == "v1"
    assert retrainer.status()["last_error"] == ""


def test_a_promotion_outlasts_an_mlflow_that_is_away(
    make: Make, cluster: FakeCluster, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first network that was registered is promoted once MLflow is back, and trained once."""
    monkeypatch.setattr("services.learn.retrainer.REGISTER_S", 0.01)
    retrainer, promote, tried = make(), registry.promote, list[str]()
    cluster.results = [True]

    def away(version: str) -> None:
        tried.append(version)
        if len(tried) < 3:
            raise RegistryError("MLflow does not answer at http://mlflow")
        promote(version)

    monkeypatch.setattr(registry, "promote", away)
    retrainer.retrain_if_due()
    assert tried == ["v1"] * 3
    assert (cluster.slot, len(cluster.orders)) == ("v1", 1)
    assert retrainer.status()["last_error"] == ""


def test_a_training_waits_no_longer_for_mlflow_than_one_may_take(
    make: Make, cluster: FakeCluster, registry: Registry, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An MLflow that never takes it does not keep others from being trained for ever."""
    monkeypatch.setattr("services.learn.retrainer.REGISTER_S", 0.01)
    retrainer = make(timeout_s=60)
    cluster.results = [True, True]

    def away(*_: Any) -> str:
        clock.now_s += 40
        raise RegistryError("MLflow does not answer at http://mlflow")

    with monkeypatch.context() as patch:
        patch.setattr(registry, "register", away)
        retrainer.retrain_if_due()
    assert cluster.kinds() == ["error"]
    assert "MLflow does not answer" in retrainer.status()["last_error"]
    retrainer.trigger("operator")
    retrainer.retrain_if_due()
    assert cluster.slot == "v1"


def test_restarted_retrainer_goes_on_from_mlflow(make: Make, cluster: FakeCluster, clock: Clock) -> None:
    """A retrainer that is started again swaps nothing, warm-starts from the champion and waits for its slot."""
    cluster.results = [True, True]
    make().retrain_if_due()
    again = make()
    again.watch()
    assert again.status()["swaps"] == 0
    assert again.status()["serving"] == "v1"
    again.retrain_if_due()
    assert len(cluster.orders) == 1
    clock.now_s += 100
    again.retrain_if_due()
    assert cluster.orders[-1].champion_folder == str(cluster.folder / "run1")


def test_registry_is_left_alone_until_there_is_history(
    make: Make, registry: Registry, cluster: FakeCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without history enough MLflow is not asked, the history every two seconds at most; a wish waits for neither."""
    looks, lists = [], []
    monkeypatch.setattr(cluster, "history_days", lambda: looks.append(clock.now_s) or cluster.days)
    listed = registry.list
    retrainer = make()
    monkeypatch.setattr(registry, "list", lambda: lists.append(clock.now_s) or listed())
    cluster.days = 0.0
    for _ in range(50):
        retrainer.retrain_if_due()
        clock.now_s += 0.2
    assert len(looks) == 5
    assert lists == []
    cluster.results = [True]
    retrainer.trigger("now")
    retrainer.retrain_if_due()
    assert cluster.slot == "v1"


def test_failing_look_is_an_error_until_one_succeeds(make: Make, cluster: FakeCluster, clock: Clock) -> None:
    """A history that cannot be read stands in the status between two looks, and no longer after a look that worked."""
    retrainer = make()
    broken = threading.Event()
    broken.set()

    def history_days() -> float:
        if broken.is_set():
            raise HistoryError("the history cannot be read")
        return 0.0

    cluster.history_days = history_days  # type: ignore[method-assign]
    retrainer.start()
    try:
        until(lambda: "cannot be read" in retrainer.status()["last_error"])
        broken.clear()
        clock.now_s += 2
        until(lambda: retrainer.status()["last_error"] == "")
    finally:
        retrainer.stop()


def test_drift_after_the_newest_model_starts_a_retraining(make: Make, cluster: FakeCluster, clock: Clock) -> None:
    """A drift in rows that the newest model does not know starts one and is told; one that it knows does not."""
    retrainer = make(retrain_every_s=0)
    cluster.results = [True, True]
    cluster.drifts = [(499, "out_temp_c is 6 degC below the two weeks before")]
    retrainer.trigger("the first")
    retrainer.retrain_if_due()
    clock.now_s += 10
    retrainer.retrain_if_due()
    assert retrainer.status()["retrains"] == 1
    cluster.drifts.append((501, "rh_pct errors are 2.1 times as large"))
    clock.now_s += 10
    retrainer.retrain_if_due()
    run = retrainer.status()["last_run"]
    assert (run["kind"], run["reason"], run["version"]) == ("drift", "rh_pct errors are 2.1 times as large", "v2")
    assert cluster.kinds() == ["retrain", "swap", "drift", "retrain", "swap"]


def test_a_drift_whose_training_failed_is_not_tried_without_end(make: Make, cluster: FakeCluster, clock: Clock) -> None:
    """A training that fails leaves the drift unanswered, but only the next drift starts another."""
    retrainer = make(retrain_every_s=0)
    cluster.results = [True, TrainingError("the history is torn"), True]
    retrainer.trigger("the first")
    retrainer.retrain_if_due()
    cluster.drifts = [(501, "rh_pct errors are 2.1 times as large")]
    for _ in range(5):
        clock.now_s += 10
        retrainer.retrain_if_due()
    assert (retrainer.status()["failed"], retrainer.status()["retrains"]) == (1, 1)
    cluster.drifts.append((502, "out_temp_c is 6 degC below the two weeks before"))
    clock.now_s += 10
    retrainer.retrain_if_due()
    assert retrainer.status()["last_run"]["version"] == "v2"


def test_a_drift_is_still_new_where_a_training_could_not_begin(
    make: Make, cluster: FakeCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard that is away when its rows are wanted costs one try, not the answer to the drift."""
    retrainer = make(retrain_every_s=0)
    cluster.results = [True, True]
    retrainer.trigger("the first")
    retrainer.retrain_if_due()
    cluster.drifts = [(501, "rh_pct errors are 2.1 times as large")]
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "flush", lambda: (_ for _ in ()).throw(TrainingError("shard-0 did not write its rows")))
        clock.now_s += 10
        retrainer.retrain_if_due()
    assert retrainer.status()["failed"] == 1
    clock.now_s += 10
    retrainer.retrain_if_due()
    assert retrainer.status()["last_run"]["version"] == "v2"


def test_no_drift_retrains_where_it_is_not_wanted(make: Make, cluster: FakeCluster, clock: Clock) -> None:
    """With ``never`` and no number of rows the shards are not even asked."""
    retrainer = make(retrain_every_s=0, retrain_on_drift="never")
    cluster.results = [True]
    retrainer.trigger("the first")
    retrainer.retrain_if_due()
    cluster.news = lambda since_ms: pytest.fail("asked")  # type: ignore[method-assign]
    clock.now_s += 10
    retrainer.retrain_if_due()


def test_new_rows_start_a_retraining(make: Make, cluster: FakeCluster, clock: Clock) -> None:
    """So many rows after the newest training began the next begins, and again after so many more."""
    retrainer = make(retrain_every_s=0, retrain_rows=50)
    cluster.results = [True] * 3
    retrainer.trigger("the first")
    retrainer.retrain_if_due()
    for rows, trained in ((100, 1), (149, 1), (150, 2), (199, 2), (200, 3)):
        cluster.rows = rows
        clock.now_s += 10
        retrainer.retrain_if_due()
        assert retrainer.status()["retrains"] == trained, rows
    assert retrainer.status()["last_run"]["reason"] == "50 new rows"


def test_threads_run_and_stop(make: Make, cluster: FakeCluster, clock: Clock) -> None:
    """Started, the retrainer trains and serves by itself; stop ends its threads."""
    cluster.results = [True]
    retrainer = make()
    before = set(threading.enumerate())
    retrainer.start()
    begun = set(threading.enumerate()) - before
    assert len(begun) == 3
    until(lambda: cluster.slot == "v1")
    retrainer.stop(patience_s(30))
    assert not [thread for thread in begun if thread.is_alive()]
