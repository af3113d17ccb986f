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
    assert list(content(tmp_path / "a")) == [f"history/plans/s/2022-03-0{day}-p0.parquet" for day in (1, 2)]


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
    table = pq.read_table(tmp_path / "history/plans/s/2022-03-01-p0.parquet")
    assert table.column_names == [
        "site", "zone", "source", "kind", "issued_ms", "known_ms", "offset", "metric", "valid_ms", "value",
    ]  # fmt: skip
    assert table.num_rows == 5
    row = table.to_pylist()[0]
    assert (row["metric"], row["issued_ms"], row["known_ms"], row["valid_ms"], row["value"]) == (
        "out_temp_c", T0 + HOUR, T0 + 2 * HOUR, T0 + 2 * HOUR, 4.0,
    )  # fmt: skip


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
