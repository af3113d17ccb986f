"""When a plan counts: by a clock that was ahead, late, or behind the row it was issued before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from services.forecast_spec import forecast_spec
from services.store.plan_history import PlanHistory
from tests.services.ingest.planned import HOUR, heating, known, weather
from tests.services.ingest.rig import Rig, day, filled
from tests.services.ingest.samples import STEP, T0


@pytest.mark.parametrize("ahead_ms", [2 * HOUR, 80 * 365 * 24 * HOUR])
def test_a_plan_is_used_at_once_though_a_clock_was_ahead(tmp_path: Path, ahead_ms: int) -> None:
    """What came since then has the receive time that the clock showed: by it a plan would be for later, or ancient."""
    first, later = list(day(4)), list(day(8))[len(list(day(4))) :]
    plan = weather(first[-1].receive_ms)._replace(receive_ms=first[-1].receive_ms + ahead_ms)
    rig = Rig(tmp_path, filled([*first, plan, *(one._replace(receive_ms=plan.receive_ms) for one in later)]))
    shard = rig.shard()
    rig.drain(shard)
    (used,) = shard.questions.plan("demo", "z1") or []
    assert used["known_ms"] <= later[0].receive_ms
    assert (shard.stats()["plans"], shard.stats()["plans_refused"]) == (1, {})
    shard.close()


@pytest.mark.parametrize("ahead_ms", [2 * HOUR, 365 * 24 * HOUR])
def test_a_plan_issued_by_a_clock_that_was_ahead_gives_way_once_it_is_right(tmp_path: Path, ahead_ms: int) -> None:
    """The next plan of its source counts, now and when the time has come that the clock showed; others stay."""
    first, later = list(day(4)), list(day(40))[len(list(day(4))) :]
    now_ms = first[-1].receive_ms
    wrong = weather(now_ms + ahead_ms, first=20.0)
    right = weather(later[0].receive_ms)._replace(receive_ms=wrong.receive_ms)
    rig = Rig(
        tmp_path,
        filled([*first, heating(now_ms), wrong, right, *(r._replace(receive_ms=wrong.receive_ms) for r in later)]),
    )
    shard = rig.shard()
    rig.drain(shard)
    assert known(shard.questions.plan("demo", "z1")) == [
        ("z1", "grower", now_ms), ("_site", "knmi", later[0].receive_ms)
    ]  # fmt: skip
    (learner,) = (partition.learner for partition in shard._partitions.values())
    plans = learner.plans.of("demo")
    assert plans is not None
    shown_ms = np.array([now_ms + 2 * HOUR + 1])
    assert plans.foreseen(now_ms + 2 * HOUR + 1, ["z1"], ["out_temp_c"], shown_ms).max() < 10
    assert shard.stats()["plan_issued_ms"]["demo"]["weather"] == later[0].receive_ms
    shard.close()


def test_an_older_plan_that_comes_late_leaves_the_newer_one_while_the_site_lags(tmp_path: Path) -> None:
    """Samples wait in a gateway's buffer for hours: plans of now are no sign of a clock that is ahead."""
    records = list(day(12))
    newer, older = (records[3].receive_ms + hours * HOUR for hours in (6, 5))
    late = [one._replace(receive_ms=newer) for one in records[4:]]
    rig = Rig(tmp_path, filled([*records[:4], weather(newer), weather(older)._replace(receive_ms=newer), *late]))
    shard = rig.shard()
    rig.drain(shard)
    assert known(shard.questions.plan("demo", "z1")) == [("_site", "knmi", newer)]
    shard.close()


def test_a_plan_that_is_put_after_a_clock_was_ahead_is_issued_now(tmp_path: Path) -> None:
    """Later than what that clock issued no gateway would let it through."""
    at = T0 + 5 * STEP + 1000
    ahead = at + 2 * HOUR
    records = [*day(6), heating(ahead), *(one._replace(receive_ms=ahead) for one in list(day(12))[9:])]
    rig = Rig(tmp_path, filled(records))
    shard = rig.shard()
    rig.drain(shard)
    ask = shard.questions.next_issue
    assert ask("demo", "z1", "grower", ahead) == ahead + 1
    assert [ask("demo", "z1", "grower", at) for _ in range(2)] == [at, at + 1]
    shard.close()


def test_a_plan_that_came_after_a_row_is_not_what_that_row_saw(tmp_path: Path) -> None:
    """Even if it was issued before the row ended: a forecast, its replay and a training see the same."""
    records = list(day(4))
    late = weather(records[-1].receive_ms, issued_ms=T0)
    rig = Rig(tmp_path, filled([*records, late]))
    shard = rig.shard()
    rig.drain(shard)
    (plan,) = shard.questions.plan("demo", "z1") or []
    assert plan["known_ms"] > T0 + 2 * STEP
    shard.close()
    (kept,) = PlanHistory(rig.settings.storage_folder).read("demo", 0, 2**62)
    assert (kept.plan.issued_ms, kept.plan.known_ms, kept.plan.zone) == (T0, plan["known_ms"], "")
    assert forecast_spec(rig.settings).step_ms == STEP
