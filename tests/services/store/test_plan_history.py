"""Plans in the history: each once, by the day from which on it could be used, whatever the number of writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

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


def rows(root: Path) -> list[dict[str, object]]:
    """What another program reads."""
    table = pa.table(DeltaTable(root / "history/plan_values").to_pyarrow_table())
    return table.sort_by([(name, "ascending") for name in table.column_names]).to_pylist()


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


def test_rows_are_the_same_whatever_the_number_of_writes(tmp_path: Path) -> None:
    """Once, one by one, or again after a crash."""
    plans = [kept(n, n * 5.0) for n in range(8)]
    once, often = PlanHistory(tmp_path / "a"), PlanHistory(tmp_path / "b")
    once.put(0, plans)
    for n in range(8):
        often.put(0, plans[max(0, n - 2) : n + 1])
        PlanHistory(tmp_path / "b").put(0, plans[: n + 1])
    assert rows(tmp_path / "a") == rows(tmp_path / "b")
    assert len(rows(tmp_path / "a")) == 8 * 5


def test_a_plan_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    """One that comes again, by another record, adds nothing."""
    PlanHistory(tmp_path).put(0, [kept(3, 1)])
    before = rows(tmp_path)
    for history in (PlanHistory(tmp_path), PlanHistory(tmp_path)):
        history.put(0, [kept(8, 1)])
        history.put(0, [kept(8, 1)])
    assert rows(tmp_path) == before


def test_other_programs_read_issue_use_and_validity(tmp_path: Path) -> None:
    """A row a value, with the three times that tell what was known when."""
    PlanHistory(tmp_path).put(0, [kept(3, 1, known_h=2)])
    table = pa.table(DeltaTable(tmp_path / "history/plan_values").to_pyarrow_table())
    assert table.column_names == [
        "site", "zone", "source", "kind", "issued_ms", "known_ms", "offset", "metric", "valid_ms", "value",
    ]  # fmt: skip
    assert table.num_rows == 5
    row = table.to_pylist()[0]
    assert (row["metric"], row["issued_ms"], row["known_ms"], row["valid_ms"], row["value"]) == (
        "out_temp_c", T0 + HOUR, T0 + 2 * HOUR, T0 + 2 * HOUR, 4.0,
    )  # fmt: skip


def of_days(root: Path, days: int, partition: int = 0, site: str = "s") -> PlanHistory:
    """Two plans a day."""
    history = PlanHistory(root)
    for n in range(2 * days):
        history.put(partition, [kept(n, n * 12.0, site=site)])
    return history


def files(root: Path, partition: int) -> list[str]:
    here = DeltaTable(root / "history/plan_values").file_uris()
    return sorted(Path(name).name[:10] for name in here if f"/p{partition}/" in name)


@pytest.mark.thorough
def test_plans_of_a_month_that_is_over_become_one_file(tmp_path: Path) -> None:
    """As rows do: what is read stays the same, in each range; another month and another partition's files stay."""
    history = of_days(tmp_path, 40)
    of_days(tmp_path, 4, partition=1, site="t")
    ranges = [(0, 2**62), (T0 + 4 * DAY, T0 + 6 * DAY), (T0 + 33 * DAY, T0 + 34 * DAY)]
    before = [said(history.read("s", *limits, partition=0)) for limits in ranges]
    of_other = files(tmp_path, 1)
    assert history.compact(T0 + 40 * DAY, [0]) == 80
    assert [said(history.read("s", *limits, partition=0)) for limits in ranges] == before
    assert history.compact(T0 + 40 * DAY, [0]) == 0
    assert len(files(tmp_path, 0)) == 1 + 9
    assert files(tmp_path, 1) == of_other
    assert history.sites(0) == ["s"]
    history.put(0, [kept(2, 24.0), kept(90, 30.0), kept(91, 55.0, zone="z1")])  # one of them is there
    assert len(history.read("s", 0, 2**62)) == 80 + 2


def test_plans_that_are_written_while_files_are_merged_are_not_lost(tmp_path: Path) -> None:
    """Nor are those that are merged."""
    history = of_days(tmp_path, 10)
    late = [kept(90, 30.0)]

    def write() -> None:
        if late:
            history.put(0, [late.pop()])

    assert history.compact(T0 + 40 * DAY, [0], check=write) == 20
    assert 90 in [one.offset for one in history.read("s", 0, 2**62)]
    assert len(history.read("s", 0, 2**62)) == 21


def test_another_writer_is_let_alone_and_damage_is_named(tmp_path: Path) -> None:
    """The check of a fenced writer comes before its file takes its place; a torn file is one sentence."""
    history = PlanHistory(tmp_path)

    def fenced() -> None:
        raise FencedError("taken over")

    with pytest.raises(FencedError):
        history.put(0, [kept(3, 1)], fenced)
    assert not list(tmp_path.rglob("_delta_log"))
    history.put(0, [kept(3, 1)])
    (path,) = tmp_path.rglob("*.parquet")
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(HistoryError, match=r"cannot be read"):
        history.read("s", 0, 2**62)
