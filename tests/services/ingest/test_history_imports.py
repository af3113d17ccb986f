"""History that comes late: the rows are made, what is there stays, and the learners know it as if it had come first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from edge.log import NewRecord
from edge.wire.topic import SITE_ZONE
from services.errors import HistoryError
from services.store.history import zone_table
from services.store.imports.import_job import ImportNote, new_job, open_jobs, words
from services.store.rows import SiteStep
from services.store.tables.row_table import RowTable
from tests.services.ingest.late_history import DAY, PAST, finish, history, in_order, late, rows_made, rows_of, stream
from tests.services.ingest.rig import Rig, filled
from tests.services.ingest.samples import STEP, T0, new_records, sample


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """A system that had all steps in their order."""
    return in_order(tmp_path_factory.mktemp("whole"))


def test_a_system_that_began_late_becomes_one_that_had_it_first(whole: Rig, tmp_path: Path) -> None:
    """A live sample first, then hours of history: rows are the same, and so is every later forecast."""
    rig = late(tmp_path)
    shard = rig.shard()
    finish(rig, shard)
    new_job(rig.settings.storage_folder, "demo", rows_of(whole, PAST + 1))
    rig.log.append(list(stream(PAST + 30, PAST + 45)))
    finish(rig, shard)
    rig.log.append(list(stream(PAST + 45, PAST + 60)))
    finish(rig, shard)
    one, other = history(rig).read(), history(whole).read()
    for name in ("zone", "end_ms", *history(rig).channels):
        np.testing.assert_array_equal(
            one[name].to_numpy(zero_copy_only=False), other[name].to_numpy(zero_copy_only=False)
        )
    ours, theirs = (
        {(f["zone"], f["origin_ms"]): f["forecasts"]["air_temp_c"] for f in r.live_state.published}
        for r in (rig, whole)
    )
    newest = sorted(ours)[-1]
    for at in [key for key in ours if key[1] > T0 + (PAST + 46) * STEP]:
        for point, wanted in zip(ours[at], theirs[at], strict=True):
            assert point["p50"] == pytest.approx(wanted["p50"], abs=0.05), at
    assert newest in theirs
    (job,) = open_jobs(rig.settings.storage_folder)
    assert (job.note()["state"], job.note()["conflicts"], job.has_rows) == ("done", 0, False)


def test_what_is_there_stays_and_each_conflict_is_counted(whole: Rig, tmp_path: Path) -> None:
    """Rows that the system made itself win; what is newer than them is no history."""
    rig = late(tmp_path)
    shard = rig.shard()
    finish(rig, shard)
    before = history(rig).read()
    wrong = rows_of(whole, PAST + 60)
    place = wrong.column_names.index("air_temp_c")
    wrong = wrong.set_column(place, "air_temp_c", pa.array(wrong["air_temp_c"].to_numpy() + np.float32(1)))
    job = new_job(rig.settings.storage_folder, "demo", wrong)
    finish(rig, shard)
    note = job.note()
    newest_ms = int(before["end_ms"].to_numpy().max())
    assert note["there"] == note["conflicts"] == len(before)
    assert note["too_new"] == int((wrong["end_ms"].to_numpy() > newest_ms).sum()) > 0
    after = history(rig).read(int(before["end_ms"].to_numpy().min()) - 1)
    assert after["air_temp_c"].to_pylist() == before["air_temp_c"].to_pylist()
    assert "say something else than was read, which stays" in words(note)


def test_the_same_import_again_is_the_same_job(whole: Rig, tmp_path: Path) -> None:
    """Running it twice adds nothing, and nothing is learned again."""
    rig = late(tmp_path)
    shard = rig.shard()
    rows = rows_of(whole, 60)
    job = new_job(rig.settings.storage_folder, "demo", rows)
    finish(rig, shard)
    before = rig.content(("zones",))
    assert new_job(rig.settings.storage_folder, "demo", rows).id == job.id
    finish(rig, rig.shard())
    assert rig.content(("zones",)) == before
    assert len(open_jobs(rig.settings.storage_folder)) == 1


@pytest.mark.thorough
def test_rows_that_were_too_new_come_in_once_newer_ones_are_there(whole: Rig, tmp_path: Path) -> None:
    """Nothing ran for days, and what another system has of them is imported first: the same import again, after live
    rows came, fills the gap.
    """
    rig = late(tmp_path, filled(list(stream(0, 20))))
    shard = rig.shard()
    finish(rig, shard)
    rows = history(whole).read(T0, T0 + 80 * STEP)
    ends = pa.array(rows["end_ms"].to_numpy() + 4 * DAY * STEP)  # a pause's first three days have rows, without values
    rows = rows.set_column(rows.column_names.index("end_ms"), "end_ms", ends)
    job = new_job(rig.settings.storage_folder, "demo", rows)
    finish(rig, shard)
    assert (job.note()["state"], job.note()["too_new"]) == ("done", len(rows))
    rig.log.append(list(stream(4 * DAY + 90, 4 * DAY + 100)))
    finish(rig, shard)
    again = new_job(rig.settings.storage_folder, "demo", rows)
    finish(rig, shard)
    note = again.note()
    assert (note["state"], note["too_new"], note["added"]) == ("done", 0, len(rows))
    assert new_job(rig.settings.storage_folder, "demo", rows).id == again.id


def test_the_pause_of_a_gateway_is_filled(whole: Rig, tmp_path: Path) -> None:
    """Nothing came for hours, and the system made rows without readings. What another system has of these hours takes
    their place, learners know it, and a row with readings stays.
    """
    rig = Rig(tmp_path, filled([*stream(0, 40), *stream(PAST, PAST + 20)]))
    shard = rig.shard()
    finish(rig, shard)
    rows = rows_of(whole, PAST + 10)
    job = new_job(rig.settings.storage_folder, "demo", rows)
    finish(rig, shard)
    note = job.note()
    assert (note["state"], note["added"], note["conflicts"], note["too_new"]) == ("done", 0, 0, 0)
    assert note["filled"] == 2 * (PAST - 40)
    one, other = rows_of(rig, PAST + 10), rows
    for name in ("zone", "end_ms", *history(rig).channels):
        np.testing.assert_array_equal(
            one[name].to_numpy(zero_copy_only=False), other[name].to_numpy(zero_copy_only=False)
        )
    partition = shard._partitions[0]
    index = np.array([partition.learner.parts.rings.index("demo", "z1")], np.int64)
    ring = partition.learner.parts.rings.window(index, np.array([T0 + PAST * STEP]), 60)[0]
    assert np.isfinite(ring[:, partition.spec.channels.index("air_temp_c")]).all()
    assert "got values that nobody had read" in words(note)


def test_the_outage_of_a_zone_whose_weather_station_sent_on_is_filled(whole: Rig, tmp_path: Path) -> None:
    """But for its first hour, which learners bridge. The weather that was read stays."""
    outage = [
        *new_records([[sample(T0 + n * STEP, n, SITE_ZONE, "ws", out_temp_c=4.0 + n % 5)] for n in range(40, PAST)])
    ]
    rig = Rig(tmp_path, filled([*stream(0, 40), *outage, *stream(PAST, PAST + 20)]))
    shard = rig.shard()
    finish(rig, shard)
    rows = rows_of(whole, PAST + 10)
    before = rows_of(rig, PAST + 10)
    job = new_job(rig.settings.storage_folder, "demo", rows)
    finish(rig, shard)
    note, after = job.note(), rows_of(rig, PAST + 10)
    assert (note["state"], note["added"], note["filled"]) == ("done", 0, 2 * (PAST - 51))
    assert after["out_temp_c"].equals(before["out_temp_c"])
    hour = (after["end_ms"].to_numpy() >= T0 + 40 * STEP) & (after["end_ms"].to_numpy() < T0 + 51 * STEP)
    np.testing.assert_array_equal(
        after["air_temp_c"].to_numpy(), np.where(hour, before["air_temp_c"].to_numpy(), rows["air_temp_c"].to_numpy())
    )


@pytest.mark.parametrize("alone", [True, False])
def test_what_a_counter_gained_in_an_outage_counts_once(tmp_path: Path, alone: bool) -> None:
    """The row of its first reading after the outage has all of it, so that an import adds nothing."""

    def metered(first: int, last: int, zones: Sequence[str] = ("z1",)) -> list[NewRecord]:
        weather = [[sample(T0 + n * STEP, n, SITE_ZONE, "ws", out_temp_c=4.0 + n % 5)] for n in range(first, last)]
        meters = [[sample(T0 + n * STEP, n, z, irrigation_l_m2=n / 10, rh_pct=70.0) for z in zones]
                  for n in range(first, last)]  # fmt: skip
        return list(new_records([[*one, *other] for one, other in zip(weather, meters, strict=True)]))

    rig = Rig(tmp_path, filled([*metered(0, 40), *([] if alone else metered(40, 80, ())), *metered(80, 100)]))
    finish(rig, rig.shard())
    rows = rows_made(metered(0, 100), 90)
    job = new_job(rig.settings.storage_folder, "demo", rows)
    finish(rig, rig.shard())
    after = rows_of(rig, 90)
    assert job.note()["filled"] == (40 if alone else 40 - 11)
    assert np.nansum(after["irrigation_l_m2"].to_numpy()) == pytest.approx(
        np.nansum(rows["irrigation_l_m2"].to_numpy())
    )
    assert np.isfinite(after["rh_pct"].to_numpy()[52:80]).all()


@pytest.mark.thorough
@pytest.mark.parametrize("is_away", [True, False])
def test_what_a_counter_gained_in_a_long_pause_counts_once(tmp_path: Path, is_away: bool) -> None:
    """After three days of silence rows are passed over, and the first reading after them has all that was gained. A
    system that began after the pause has not: then what the import says counts. It comes in two parts.
    """

    def metered(first: int, last: int) -> list[NewRecord]:
        of_step = ([sample(T0 + n * STEP, n, irrigation_l_m2=n / 10, rh_pct=70.0)] for n in range(first, last))
        return list(new_records(of_step))

    back = 4 * DAY + 60
    rig = Rig(tmp_path, filled([*metered(0, 40 if is_away else 0), *metered(back, back + 20)]))
    finish(rig, rig.shard())
    rows = rows_made(metered(0, back + 20), back - 1)
    days = rows["end_ms"].to_numpy() // 86_400_000
    for part in (days < days[0] + 4, days >= days[0] + 4):
        new_job(rig.settings.storage_folder, "demo", rows.filter(pa.array(part)))
        finish(rig, rig.shard())
    after = rows_of(rig, back + 10)
    assert np.isfinite(after["rh_pct"].to_numpy()).all()
    assert np.nansum(after["irrigation_l_m2"].to_numpy()) == pytest.approx((back + 10) / 10, abs=0.2)


def test_a_setpoint_that_holds_is_no_conflict(tmp_path: Path) -> None:
    """It was read once, an hour ago: what a file says of a row in which others were read is no other reading."""
    first = [sample(T0, 0, sp_heat_c=18.0, rh_pct=70.0)]
    rig = Rig(
        tmp_path, filled(list(new_records([first, *([sample(T0 + n * STEP, n, rh_pct=70.0)] for n in range(1, 40))])))
    )
    finish(rig, rig.shard())
    rows = rows_of(rig, 30)
    assert set(rows["sp_heat_c"].to_pylist()) == {18.0}
    said = np.where(rows["end_ms"].to_numpy() > T0 + 10 * STEP, 19, rows["sp_heat_c"].to_numpy()).astype(np.float32)
    place = rows.column_names.index("sp_heat_c")
    job = new_job(rig.settings.storage_folder, "demo", rows.set_column(place, "sp_heat_c", pa.array(said)))
    finish(rig, rig.shard())
    assert (job.note()["there"], job.note()["conflicts"]) == (len(rows), 0)
    assert rows_of(rig, 30)["sp_heat_c"].equals(rows["sp_heat_c"])


@pytest.mark.thorough
def test_a_file_of_the_history_is_written_anew_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A month that is over is one file: its days are filled together, also where it failed between two months."""
    rig = late(tmp_path)
    table, days = history(rig), 58  # of January and February
    shape = 1, len(table.channels)

    def known(n: int, humidity: float, age_s: float) -> SiteStep:
        values, ages_s = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
        for name, value, age in (("air_temp_c", 20.0, 10.0), ("rh_pct", humidity, age_s)):
            values[:, table.channels.index(name)], ages_s[:, table.channels.index(name)] = value, age
        return SiteStep(0, "demo", T0 - n * 72 * STEP, ("z1",), values, ages_s)

    table.add([known(n, np.nan, np.nan) for n in range(1, 4 * days)])
    table.flush()
    table.compact(T0, [0])
    rows = zone_table(table.channels, [known(n, 70, 10) for n in range(1, 4 * days)])
    job = new_job(rig.settings.storage_folder, "demo", rows)
    written, write = list[int](), RowTable.replace

    def counted(table: RowTable, partition: int, step_s: int, rows: pa.Table, *more: Any) -> None:
        written.append(len(rows))
        if len(written) == 2:
            raise HistoryError("the disk is full")
        write(table, partition, step_s, rows, *more)

    monkeypatch.setattr(RowTable, "replace", counted)
    finish(rig, rig.shard())
    assert (job.note()["days"], job.note()["filled"]) == (days, len(rows))
    assert written == [4 * 30 - 1, 4 * 28, 4 * 28]  # January, February, and February again
    assert np.isfinite(history(rig).read(None, T0 - 1)["rh_pct"].to_numpy()).all()


def test_an_import_from_before_pauses_were_filled_can_be_run_again(tmp_path: Path) -> None:
    """An earlier release left its rows out, and counted them as conflicts: the same import is another job now."""
    table = pa.table({"zone": ["z1"], "end_ms": pa.array([T0], pa.int64())})
    job = new_job(tmp_path, "demo", table)
    done: ImportNote = {**job.note(), "state": "done", "conflicts": 1}
    job.put(done)
    assert new_job(tmp_path, "demo", table).id == job.id
    del done["filled"]
    job.put(done)
    again = new_job(tmp_path, "demo", table)
    assert again.id != job.id
    assert new_job(tmp_path, "demo", table).id == again.id


@pytest.mark.thorough
def test_a_zone_that_has_not_come_yet_is_learned_when_it_comes(whole: Rig, tmp_path: Path) -> None:
    """Its rows wait in the history; its first sample makes the system learn from them."""
    rig = late(tmp_path, filled(list(stream(PAST, PAST + 20, ["z1"]))))
    shard = rig.shard()
    finish(rig, shard)
    job = new_job(rig.settings.storage_folder, "demo", rows_of(whole, PAST + 1))
    for _ in range(400):
        shard.step()
    assert (job.note()["state"], job.note()["grown"]) == ("added", ["z1"])
    rig.log.append(list(stream(PAST + 20, PAST + 30)))
    finish(rig, shard)
    assert (job.note()["state"], job.note()["grown"]) == ("done", ["z1", "z2"])
