"""The slow loop, with MLflow and without a cluster."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NoReturn

import pytest

from services.errors import HistoryError, PromotionRefusedError, TooLittleHistoryError, TrainingError
from services.learn.promotion.registry import Registry
from services.learn.records import Candidate, TrainingRequest
from services.learn.tracking.listing import Listing
from tests.patience import patience_s, until
from tests.services.learn.fakes import Clock, FakeCluster, Make


def test_challenger_that_passed_is_promoted_and_served(make: Make, cluster: FakeCluster) -> None:
    """A passed challenger becomes champion, the model pointer is told once, and lineage holds the flushed offsets."""
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
    assert cluster.pointer == "v1"
    assert cluster.kinds() == ["retrain", "swap", "retrain", "refused"]
    assert "worse than persistence" in cluster.events[-1]["reason"]
    assert [order.champion_folder for order in cluster.orders] == ["", str(cluster.folder / "run1")]
    assert [order.champion_to_ms for order in cluster.orders] == [0, 400]
    assert retrainer.status()["last_run"]["result"] == "refused"


def test_force_promote_promotes_and_says_so(make: Make, cluster: FakeCluster) -> None:
    """With force_promote a refused challenger serves, recorded as forced with the gate's reason."""
    retrainer = make(force_promote=True)
    cluster.results = [False]
    retrainer.retrain_if_due()
    assert cluster.pointer == "v1"
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
    assert "the last one failed: none begins by itself within" in retrainer.status()["next_training"]
    assert cluster.served == []
    clock.now_s += 100
    retrainer.retrain_if_due()
    assert cluster.pointer == "v1"
    assert retrainer.status()["last_error"] == ""


def test_a_training_that_finds_too_little_history_waits_for_more(
    make: Make, cluster: FakeCluster, clock: Clock
) -> None:
    """As trees of zones that joined late: nothing fails, and the status says what is waited for. Who asked for it is
    told why there is none.
    """
    retrainer = make()
    cluster.results = [TrainingError("no room"), *[TooLittleHistoryError("the history is too short")] * 3, True]
    for _ in range(3):
        retrainer.retrain_if_due()
        clock.now_s += 100
    status = retrainer.status()
    assert (status["failed"], status["last_error"], status["last_run"]["result"]) == (1, "", "too early")
    assert cluster.kinds() == ["error"]  # of the first
    clock.now_s -= 99
    waits = "once there are 2 days of history; too few rows to learn from so far: it is tried again in "
    assert retrainer.status()["next_training"].startswith(waits)
    retrainer.trigger("operator")
    retrainer.retrain_if_due()
    assert "the history is too short" in retrainer.status()["last_error"]
    clock.now_s += 100
    retrainer.retrain_if_due()
    assert cluster.pointer == "v1"


def test_a_clock_that_is_set_back_shortens_no_training(
    make: Make, cluster: FakeCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long a training took is measured by a clock that nobody sets."""
    wall_ms = [3_600_000]

    def train(order: TrainingRequest, cancelled: threading.Event) -> Candidate:
        wall_ms[0], clock.now_s = 0, clock.now_s + 90
        return FakeCluster.train(cluster, order, cancelled)

    monkeypatch.setattr(cluster, "train", train)
    cluster.results = [True]
    retrainer = make(lambda: wall_ms[0])
    retrainer.retrain_if_due()
    assert cluster.events[0]["seconds"] == 90
    assert retrainer.status()["trained_s"] == 90


def test_a_training_that_cannot_even_be_shown_ends(
    make: Make, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where MLflow does not say which models there are: once it does, trainings can be asked for again."""
    retrainer = make()
    cluster.results = [True, True]
    retrainer.retrain_if_due()

    def gone(*_: object) -> NoReturn:
        raise PromotionRefusedError("the registered model hothouse is not in MLflow any more")

    with monkeypatch.context() as patch:
        patch.setattr(Listing, "now", gone)
        retrainer.trigger("operator")
        with pytest.raises(PromotionRefusedError, match="is not in MLflow any more"):
            retrainer.retrain_if_due()
        status = retrainer.status()
    assert (status["training"], status["last_run"]["result"]) == (False, "failed")
    assert "is not in MLflow any more" in status["last_error"]
    retrainer.trigger("operator")
    retrainer.retrain_if_due()
    assert retrainer.status()["last_run"]["result"] == "promoted"


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
    assert cluster.pointer == "v2"
    whole = cluster.train

    def meanwhile(order: TrainingRequest, cancelled: threading.Event) -> Candidate:
        retrainer.rollback()
        return whole(order, cancelled)

    monkeypatch.setattr(cluster, "train", meanwhile)
    retrainer.retrain_if_due()
    assert cluster.pointer == "v1"
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

    def torn(order: TrainingRequest, cancelled: threading.Event) -> Candidate:
        candidate = whole(order, cancelled)
        Path(candidate["folder"], "weights.safetensors").write_bytes(b"torn")
        return candidate

    monkeypatch.setattr(cluster, "train", torn)
    cluster.results = [True]
    retrainer.retrain_if_due()
    assert cluster.served == []
    assert "v1 cannot serve" in retrainer.status()["last_error"]


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


def test_a_cron_expression_in_place_of_the_interval(make: Make, cluster: FakeCluster, clock: Clock) -> None:
    """The first model does not wait; then it strikes at three by the zone's clock, whatever the interval says."""
    cluster.results = [True, True]
    began_ms = 1_646_092_800_000 - round(clock.now_s * 1000)  # 2022-03-01T00:00Z, an hour later in Amsterdam
    retrainer = make(
        wall_ms=lambda: began_ms + round(clock.now_s * 1000), retrain_every_s=100, retrain_cron="0 3 * * *",
        retrain_timezone="Europe/Amsterdam",
    )  # fmt: skip
    retrainer.retrain_if_due()
    assert (len(cluster.orders), retrainer.status()["next_due_s"]) == (1, 7200)
    clock.now_s += 7199
    retrainer.retrain_if_due()
    assert len(cluster.orders) == 1
    clock.now_s += 2
    retrainer.retrain_if_due()
    assert len(cluster.orders) == 2
    assert retrainer.status()["last_run"]["reason"] == "0 3 * * * (Europe/Amsterdam)"


def test_restarted_retrainer_goes_on_from_mlflow(make: Make, cluster: FakeCluster, clock: Clock) -> None:
    """A retrainer that is started again swaps nothing, warm-starts from the champion and waits for its model
    pointer.
    """
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
    assert retrainer.status()["next_training"] == "once there are 2 days of history"
    assert lists == []
    cluster.results = [True]
    retrainer.trigger("now")
    retrainer.retrain_if_due()
    assert cluster.pointer == "v1"


def test_the_status_says_why_a_training_that_is_due_does_not_begin(
    make: Make, cluster: FakeCluster, clock: Clock
) -> None:
    """As where a shard is behind, or restarts again and again."""
    cluster.results = [True, True]
    retrainer = make()
    retrainer.retrain_if_due()
    cluster.days, clock.now_s = 0.0, clock.now_s + 100
    retrainer.retrain_if_due()
    waits = "; earlier readings are still being read"
    assert retrainer.status()["next_training"] == f"now: every 1.7 min{waits}"
    cluster.days, clock.now_s = 0.5, clock.now_s + 2  # after months without rows
    retrainer.retrain_if_due()
    assert retrainer.status()["next_training"] == "now: every 1.7 min; once there are 2 days of history"
    cluster.days, clock.now_s = 10.0, clock.now_s + 2
    retrainer.retrain_if_due()
    assert len(cluster.orders) == 2
    assert retrainer.status()["next_training"] == "in 1.6 min: every 1.7 min"


def test_a_training_waits_for_the_days_that_it_needs(make: Make, cluster: FakeCluster) -> None:
    """Where these are more than the settings say, as of trees on few zones, none begins that would fail; it is told."""
    cluster.days, cluster.needs_days = 6.0, 9.7
    retrainer = make()
    retrainer.retrain_if_due()
    assert cluster.orders == []
    assert retrainer.status()["next_training"] == "once there are 9.7 days of history"


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
    until(lambda: cluster.pointer == "v1")
    retrainer.stop(patience_s(30))
    assert not [thread for thread in begun if thread.is_alive()]
