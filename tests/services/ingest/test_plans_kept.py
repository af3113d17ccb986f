"""Plans after a crash, a lost snapshot, and in whatever cut the log is read: those of an undisturbed run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.log.memory import MemoryLog
from services.ingest.partition import Partition
from services.ingest.plans.intake import PartitionPlans
from services.ingest.shard import Shard
from services.ingest.snapshots.snapshot import Snapshots
from tests.services.ingest.planned import HOUR, heating, known, planned_day, weather
from tests.services.ingest.rig import MOMENTS, Clock, Rig, day, filled
from tests.services.ingest.samples import STEP, T0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """What a run without any crash leaves behind."""
    return Rig(tmp_path_factory.mktemp("undisturbed"), filled(planned_day())).read_all()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.thorough
def test_a_kill_at_any_durable_moment_changes_no_plan(tmp_path: Path, undisturbed: Rig, moment: str, nth: int) -> None:
    """After a crash at a named moment, the next shard leaves the same files of plans and rows, and the same letters."""
    rig = Rig(tmp_path, MemoryLog(1), snapshot_s=0.5)
    rig.clock = Clock(tick_s=6.0)  # a snapshot each round, whatever waits
    rig.read_killed(planned_day(), moment, nth)
    kinds = ("zones", "devices", "plans")
    assert rig.content(kinds) == undisturbed.content(kinds)
    assert len(rig.content(("plans",))) == 1
    assert rig.dead_letters() == undisturbed.dead_letters()
    again, once = rig.shard(), undisturbed.shard()
    assert again.questions.plan("demo", "z1") == once.questions.plan("demo", "z1")
    assert {k: again.stats()[k] for k in ("plans", "plans_repeated")} == {
        k: once.stats()[k] for k in ("plans", "plans_repeated")
    }


def test_a_snapshot_of_before_plans_is_whole(tmp_path: Path) -> None:
    """A release that knew no plans left none out; the shard goes on from its snapshot without a word."""
    rig = Rig(tmp_path, filled(list(day())))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    snapshots = Snapshots(rig.settings.storage_folder, 0, "snapshots")
    found = snapshots.load()
    assert found is not None
    snapshots.save(found.offset, {name: part for name, part in found.parts.items() if name != "plans"})
    rig.log.append([weather(T0 + 50 * STEP)])
    again = rig.shard()
    assert again.stats()["repaired"] == ""
    rig.drain(again)
    assert len(again.questions.plan("demo", "z1") or []) == 1


def test_plans_that_a_snapshot_lost_come_back_from_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part is damaged, the log begins behind it: what was known before is known again."""
    rig = Rig(tmp_path, filled(planned_day()))
    shard = rig.shard()
    rig.drain(shard)
    before = shard.questions.plan("demo", "z1")
    shard.close()
    rig.log.truncate(0, rig.log.end_offset(0))
    again = without_plans(rig, monkeypatch)
    assert "plans: it is damaged" in again.stats()["repaired"]
    rig.drain(again)
    assert before
    assert again.questions.plan("demo", "z1") == before


def test_a_plan_that_gave_way_does_not_come_back_from_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was by a clock that was ahead, so the history knows it from later on than what came after it."""
    first, later = list(day(4)), list(day(40))[len(list(day(4))) :]
    ahead_ms = first[-1].receive_ms + 2 * HOUR
    right = weather(later[0].receive_ms)._replace(receive_ms=ahead_ms)
    records = [*first, weather(ahead_ms, first=20.0), right, *(one._replace(receive_ms=ahead_ms) for one in later)]
    rig = Rig(tmp_path, filled(records))
    shard = rig.shard()
    rig.drain(shard)
    before = shard.questions.plan("demo", "z1")
    assert known(before) == [("_site", "knmi", later[0].receive_ms)]
    shard.close()
    rig.log.truncate(0, rig.log.end_offset(0))
    again = without_plans(rig, monkeypatch)
    rig.drain(again)
    assert again.questions.plan("demo", "z1") == before


made = st.lists(
    st.one_of(
        st.builds(lambda late, source: ("weather", late, source), st.integers(0, 3), st.sampled_from("ab")),
        st.builds(lambda late, zone: ("heating", late, zone), st.integers(0, 3), st.sampled_from(["z1", "z2"])),
        st.just(("samples", 0, "")),
    ),
    max_size=60,
)


@settings(max_examples=20, deadline=None)
@given(made, st.lists(st.integers(1, 9), min_size=1), st.integers(0, 3))
def test_plans_are_the_same_in_whatever_cut_the_log_is_read(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[tuple[str, int, str]], cuts: list[int], twice: int
) -> None:
    """State, counts, letters and what any row saw do not depend on how records were gathered."""
    samples, records, at = list(day(60)), [], T0
    for kind, late, name in kinds:
        if kind == "samples":
            records.append(samples.pop(0))
            at = max(at, records[-1].receive_ms)
        elif kind == "weather":
            records.append(weather(at, issued_ms=at - late * HOUR, source=name))
        else:
            records.append(heating(at, zone=name, issued_ms=at - late * HOUR))
        records += records[-1:] * (kind != "samples" and len(records) % 4 < twice)
    rig = Rig(tmp_path_factory.mktemp("cuts"), filled(records))

    def run(lengths: list[int]) -> tuple[object, ...]:
        shard = rig.shard()
        (partition,) = shard._partitions.values()
        seen, taken = list[object](), list[object]()
        fed = rig.log.read(0, partition.offset, 10_000)
        note(partition, seen)
        while fed:
            length = lengths[len(taken) % len(lengths)]
            taken.append(length)
            partition.take(fed[:length], 100)
            fed = fed[length:]
        state = {**partition.learner.plans.state()}
        kept = [(one.offset, one.plan.known_ms) for one in partition.learner.plans.kept]
        return seen, repr(state), kept, dict(partition.counts), sorted(partition.dead_letters)

    assert run(cuts) == run([10_000])


def note(partition: Partition, seen: list[object]) -> None:
    """Let ``seen`` hold what each row that closes is told of plans."""
    after_row = partition.learner.plans.after_row

    def told(site: str, end_ms: int) -> None:
        plans = partition.learner.plans.of(site)
        ahead = end_ms + np.arange(0, 6) * HOUR
        metrics = ("out_temp_c", "sp_heat_c")
        foreseen = None if plans is None else plans.foreseen(end_ms, ("z1", "z2"), metrics, ahead).tolist()
        seen.append((end_ms, repr(foreseen)))
        after_row(site, end_ms)

    partition.learner.plans.after_row = told  # type: ignore[method-assign]


def without_plans(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Shard:
    """A shard that finds the snapshot's part of plans damaged."""

    def damaged(self: PartitionPlans, state: object) -> None:
        raise ValueError("it is damaged")

    with monkeypatch.context() as patched:
        patched.setattr(PartitionPlans, "load", damaged)
        return rig.shard()
