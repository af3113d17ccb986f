"""Challengers in shadow, with MLflow and without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.errors import ModelFilesError, StorageAwayError, TrainingError
from services.learn.loop.retrainer import Retrainer
from services.learn.promotion import artefact_files
from services.learn.promotion.registry import Registry
from tests.services.learn.fakes import Clock, FakeCluster, Make
from tests.services.learn.promotion.shadows import HOUR_MS, compare_in_vain, evidence, later


def test_a_challenger_waits_in_shadow(retrainer: Retrainer, cluster: FakeCluster, clock: Clock) -> None:
    """It does not serve, is listed as in shadow, and is not judged before its rows have come; no other is trained."""
    rows = retrainer.models()
    assert [(row["version"], row["stage"]) for row in rows] == [("v2", "shadow"), ("v1", "champion")]
    assert cluster.events[-2]["kind"] == "shadow"
    assert "Compared with v1 on live rows until 1970-01-01 06:00 UTC" in cluster.events[-2]["reason"]
    assert (cluster.pointer, retrainer.status()["last_run"]["result"]) == ("v1", "in shadow")
    cluster.now_ms = 6 * HOUR_MS + 499
    clock.now_s += 1000
    retrainer.prove()
    retrainer.retrain_if_due()
    assert cluster.compared == []
    assert len(cluster.orders) == 2


def test_a_challenger_that_wins_in_shadow_is_promoted(
    retrainer: Retrainer, cluster: FakeCluster, clock: Clock, registry: Registry, tmp_path: Path
) -> None:
    """It is compared once, on rows that neither has seen, with its share of the budget; its evidence is kept."""
    later(cluster, clock, 6)
    cluster.verdicts = [True]
    retrainer.prove()
    assert cluster.compared == [("run2", "run1", "v1", 400, 0.1, False)]
    assert cluster.pointer == "v2"
    assert cluster.events[-1] | {"time_ms": 0} == {
        "time_ms": 0, "kind": "swap", "version": "v2", "before": "v1", "reason": "In shadow: Words.",
    }  # fmt: skip
    row = retrainer.models()[0]
    assert (row["stage"], row["passed"], row["judged_against"]) == ("champion", True, "v1")
    assert evidence(registry, "v2", tmp_path) == cluster.evidence


def test_a_challenger_that_loses_in_shadow_is_refused(retrainer: Retrainer, cluster: FakeCluster, clock: Clock) -> None:
    """The champion stays; the next challenger has less of the budget."""
    later(cluster, clock, 6)
    cluster.verdicts = [False, False]
    retrainer.prove()
    assert cluster.pointer == "v1"
    assert cluster.kinds()[-1] == "refused"
    assert (retrainer.models()[0]["stage"], retrainer.models()[0]["reason"]) == ("refused", "In shadow: Words.")
    cluster.results = ["shadow"]
    retrainer.trigger("operator")
    retrainer.retrain_if_due()
    later(cluster, clock, 6)
    retrainer.prove()
    levels = [level for *_, level, _ in cluster.compared]
    assert levels == pytest.approx([0.2 / 2, 0.2 / 6])
    assert cluster.orders[-1].level == pytest.approx(0.2 / 6)


@pytest.mark.parametrize(
    "found", [{"rows": 2, "missing": 0}, {"rows": 400, "missing": 0, "newest_ms": 500, "mae_ratio": {}}]
)
def test_a_shadow_that_an_outage_fills_goes_on(
    retrainer: Retrainer, cluster: FakeCluster, clock: Clock, found: dict[str, Any]
) -> None:
    """A challenger of which hardly a row could be compared, or those alone that were held back from its training, is
    not refused for that: it gets its verdict on rows that come later, those since it was trained among them.
    """
    compared, cluster.evidence = cluster.evidence, found
    cluster.verdicts = [False, True]
    later(cluster, clock, 30)
    retrainer.prove()
    row = retrainer.models()[0]
    assert row["shadow"] == {"against": "v1", "from_ms": 400, "until_ms": cluster.now_ms + 6 * HOUR_MS}
    assert (row["stage"], cluster.kinds()[-1]) == ("shadow", "retrain")
    later(cluster, clock, 5)
    retrainer.prove()
    assert len(cluster.compared) == 1
    cluster.evidence = compared
    later(cluster, clock, 1)
    retrainer.prove()
    assert cluster.pointer == "v2"


def test_a_challenger_without_numbers_is_refused(retrainer: Retrainer, cluster: FakeCluster, clock: Clock) -> None:
    """Rows that come later would change nothing."""
    cluster.evidence, cluster.verdicts = {"rows": 2, "missing": 1}, [False]
    later(cluster, clock, 6)
    retrainer.prove()
    assert retrainer.models()[0]["stage"] == "refused"


def test_a_shadow_outlives_its_retrainer(retrainer: Retrainer, make: Make, cluster: FakeCluster, clock: Clock) -> None:
    """A retrainer that is started again judges the challenger that it finds in shadow."""
    again = make(shadow_hours=6)
    later(cluster, clock, 6)
    cluster.verdicts = [True]
    again.prove()
    again.watch()
    assert cluster.pointer == "v2"


def test_a_promotion_meanwhile_ends_the_shadow(retrainer: Retrainer, cluster: FakeCluster, clock: Clock) -> None:
    """A verdict against a champion that no longer serves would say nothing: none is asked for."""
    retrainer.promote("online")
    later(cluster, clock, 6)
    retrainer.prove()
    assert cluster.compared == []
    assert "the champion changed meanwhile, from v1 to online" in retrainer.models()[0]["reason"]
    assert cluster.pointer == "online"


@pytest.mark.parametrize("how", ["an operator", "the watch"])
def test_what_comes_after_a_network_that_was_taken_out_of_service_is_judged_on_live_rows(
    make: Make, cluster: FakeCluster, clock: Clock, how: str
) -> None:
    """It is no first network: else the next training undid at once what an operator or live rows decided."""
    retrainer = make(shadow_hours=6, watch_hours=4)
    cluster.results = [True, "shadow"]
    retrainer.retrain_if_due()
    if how == "an operator":
        retrainer.promote("online")
    else:
        retrainer.prove()
        later(cluster, clock, 2)
        cluster.verdicts = [True]
        retrainer.prove()
    assert cluster.pointer == "online"
    clock.now_s += 100
    retrainer.retrain_if_due()
    assert [order.shadow for order in cluster.orders] == [False, True]
    assert (cluster.pointer, retrainer.models()[0]["stage"]) == ("online", "shadow")
    later(cluster, clock, 7)
    cluster.verdicts = [True]
    retrainer.prove()
    assert cluster.compared[-1][:3] == ("run2", "", "the climatology")
    assert cluster.pointer == "v2"


def test_an_operator_may_promote_what_is_in_shadow(retrainer: Retrainer, cluster: FakeCluster, clock: Clock) -> None:
    """The shadow is over then, and the new champion is watched instead."""
    retrainer.promote("v2")
    assert retrainer.models()[0]["stage"] == "champion"
    later(cluster, clock, 0)
    retrainer.prove()
    later(cluster, clock, 2)
    cluster.verdicts = [False]
    retrainer.prove()
    assert [(mine, theirs, worse) for mine, theirs, *_, worse in cluster.compared] == [("run2", "run1", True)]


def test_another_challenger_takes_the_place(retrainer: Retrainer, cluster: FakeCluster) -> None:
    """An operator's wish is trained at once, and the challenger before it says why it was never judged."""
    cluster.results = ["shadow"]
    retrainer.trigger("operator")
    retrainer.retrain_if_due()
    stages = {row["version"]: (row["stage"], row["reason"]) for row in retrainer.models()}
    assert stages["v3"][0] == "shadow"
    assert stages["v2"] == ("refused", "v3 took its place before it was judged")


def test_whoever_gives_way_during_a_look_does_not_come_back(
    retrainer: Retrainer, cluster: FakeCluster, clock: Clock
) -> None:
    """A challenger of which hardly a row could be compared goes on, but not when another took its place meanwhile."""
    cluster.evidence, cluster.verdicts, cluster.results = {"rows": 2, "missing": 0}, [False], ["shadow"]
    retrainer.trigger("operator")
    later(cluster, clock, 30)
    compare = cluster.compare

    def compared(*given: Any, **named: Any) -> Any:
        found = compare(*given, **named)
        retrainer.retrain_if_due()
        return found

    cluster.compare = compared  # type: ignore[method-assign]
    retrainer.prove()
    stages = {row["version"]: row["stage"] for row in retrainer.models()}
    assert (stages["v2"], stages["v3"]) == ("refused", "shadow")


def test_whoever_gave_way_has_used_its_share_of_the_budget(
    retrainer: Retrainer, cluster: FakeCluster, clock: Clock
) -> None:
    """Asking again and again gives nobody another try for nothing: the third comes after two, judged or not."""
    for _ in range(2):
        cluster.results = ["shadow"]
        retrainer.trigger("operator")
        retrainer.retrain_if_due()
    later(cluster, clock, 6)
    cluster.verdicts = [False]
    retrainer.prove()
    ((mine, *_, level, _),) = cluster.compared
    assert (mine, level) == ("run4", pytest.approx(0.2 / 12))


def test_a_refused_challenger_takes_no_place(retrainer: Retrainer, cluster: FakeCluster) -> None:
    """A training whose challenger is worse on held-back rows leaves the one in shadow where it is."""
    cluster.results = [False]
    retrainer.trigger("operator")
    retrainer.retrain_if_due()
    assert [(row["version"], row["stage"]) for row in retrainer.models()][:2] == [("v3", "refused"), ("v2", "shadow")]


@pytest.fixture
def two_places(make: Make, cluster: FakeCluster, clock: Clock) -> Retrainer:
    """One whose champion is v1, whose v2 is in shadow for six hours of rows, and which may have another beside it."""
    made = make(shadow_hours=6, watch_hours=0, shadows=2)
    cluster.trains_on_all = True
    cluster.results = [True, "shadow"]
    made.retrain_if_due()
    made.prove()
    clock.now_s += 100
    made.retrain_if_due()
    made.prove()
    cluster.results = ["shadow"] * 9
    return made


def turn(retrainer: Retrainer, cluster: FakeCluster, clock: Clock, hours: float) -> list[tuple[str, str]]:
    """Rows of so many hours come, verdicts and a training where they are due; who is there then."""
    later(cluster, clock, hours)
    retrainer.prove()
    clock.now_s += 10
    retrainer.prove()
    retrainer.retrain_if_due()
    return [(row["version"], row["stage"]) for row in retrainer.models()]


def test_a_newer_challenger_joins_after_half_the_time(
    two_places: Retrainer, cluster: FakeCluster, clock: Clock
) -> None:
    """Every half of a shadow's time one is trained and, once the first has its verdict, one judged; all in full."""
    cluster.verdicts = [False] * 4
    assert len(turn(two_places, cluster, clock, 2.9)) == 2
    assert turn(two_places, cluster, clock, 0.1)[:2] == [("v3", "shadow"), ("v2", "shadow")]
    assert len(turn(two_places, cluster, clock, 2.9)) == 3
    assert cluster.compared == []
    assert turn(two_places, cluster, clock, 0.1)[:3] == [("v4", "shadow"), ("v3", "shadow"), ("v2", "refused")]
    turn(two_places, cluster, clock, 3)
    turn(two_places, cluster, clock, 3)
    assert [mine for mine, *_ in cluster.compared] == ["run2", "run3", "run4"]
    levels = [level for *_, level, _ in cluster.compared]
    assert levels == pytest.approx([0.2 / 2, 0.2 / 6, 0.2 / 12])
    assert len(cluster.orders) == 6


def test_a_drift_does_not_wait_for_half_the_time(two_places: Retrainer, cluster: FakeCluster, clock: Clock) -> None:
    """It takes the free place at once: what is in shadow was trained before it. With no place free it waits."""
    cluster.drifts = [(501, "rh_pct errors are 2.1 times as large")]
    assert turn(two_places, cluster, clock, 0.1)[0] == ("v3", "shadow")
    assert cluster.orders[-1].all_rows
    cluster.drifts.append((HOUR_MS, "out_temp_c is 6 degC below the two weeks before"))
    assert turn(two_places, cluster, clock, 0.1)[0] == ("v3", "shadow")
    assert cluster.kinds()[-1] == "drift"


def test_the_status_says_when_the_next_training_can_begin(
    two_places: Retrainer, cluster: FakeCluster, clock: Clock
) -> None:
    """And why not sooner: the schedule, half of a shadow's time, or a verdict, each with its time."""
    later(cluster, clock, 1)
    two_places.prove()
    status = two_places.status()
    assert status["next_training"] == (
        "in 2 h: with the rows of 1970-01-01 03:00 UTC, when v2 has been in shadow for half of its time; a drift "
        "need not wait; every 1.7 min"
    )
    assert status["next_due_s"] == 2 * 3600
    turn(two_places, cluster, clock, 2)
    assert two_places.status()["next_training"] == (
        "in 3 h: after the verdict on v2, which comes with the rows of 1970-01-01 06:00 UTC: v2 and v3 are in "
        "shadow, and learn.shadows is 2; every 1.7 min"
    )
    cluster.verdicts = [True]
    later(cluster, clock, 3)
    two_places.prove()
    assert two_places.status()["next_training"].endswith(": every 1.7 min")


def test_torn_challenger_is_refused(retrainer: Retrainer, cluster: FakeCluster, clock: Clock) -> None:
    """Files that were damaged while it waited are the reason that people read."""
    (cluster.folder / "run2" / "weights.safetensors").write_bytes(b"torn")
    later(cluster, clock, 6)
    retrainer.prove()
    row = retrainer.models()[0]
    assert (row["stage"], cluster.pointer) == ("refused", "v1")
    assert "v2 cannot serve: the weights in" in row["reason"]


def test_a_storage_that_is_away_refuses_nobody(
    retrainer: Retrainer, cluster: FakeCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a move to another machine, which has no copy of the models yet: the verdict waits, and is on the two."""
    later(cluster, clock, 6)
    cluster.verdicts = [True]
    with monkeypatch.context() as patch:
        patch.setattr(artefact_files, "fetch_folder", _away)
        with pytest.raises(StorageAwayError):
            retrainer.prove()
        assert retrainer.models()[0]["stage"] == "shadow"
    clock.now_s += 1000
    retrainer.prove()
    assert cluster.compared[0][:3] == ("run2", "run1", "v1")
    assert cluster.pointer == "v2"


def _away(where: object, folder: Path) -> None:
    raise StorageAwayError("s3://b does not answer")


def test_a_champion_that_cannot_be_loaded_is_no_reference(
    retrainer: Retrainer, cluster: FakeCluster, clock: Clock
) -> None:
    """The climatology stands in for it, and the name says so."""
    (cluster.folder / "run1" / "manifest.json").unlink()
    later(cluster, clock, 6)
    cluster.verdicts = [True]
    retrainer.prove()
    assert cluster.compared[0][1:3] == ("", "the climatology (v1 cannot be loaded)")
    assert cluster.pointer == "v2"


def test_a_lost_process_is_tried_again(retrainer: Retrainer, cluster: FakeCluster, clock: Clock) -> None:
    """A comparison whose process dies is made again; one that never succeeds refuses the challenger."""
    later(cluster, clock, 6)
    compare_in_vain(retrainer, cluster, clock)
    row = retrainer.models()[0]
    assert (row["stage"], cluster.pointer) == ("refused", "v1")
    assert "could not be compared with what serves: lost" in row["reason"]


def test_nothing_is_compared_for_long(retrainer: Retrainer, cluster: FakeCluster, clock: Clock) -> None:
    """When neither a challenger nor a champion is to be compared, the process that compares is let go."""
    later(cluster, clock, 6)
    cluster.verdicts = [False]
    retrainer.prove()
    before = cluster.rests
    clock.now_s += 1000
    retrainer.prove()
    assert cluster.rests == before + 1


def test_a_drift_is_trained_on_all_rows(make: Make, cluster: FakeCluster, clock: Clock) -> None:
    """What was held back would hide the drift; without a shadow, something must be held back."""
    for hours, expected in ((6, True), (0, False)):
        retrainer = make(shadow_hours=hours, retrain_every_s=0)
        cluster.results = [True]
        cluster.pointer = retrainer.models()[0]["version"] if retrainer.models() else "online"
        retrainer.trigger("first")
        retrainer.retrain_if_due()
        retrainer.watch()
        for words in ("", "rh_pct drifts"):
            cluster.drifts = [(900, words)] if words else []
            cluster.results = [False]
            clock.now_s += 1000
            retrainer.retrain_if_due()
        assert (cluster.orders[-1].shadow, cluster.orders[-1].all_rows) == (expected, expected)


def test_a_drift_while_a_challenger_is_in_shadow_is_told_and_answered_later(
    retrainer: Retrainer, cluster: FakeCluster, clock: Clock
) -> None:
    """It may take days until the next training can begin."""
    cluster.drifts = [(501, "rh_pct errors are 2.1 times as large")]
    clock.now_s += 1000
    retrainer.retrain_if_due()
    assert (cluster.kinds()[-1], len(cluster.orders)) == ("drift", 2)
    later(cluster, clock, 6)
    cluster.verdicts, cluster.results = [False], ["shadow"]
    retrainer.prove()
    clock.now_s += 1000
    retrainer.watch()
    retrainer.retrain_if_due()
    assert len(cluster.orders) == 3
    assert cluster.kinds().count("drift") == 1


def test_submitted_models_are_judged_like_others(make: Make, cluster: FakeCluster, clock: Clock) -> None:
    """A folder that can serve goes into shadow; one that cannot is refused, and listed with the reason."""
    retrainer = make(shadow_hours=0)
    cluster.results = [True]
    retrainer.retrain_if_due()
    assert retrainer.submit("made") == {"accepted": True, "version": "v2", "against": "v1"}
    with pytest.raises(ModelFilesError, match="torn"):
        retrainer.submit("torn")
    with pytest.raises(TrainingError, match="holds no model"):
        retrainer.submit("typo")
    stages = {row["version"]: (row["stage"], row["reason"]) for row in retrainer.models()}
    assert stages["v2"][0] == "shadow"
    assert stages["v3"] == ("refused", "torn cannot serve: the weights are torn")
    retrainer.prove()
    later(cluster, clock, 24)
    cluster.verdicts = [False, False]  # of the watch of v1, and of the shadow
    retrainer.prove()
    assert retrainer.models()[1]["stage"] == "refused"
    assert cluster.pointer == "v1"
