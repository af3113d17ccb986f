"""Plans in the history: each once, by the day from which on it could be used, whatever the number of writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from models.features.plans import Plan
from services.errors import HistoryError
from services.ingest.snapshots.snapshot import FencedError
from services.store.plan_history import KeptPlan, PlanHistory

HOUR = 3_600_000
DAY = 24 * HOUR
T0 = 1_646_092_800_000  # 2022-03-01 00:00 UTC


def kept(
    offset: int, hour: float, source: str = "knmi", zone: str = "", known_h: float = -1, site: str = "s"
) -> KeptPlan:
    """A forecast of two metrics, issued so many hours after T0."""
    issued = T0 + round(hour * HOUR)
    times = issued + np.arange(1, 4) * HOUR
    series = {"wind_m_s": (times[:2], np.array([1.5, 2.5])), "out_temp_c": (times, np.array([4.0, 5.0, 6.0]))}
    return KeptPlan(site, offset, Plan(source, "weather", issued, series, zone, T0 + round(known_h * HOUR)))


def said(found: list[KeptPlan]) -> list[tuple[str, int, str, str, int, int, dict[str, list[list[float]]]]]:
    return [
        (one.site, one.offset, one.plan.source, one.plan.zone, one.plan.issued_ms, one.plan.known_ms,
         {name: [times.tolist(), values.tolist()] for name, (times, values) in one.plan.series.items()})
        for one in found
    ]  # fmt: skip


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.parquet"))}


def test_what_is_put_is_read(tmp_path: Path) -> None:
    """In the order in which plans could be used, also where two of a file came in records of one offset."""
    plans = [kept(3, 1), kept(4, 1, zone="z1"), kept(7, 0, known_h=5), kept(3, 2, source="other"), kept(9, 30)]
    history = PlanHistory(tmp_path)
    history.put(0, plans)
    wanted = sorted(plans, key=lambda one: (one.plan.known_ms, one.offset))
    assert said(history.read("s", 0, 2**62)) == said(wanted)
    assert said(history.read("s", T0 + HOUR, T0 + 5 * HOUR)) == said(wanted[2:4])
    assert history.sites() == history.sites(0) == ["s"]
    assert history.sites(1) == []


def test_files_are_the_same_whatever_the_number_of_writes(tmp_path: Path) -> None:
    """Once, one by one, or again after a crash: byte for byte, a file a day of their use."""
    plans = [kept(n, n * 5.0) for n in range(8)]
    once, often = PlanHistory(tmp_path / "a"), PlanHistory(tmp_path / "b")
    once.put(0, plans)
    for n in range(8):
        often.put(0, plans[max(0, n - 2) : n + 1])
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert list(content(tmp_path / "a")) == [f"history/plans/s/2022-03-0{day}-p0-plans.parquet" for day in (1, 2)]


def test_a_plan_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    """One that comes again, by another record, adds nothing."""
    history = PlanHistory(tmp_path)
    history.put(0, [kept(3, 1)])
    before = content(tmp_path)
    history.put(0, [kept(8, 1, known_h=2)])
    assert content(tmp_path) == before


def test_other_programs_read_issue_use_and_validity(tmp_path: Path) -> None:
    """A row a value, with the three times that tell what was known when."""
    PlanHistory(tmp_path).put(0, [kept(3, 1, known_h=2)])
    table = pq.read_table(tmp_path / "history/plans/s/2022-03-01-p0-plans.parquet")
    assert table.column_names == [
        "site", "zone", "source", "kind", "issued_ms", "known_ms", "offset", "metric", "valid_ms", "value",
    ]  # fmt: skip
    assert table.num_rows == 5
    row = table.to_pylist()[0]
    assert (row["metric"], row["issued_ms"], row["known_ms"], row["valid_ms"], row["value"]) == (
        "out_temp_c", T0 + HOUR, T0 + 2 * HOUR, T0 + 2 * HOUR, 4.0,
    )  # fmt: skip


def of_days(root: Path, days: int, partition: int = 0) -> PlanHistory:
    """Two plans a day."""
    history = PlanHistory(root)
    history.put(partition, [kept(n, n * 12.0) for n in range(2 * days)])
    return history


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "history/plans/s").iterdir())


def test_plans_of_past_days_become_one_file(tmp_path: Path) -> None:
    """As rows do: what is read stays the same, in each range; what was replaced goes a day later; the newest days and
    another partition's files stay.
    """
    history = of_days(tmp_path, 12)
    of_days(tmp_path, 12, partition=1)
    ranges = [(0, 2**62), (T0 + 4 * DAY, T0 + 6 * DAY), (T0 + 10 * DAY, T0 + 11 * DAY)]
    before = [said(history.read("s", *limits, partition=0)) for limits in ranges]
    assert history.compact(T0 + 10 * DAY, [0]) == 10
    assert [said(history.read("s", *limits, partition=0)) for limits in ranges] == before
    assert history.compact(T0 + 10 * DAY, [0]) == 0
    assert len(names(tmp_path)) == 12 + 1 + 12
    history.compact(T0 + 10 * DAY, [0], wall_s=lambda: 2e10)
    assert [name for name in names(tmp_path) if "-p0-" in name] == [
        "2022-03-01-to-2022-03-10-p0-plans.parquet", "2022-03-11-p0-plans.parquet", "2022-03-12-p0-plans.parquet",
    ]  # fmt: skip
    assert [said(history.read("s", *limits, partition=0)) for limits in ranges] == before
    assert history.sites(0) == ["s"]


def test_a_plan_that_comes_late_goes_into_the_larger_file(tmp_path: Path) -> None:
    """As after a crash: one that is there already adds nothing, another one stands where it belongs."""
    history, plain = of_days(tmp_path / "a", 12), of_days(tmp_path / "b", 12)
    history.compact(T0 + 10 * DAY, [0])
    before = content(tmp_path / "a")
    history.put(0, [kept(2, 24.0), kept(4, 48.0)])
    assert content(tmp_path / "a") == before
    late = [kept(90, 30.0), kept(91, 55.0, zone="z1")]
    for one in (history, plain):
        one.put(0, late)
    assert said(history.read("s", 0, 2**62)) == said(plain.read("s", 0, 2**62))
    assert set(content(tmp_path / "a")) == set(before)


def test_plans_that_are_written_while_files_are_merged_are_not_lost(tmp_path: Path) -> None:
    """Their files are left for the next time."""
    history = of_days(tmp_path, 10)
    late = [kept(90, 30.0)]

    def write() -> None:
        if late:
            history.put(0, [late.pop()])

    assert history.compact(T0 + 9 * DAY, [0], check=write) == 0
    assert 90 in [one.offset for one in history.read("s", 0, 2**62)]
    assert history.compact(T0 + 9 * DAY, [0]) == 9
    assert len(history.read("s", 0, 2**62)) == 21


def test_another_writer_is_let_alone_and_damage_is_named(tmp_path: Path) -> None:
    """The check of a fenced writer comes before its file takes its place; a torn file is one sentence."""
    history = PlanHistory(tmp_path)

    def fenced() -> None:
        raise FencedError("taken over")

    with pytest.raises(FencedError):
        history.put(0, [kept(3, 1)], fenced)
    assert content(tmp_path) == {}
    history.put(0, [kept(3, 1)])
    (path,) = tmp_path.rglob("*.parquet")
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(HistoryError, match=r"cannot be read"):
        history.read("s", 0, 2**62)
