"""Champions under watch after a verdict, with MLflow and without a cluster: they stay, or go by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.errors import ModelFilesError, PromotionRefusedError, RegistryError
from services.learn.loop.retrainer import Retrainer
from services.learn.promotion.live_comparison import PATIENCE
from services.learn.promotion.registry import Registry
from tests.services.learn.fakes import Clock, FakeCluster, Make
from tests.services.learn.promotion.shadows import HOUR_MS, compare_in_vain, evidence, later


def promoted(retrainer: Retrainer, cluster: FakeCluster, clock: Clock) -> None:
    """Make v2 champion by a verdict, and begin its watch."""
    later(cluster, clock, 6)
    cluster.verdicts = [True]
    retrainer.prove()
    clock.now_s += 1000
    retrainer.prove()
    cluster.compared.clear()


def test_a_champion_that_is_worse_goes_by_itself(retrainer: Retrainer, cluster: FakeCluster, clock: Clock) -> None:
    """The one before it serves again; the list and the events say why; it does not come back by itself."""
    promoted(retrainer, cluster, clock)
    later(cluster, clock, 2)
    cluster.verdicts = [True]
    retrainer.prove()
    assert cluster.pointer == "v1"
    assert cluster.compared[0][:2] == ("run2", "run1")
    assert cluster.kinds()[-2:] == ["rollback", "swap"]
    rows = {row["version"]: row for row in retrainer.models()}
    assert (rows["v2"]["stage"], rows["v1"]["stage"]) == ("withdrawn", "champion")
    assert rows["v2"]["reason"] == "Worse than v1 on live rows. Words."
    assert retrainer.status()["rollbacks"] == 1
    later(cluster, clock, 10)
    retrainer.prove()
    assert len(cluster.compared) == 1
    with pytest.raises(PromotionRefusedError, match=r"was taken back\. Worse than v1 on live rows"):
        retrainer.rollback()


def test_what_an_operator_goes_back_to_is_not_watched(retrainer: Retrainer, cluster: FakeCluster, clock: Clock) -> None:
    """A rollback by hand stands, whatever live rows say."""
    promoted(retrainer, cluster, clock)
    retrainer.rollback()
    for _ in range(3):
        later(cluster, clock, 2)
        retrainer.prove()
    assert (cluster.pointer, cluster.compared) == ("v1", [])


def test_a_champion_that_was_replaced_is_said_to_be_watched_no_more(
    retrainer: Retrainer, cluster: FakeCluster, clock: Clock
) -> None:
    """Nobody compares it any longer: the list and the page must not say that it may be withdrawn."""
    promoted(retrainer, cluster, clock)
    assert {row["version"]: row["watch"] is not None for row in retrainer.models()} == {"v1": False, "v2": True}
    retrainer.rollback()
    assert {row["version"]: row["watch"] for row in retrainer.models()} == {"v1": None, "v2": None}


def test_a_verdict_outlives_an_mlflow_that_is_away(
    retrainer: Retrainer, cluster: FakeCluster, clock: Clock, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever MLflow goes away in the middle of a promotion or of a rollback, the next turn finishes it."""
    later(cluster, clock, 6)
    cluster.verdicts = [True, True]
    for name in ("watch", "promote", "settle", "keep_evidence"):
        with monkeypatch.context() as patch:
            patch.setattr(registry, name, _away)
            with pytest.raises(RegistryError):
                retrainer.prove()
    retrainer.prove()
    assert (cluster.pointer, retrainer.models()[0]["passed"]) == ("v2", True)
    clock.now_s += 1000
    retrainer.prove()
    later(cluster, clock, 2)
    for name in ("withdraw", "promote"):
        with monkeypatch.context() as patch:
            patch.setattr(registry, name, _away)
            with pytest.raises(RegistryError):
                retrainer.prove()
    retrainer.prove()
    assert (cluster.pointer, retrainer.models()[0]["stage"]) == ("v1", "withdrawn")
    assert len(cluster.compared) == 2


def _away(*_: Any, **__: Any) -> None:
    raise RegistryError("MLflow does not answer")


class Killed(BaseException):
    """The process ends here."""


def killed(*_: Any, **__: Any) -> None:
    raise Killed


def test_a_kill_after_the_promotion_leaves_no_winner_that_is_recorded_as_refused(
    retrainer: Retrainer, make: Make, cluster: FakeCluster, clock: Clock, registry: Registry, tmp_path: Path
) -> None:
    """The verdict is in the registry before the alias moves, so that it is there when another champion comes, too."""
    later(cluster, clock, 6)
    cluster.verdicts = [True]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "settle", killed)
        with pytest.raises(Killed):
            retrainer.prove()
    again = make(shadow_hours=6, watch_hours=0)
    again.watch()
    again.prove()
    row = again.models()[0]
    assert (row["stage"], row["passed"], row["judged_against"]) == ("champion", True, "v1")
    assert row["reason"] == "In shadow: Words."
    assert evidence(registry, "v2", tmp_path) == cluster.evidence
    again.promote("online")
    cluster.results = [True]
    again.trigger("operator")
    again.retrain_if_due()
    again.promote("v1")
    assert {row["version"]: row["stage"] for row in again.models()}["v2"] == "retired"


def test_a_winner_that_may_not_be_promoted_is_refused_all_the_same(
    retrainer: Retrainer, cluster: FakeCluster, clock: Clock, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files were damaged while it was compared: that is its reason then, not the verdict."""
    later(cluster, clock, 6)
    cluster.verdicts = [True]
    compared = cluster.compare

    def damage(*asked: Any, **named: Any) -> Any:
        (cluster.folder / "run2" / "weights.safetensors").write_bytes(b"torn")
        return compared(*asked, **named)

    monkeypatch.setattr(cluster, "compare", damage)
    retrainer.prove()
    row = retrainer.models()[0]
    assert (row["stage"], row["passed"], cluster.pointer) == ("refused", False, "v1")
    assert "v2 cannot serve" in row["reason"]


def test_a_watch_that_was_not_begun_is_begun_by_the_next_retrainer(
    retrainer: Retrainer, make: Make, cluster: FakeCluster, clock: Clock
) -> None:
    """A retrainer that dies right after a promotion leaves a champion that is watched all the same."""
    retrainer.promote("v2")
    again = make(shadow_hours=6, watch_hours=4)
    again.watch()
    again.prove()
    later(cluster, clock, 2)
    cluster.verdicts = [True]
    again.prove()
    assert cluster.pointer == "v1"


def test_a_champion_that_cannot_be_compared_is_watched_no_longer(
    retrainer: Retrainer, cluster: FakeCluster, clock: Clock
) -> None:
    """And the challengers after it are not blamed for it."""
    promoted(retrainer, cluster, clock)
    later(cluster, clock, 2)
    compare_in_vain(retrainer, cluster, clock)
    assert (cluster.pointer, retrainer.models()[0]["watch"]) == ("v2", None)
    assert "could not be compared with v1: lost" in cluster.events[-1]["reason"]


def test_a_champion_whose_files_are_damaged_goes_by_itself(
    retrainer: Retrainer, cluster: FakeCluster, clock: Clock
) -> None:
    """While it is watched: a replica that restarts could not load it; the one before serves again."""
    promoted(retrainer, cluster, clock)
    (cluster.folder / "run2" / "weights.safetensors").write_bytes(b"torn")
    later(cluster, clock, 2)
    for _ in range(PATIENCE - 1):
        with pytest.raises(ModelFilesError):
            retrainer.prove()
        assert cluster.pointer == "v2"
        clock.now_s += 1000
    retrainer.prove()
    row = next(row for row in retrainer.models() if row["version"] == "v2")
    assert (cluster.pointer, row["stage"]) == ("v1", "withdrawn")
    assert row["reason"].startswith("It cannot serve: the weights in")


def test_a_champion_that_is_no_worse_stays(retrainer: Retrainer, cluster: FakeCluster, clock: Clock) -> None:
    """It is looked at once an hour of rows, each look with a smaller part of the budget, until its watch is over."""
    promoted(retrainer, cluster, clock)
    cluster.verdicts = [False] * 5
    for hours in (0.5, 0.4, 0.2, 1, 1, 1, 2):
        later(cluster, clock, hours)
        retrainer.prove()
    assert [round(level, 6) for *_, level, _ in cluster.compared] == [0.025, round(0.05 / 6, 6), round(0.05 / 12, 6),
                                                                      round(0.05 / 20, 6)]  # fmt: skip
    assert cluster.kinds()[-1] == "watched"
    assert cluster.pointer == "v2"
    assert retrainer.models()[0]["watch"] is None


@pytest.mark.parametrize("is_worse", [True, False])
def test_a_watch_that_an_outage_fills_is_once_more_as_long(
    retrainer: Retrainer, cluster: FakeCluster, clock: Clock, is_worse: bool
) -> None:
    """A champion whose first rows come after its watch was to end is compared all the same; but not without end."""
    promoted(retrainer, cluster, clock)
    compared, cluster.evidence = cluster.evidence, {"rows": 2}
    cluster.verdicts = [False, is_worse]
    later(cluster, clock, 30)
    retrainer.prove()
    watch = retrainer.models()[0]["watch"]
    assert watch is not None
    assert watch["until_ms"] == cluster.now_ms + 4 * HOUR_MS
    if is_worse:
        cluster.evidence = compared
    later(cluster, clock, 4)
    retrainer.prove()
    assert cluster.kinds()[-1] == ("swap" if is_worse else "watched")
    assert cluster.pointer == ("v1" if is_worse else "v2")


def test_going_back_to_what_cannot_serve(retrainer: Retrainer, cluster: FakeCluster, clock: Clock) -> None:
    """Where the files of the one before are torn, the online learners answer alone."""
    promoted(retrainer, cluster, clock)
    (cluster.folder / "run1" / "weights.safetensors").write_bytes(b"torn")
    later(cluster, clock, 2)
    cluster.verdicts = [True]
    retrainer.prove()
    assert cluster.pointer == "online"
