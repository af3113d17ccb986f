"""Training rows from streamed tables: order, zones, ranges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.errors import HistoryError
from services.learn.training.dataset import collect, describe, share_out

STEP_MS = 300_000
CHANNELS = ("air_temp_c", "rh_pct")


def _table(site: str, zones: list[str], first: int, steps: int) -> pa.Table:
    """Rows sorted by zone and time, each value telling where it came from."""
    ends = np.tile(np.arange(first + 1, first + steps + 1) * STEP_MS, len(zones))
    base = np.repeat([sum(map(ord, site + zone)) for zone in zones], steps)
    return pa.table({
        "site": pa.array([site] * len(ends)),
        "zone": pa.array(np.repeat(zones, steps).tolist()),
        "end_ms": pa.array(ends, pa.int64()),
        "air_temp_c": pa.array((base + ends / STEP_MS).astype(np.float32)),
        "rh_pct": pa.array(np.where(ends % 7 == 0, np.nan, ends).astype(np.float32)),
    })  # fmt: skip


def _history(root: Path, days: int = 3) -> list[str]:
    files = []
    for site, zones in (("north", ["z1", "z2"]), ("south", ["a"])):
        for day in range(days):
            path = root / site / f"1970-01-{day + 1:02d}-p0.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(_table(site, zones, day * 288, 288), path)
            files.append(str(path))
    return files


@given(st.randoms(use_true_random=False), st.integers(1, 200))
def test_same_rows_give_the_same_array_in_any_order(random: object, block: int) -> None:
    """However the stream is cut into blocks, and in whatever order they arrive, the array is identical."""
    tables = [_table("north", ["z1", "z2"], 0, 50), _table("south", ["a"], 0, 50)]
    zones = ["south/a", "north/z2", "north/z1"]
    whole = collect(tables, CHANNELS, zones)
    pieces = [table.slice(start, block) for table in tables for start in range(0, len(table), block)]
    random.shuffle(pieces)  # type: ignore[attr-defined]
    again = collect(pieces, CHANNELS, zones)
    assert again.zones == whole.zones == ("north/z1", "north/z2", "south/a")
    assert again.values.tobytes() == whole.values.tobytes()
    assert np.array_equal(again.zone_ids, whole.zone_ids)
    assert np.array_equal(again.end_ms, whole.end_ms)


def test_rows_are_sorted_by_zone_and_time_and_keep_their_values() -> None:
    """Each row of the array holds what the table held for that zone and instant; NaN stays NaN."""
    rows = collect([_table("s", ["b", "a"], 5, 3)], CHANNELS, ["s/a", "s/b"])
    assert rows.zone_ids.tolist() == [0, 0, 0, 1, 1, 1]
    assert rows.end_ms.tolist() == [n * STEP_MS for n in (6, 7, 8)] * 2
    assert rows.values[:, 0].tolist() == [float(sum(map(ord, "s" + z)) + n) for z in "ab" for n in (6, 7, 8)]
    assert np.isnan(rows.values[1, 1])
    assert rows.sites == ("s", "s")


def test_other_workers_zones_are_dropped() -> None:
    """A worker keeps the zones dealt to it and nothing else; a range without them gives no rows."""
    table = _table("s", ["a", "b", "c"], 0, 4)
    rows = collect([table], CHANNELS, ["s/b"])
    assert rows.zones == ("s/b",)
    assert len(rows.values) == 4
    assert collect([table], CHANNELS, ["s/x"]).values.shape == (0, 2)


@given(st.dictionaries(st.text("abc", min_size=1), st.integers(1, 500), min_size=1, max_size=20), st.integers(1, 6))
def test_every_zone_goes_to_exactly_one_worker(rows: dict[str, int], workers: int) -> None:
    """Zones are dealt completely and once, no worker is left without, and no share is over twice a fair one."""
    shares = share_out(rows, workers)
    assert sorted(zone for share in shares for zone in share) == sorted(rows)
    assert len(shares) == min(workers, len(rows))
    assert all(shares)
    heaviest = max(sum(rows[zone] for zone in share) for share in shares)
    assert heaviest <= max(max(rows.values()), 2 * sum(rows.values()) / len(shares))


@given(
    st.dictionaries(st.text("abc", min_size=1), st.integers(1, 500), min_size=1, max_size=20), st.integers(1, 6),
    st.integers(0, 500),
)  # fmt: skip
def test_no_worker_has_only_zones_with_too_few_rows(rows: dict[str, int], workers: int, too_few: int) -> None:
    """Alone with zones of less than a day a worker has nothing to train on: they go to workers with others, so that
    fewer take part. All zones are dealt all the same, once.
    """
    shares = share_out(rows, workers, too_few)
    long_enough = [zone for zone in rows if rows[zone] > too_few]
    assert sorted(zone for share in shares for zone in share) == sorted(rows)
    assert len(shares) == max(1, min(workers, len(long_enough)))
    assert all(share & set(long_enough) for share in shares) or not long_enough
    if len(long_enough) == len(rows):
        assert shares == share_out(rows, workers)


def test_range_is_described_from_the_rows_themselves(tmp_path: Path) -> None:
    """Bounds and counts a zone are those of the rows with ``after < end <= to``, not those that were asked for."""
    files = _history(tmp_path)
    found = describe(files, 0, 10**15)
    assert found.rows == {"north/z1": 864, "north/z2": 864, "south/a": 864}
    assert (found.from_ms, found.to_ms) == (STEP_MS, 864 * STEP_MS)
    part = describe(files, 10 * STEP_MS, 20 * STEP_MS)
    assert (part.from_ms, part.to_ms, part.rows["south/a"]) == (11 * STEP_MS, 20 * STEP_MS, 10)
    assert part.as_dict()["from"] == "1970-01-01T00:55:00Z"


def test_empty_range_and_torn_file_are_clear_errors(tmp_path: Path) -> None:
    """No rows, or a file that is not Parquet, raise HistoryError."""
    files = _history(tmp_path, days=1)
    with pytest.raises(HistoryError, match="no rows between"):
        describe(files, 10**12, 10**13)
    Path(files[0]).write_bytes(b"torn")
    with pytest.raises(HistoryError, match="cannot be read"):
        describe(files, 0, 10**15)
