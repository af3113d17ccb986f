"""Challengers that passed without a shadow become champion, also where something came in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from services.errors import RegistryError
from services.learn.loop.retrainer import Retrainer
from services.learn.promotion.champion import ChampionAlias
from services.learn.promotion.registry import Registry
from services.messages import Shadow
from tests.services.learn.fakes import Clock, FakeCluster, Make
from tests.services.learn.synthetic import make_candidate


class Killed(BaseException):
    """The process ends here."""


def killed(*_: Any, **__: Any) -> None:
    raise Killed


def cut_short(make: Make, cluster: FakeCluster, result: bool = True, **learn: Any) -> None:
    """A training whose challenger is registered, and whose process is killed before it is promoted."""
    cluster.results = [result]
    retrainer = make(**learn)
    retrainer.trigger("operator")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChampionAlias, "succeed", killed)
        with pytest.raises(Killed):
            retrainer.retrain_if_due()


def started(make: Make) -> Retrainer:
    """A retrainer after a restart, which trains nothing by itself."""
    retrainer = make(retrain_every_s=0)
    retrainer.watch()
    return retrainer


def promoted(make: Make, cluster: FakeCluster) -> None:
    """A first champion, v1."""
    cluster.results = [True]
    make().retrain_if_due()
    assert cluster.pointer == "v1"


@pytest.mark.parametrize(("result", "says"), [(True, "better than all"), (False, "forced, although: air_temp_c at")])
def test_a_kill_before_the_promotion_loses_no_verdict(
    make: Make, cluster: FakeCluster, registry: Registry, result: bool, says: str
) -> None:
    """The next process promotes what was registered, without another training, and says why as the first would have."""
    cut_short(make, cluster, result, force_promote=not result)
    assert (registry.due(), cluster.pointer) == (("v1", "online"), "online")
    again = started(make)
    again.retrain_if_due()
    assert (cluster.pointer, registry.champion(), registry.due()) == ("v1", "v1", None)
    assert len(cluster.orders) == 1
    assert cluster.events[-1]["reason"].startswith(says)
    again.retrain_if_due()
    assert again.status()["swaps"] == 1


def test_what_an_operator_made_champion_since_stays(make: Make, cluster: FakeCluster, registry: Registry) -> None:
    """A verdict holds for the champion that it was given against; it is told that it came to nothing, once."""
    promoted(make, cluster)
    cut_short(make, cluster)
    again = started(make)
    again.promote("online")
    for _ in range(2):
        again.retrain_if_due()
    assert (cluster.pointer, registry.due()) == ("online", None)
    assert cluster.kinds().count("refused") == 1
    assert cluster.events[-1]["reason"] == "the champion changed meanwhile, from v1 to online"


def test_what_an_operator_went_back_from_is_not_promoted_again(
    make: Make, cluster: FakeCluster, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill came after the alias had moved; the operator was faster than the retrainer that was started again."""
    promoted(make, cluster)
    cluster.results = [True]
    retrainer = make()
    retrainer.trigger("operator")
    with monkeypatch.context() as patch:
        patch.setattr(Registry, "keep_previous", killed)
        with pytest.raises(Killed):
            retrainer.retrain_if_due()
    assert (registry.champion(), registry.due()) == ("v2", ("v2", "v1"))
    again = started(make)
    again.rollback()
    for _ in range(2):
        again.retrain_if_due()
    assert (cluster.pointer, registry.due()) == ("v1", None)


def test_a_kill_after_the_alias_moved_leaves_nothing_due(
    make: Make, cluster: FakeCluster, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What serves is promoted already: that is recorded, and nothing else happens."""
    cluster.results = [True]
    with monkeypatch.context() as patch:
        patch.setattr(Registry, "keep_previous", killed)
        with pytest.raises(Killed):
            make().retrain_if_due()
    again = started(make)
    told = len(cluster.events)
    again.retrain_if_due()
    assert (cluster.pointer, registry.due(), len(cluster.events)) == ("v1", None, told)


def test_a_promotion_outlives_an_mlflow_that_is_away_for_long(
    make: Make, cluster: FakeCluster, registry: Registry, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retraining fails when its time is over; once MLflow is back its challenger is promoted, not trained again."""
    monkeypatch.setattr("services.learn.loop.retrainer.REGISTER_S", 0.01)
    retrainer = make(timeout_s=60, retrain_every_s=0)
    cluster.results = [True]
    retrainer.trigger("operator")

    def away(version: str) -> None:
        clock.now_s += 40
        raise RegistryError("MLflow does not answer at http://mlflow")

    with monkeypatch.context() as patch:
        patch.setattr(registry, "promote", away)
        retrainer.retrain_if_due()
        assert retrainer.status()["last_run"]["result"] == "failed"
        retrainer.retrain_if_due()
        assert "a promotion that may be due was not made: MLflow does not answer" in retrainer.status()["last_error"]
    clock.now_s += 60
    retrainer.retrain_if_due()
    assert (cluster.pointer, len(cluster.orders), registry.due()) == ("v1", 1, None)


def test_a_look_that_fails_is_told_and_stops_no_training(
    make: Make, cluster: FakeCluster, registry: Registry, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made again after a pause, and its error is over with the first one that succeeds."""
    retrainer, looks = make(), list[float]()

    def fail() -> None:
        looks.append(clock.now_s)
        raise RegistryError("MLflow does not answer at http://mlflow")

    with monkeypatch.context() as patch:
        patch.setattr(registry, "due", fail)
        cluster.results = [True]
        retrainer.retrain_if_due()
        assert "a promotion that may be due was not made: MLflow does not answer" in retrainer.status()["last_error"]
        retrainer.retrain_if_due()
    assert (cluster.pointer, len(looks)) == ("v1", 1)
    clock.now_s += 2
    retrainer.retrain_if_due()
    assert retrainer.status()["last_error"] == ""


def test_torn_files_end_what_is_due(make: Make, cluster: FakeCluster, registry: Registry) -> None:
    """They would be torn at the next try, too: the reason is told once."""
    cut_short(make, cluster)
    Path(cluster.folder, "run1", "weights.safetensors").write_bytes(b"torn")
    again = started(make)
    for _ in range(2):
        again.retrain_if_due()
    assert (cluster.pointer, registry.due(), cluster.kinds().count("refused")) == ("online", None, 1)
    assert "v1 cannot serve" in cluster.events[-1]["reason"]


def test_what_an_earlier_release_registered_is_never_due(
    make: Make, cluster: FakeCluster, registry: Registry, tmp_path: Path
) -> None:
    """It may have passed and been taken back since: nothing is read into what is not recorded."""
    cut_short(make, cluster)
    MlflowClient(f"sqlite:///{tmp_path / 'mlflow.sqlite'}").delete_model_version_tag("hothouse", "1", "due")
    started(make).retrain_if_due()
    assert (cluster.pointer, registry.due()) == ("online", None)


def test_only_a_verdict_without_a_shadow_makes_a_promotion_due(registry: Registry, tmp_path: Path) -> None:
    """A challenger that was refused, is in shadow, or was judged against nothing waits for none; the newest of
    several that do comes first; whoever promotes one has decided.
    """
    folder = tmp_path / "storage" / "models"
    registry.register(make_candidate(folder / "a", passed=False), 1, None, "online")
    registry.register(make_candidate(folder / "b", shadow=True), 2, Shadow(against="online", from_ms=0, until_ms=1))
    registry.register(make_candidate(folder / "c"), 3)
    assert registry.due() is None
    registry.register(make_candidate(folder / "d"), 4, None, "online")
    registry.register(make_candidate(folder / "e", passed=False, forced=True), 5, None, "v3")
    assert registry.due() == ("v5", "v3")
    registry.no_longer_due("v5")
    assert registry.due() == ("v4", "online")
    registry.promote("v4")
    assert registry.due() is None
