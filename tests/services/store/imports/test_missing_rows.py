"""What an import adds in a pause that a running system has passed over."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.store.history import History, zone_table
from services.store.rows import SiteStep

METER = "irrigation_l_m2"
CHANNELS = ("rh_pct", METER)
T0, STEP, DAY = 1_646_092_800_000, 300_000, 288
PASSED_OVER = 3 * DAY


def rows(zone: str, ends: range, read: set[int]) -> list[SiteStep]:
    """Rows of a zone as windows make them, whose meter shows ``n / 10`` in the steps ``n`` in which it is ``read``."""
    made, last = list[SiteStep](), None
    for n in ends:
        gained = np.nan
        if n in read:
            gained, last = (np.nan if last is None else (n - last) / 10), n
        age_s = np.nan if last is None else (n - last) * 300 + 10
        values, ages_s = np.array([[70, gained]], np.float32), np.array([[10, age_s]], np.float32)
        made.append(SiteStep(0, "demo", T0 + n * STEP, (zone,), values, ages_s))
    return made


@settings(max_examples=30, deadline=None)
@given(
    every=st.tuples(st.sampled_from([1, 7, 300]), st.sampled_from([12, 150, 600])),
    pause=st.tuples(st.integers(3 * DAY + 2, 6 * DAY), st.integers(3 * DAY + 2, 6 * DAY)),
    first=st.integers(0, 5 * DAY),
    cuts=st.lists(st.integers(1, 7 * DAY), max_size=6),
)
@example(every=(300, 600), pause=(5 * DAY, 6 * DAY), first=1000, cuts=[1010])  # nothing is gained in the first part
@example(every=(1, 600), pause=(5 * DAY, 6 * DAY), first=1000, cuts=[1010])
@example(every=(300, 300), pause=(5 * DAY, 5 * DAY), first=900, cuts=[1000, 1199])  # nothing is read in the second
def test_a_meter_counts_once_over_a_pause_in_however_many_parts_an_import_comes(
    tmp_path_factory: pytest.TempPathFactory, every: tuple[int, int], pause: tuple[int, int], first: int,
    cuts: list[int],
) -> None:  # fmt: skip
    """Also where it is not read in some of the parts, and where another zone of the site is back earlier or later."""
    history, begun, zones = History(tmp_path_factory.mktemp("history"), CHANNELS, 300), 40, ("z1", "z2")
    for zone, length in zip(zones, pause, strict=True):
        back = begun + length
        history.add(
            step
            for step in rows(zone, range(back + 20), {*range(begun), *range(back, back + 20)})
            if step.end_ms < T0 + (begun + PASSED_OVER) * STEP or step.end_ms >= T0 + back * STEP
        )
    history.flush()
    for begin, end in pairwise(sorted({first, *(cut for cut in cuts if cut > first), 7 * DAY})):
        of_zones = [
            step
            for zone, length, each in zip(zones, pause, every, strict=True)
            for step in rows(zone, range(first, begun + length), set(range(first, begun + length, each)))
            if T0 + begin * STEP <= step.end_ms < T0 + end * STEP
        ]
        if of_zones:
            history.add_missing(0, "demo", zone_table(CHANNELS, of_zones))
    there = history.read()
    for zone, length in zip(zones, pause, strict=True):
        gained = there[METER].to_numpy()[there["zone"].to_numpy() == zone]
        assert np.nansum(gained) == pytest.approx((begun + length + 19) / 10, rel=1e-3)


@pytest.mark.parametrize("days", [35, 400])
def test_an_import_that_begins_long_after_a_pause_began_counts_its_meter_once(tmp_path: Path, days: int) -> None:
    """A greenhouse that stood empty for months has its newest row before the import as long ago."""
    history, begun, first = History(tmp_path, CHANNELS, 300), 40, days * DAY
    back = first + 2 * DAY
    whole = rows("z1", range(back + 20), {*range(begun), *range(back, back + 20)})
    history.add(whole[: begun + PASSED_OVER] + whole[back:])
    history.flush()
    for begin in (first, first + DAY):
        some = rows("z1", range(begin, begin + DAY), set(range(begin, begin + DAY)))
        history.add_missing(0, "demo", zone_table(CHANNELS, some))
    assert np.nansum(history.read()[METER].to_numpy()) == pytest.approx((back + 19) / 10, rel=1e-3)


def test_an_import_of_a_zone_that_was_renamed_reads_no_rows_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its meter is never read again: a site with years of rows since then would be read whole for each of its days."""
    history, begun = History(tmp_path, CHANNELS, 300), 40
    history.add(rows("old", range(begun + PASSED_OVER), set(range(begun))))
    history.add(rows("other", range(9 * DAY), set(range(9 * DAY))))
    history.flush()
    found, read = list[int](), history.zones.read

    def noted(*arguments: Any, **options: Any) -> pa.Table | None:
        table = read(*arguments, **options)
        found.append(0 if table is None else len(table))
        return table

    monkeypatch.setattr(history.zones, "read", noted)
    first = begun + PASSED_OVER
    some = rows("old", range(first, first + DAY), set(range(first, first + DAY)))
    assert history.add_missing(0, "demo", zone_table(CHANNELS, some)).added == DAY
    of_there = DAY  # rows of any zone at these times, which may be there already
    assert sum(found) <= of_there + DAY  # and the day before of its own


@pytest.mark.parametrize("order", [(12, 1), (1, 12)])
def test_a_meter_that_two_imports_read_counts_once(tmp_path: Path, order: tuple[int, int]) -> None:
    """A file with a value an hour, then one with a value each five minutes, beside live rows without a meter."""
    history, all_day = History(tmp_path, CHANNELS, 300), range(DAY)
    history.add(rows("z1", all_day, set()))
    history.flush()
    for every in order:
        some = rows("z1", all_day, set(range(0, DAY, every)))
        assert history.add_missing(0, "demo", zone_table(CHANNELS, some)).filled in (0, DAY // every - 1)
    gained = float(np.nansum(history.read()[METER].to_numpy()))
    assert abs(gained - (DAY - 12) / 10) < 1.2


def test_a_meter_that_stopped_in_one_import_is_filled_in_from_another(tmp_path: Path) -> None:
    """But for the day after its last reading there, in which nobody knows whether it stopped."""
    history, both = History(tmp_path, CHANNELS, 300), range(3 * DAY)
    history.add(rows("z1", both, set()))
    history.flush()
    for read in (range(DAY), range(DAY, 3 * DAY)):
        history.add_missing(0, "demo", zone_table(CHANNELS, rows("z1", both, set(read))))
    gained = float(np.nansum(history.read()[METER].to_numpy()))
    assert gained == pytest.approx(2 * DAY / 10, rel=0.02)
