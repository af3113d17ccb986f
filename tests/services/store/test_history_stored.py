"""The history on storages of any kind: the same rows, forecasts and plans, whatever goes wrong on the way."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.features.plans import Plan
from services.learn.training import dataset
from services.store.forecasts import IssuedForecast, IssuedForecasts
from services.store.history import History, zone_table
from services.store.imports.import_job import new_job, open_jobs
from services.store.plan_history import KeptPlan, PlanHistory
from services.store.rows import SiteStep
from services.store.storage import (
    FolderStorage,
    StorageAddress,
    fetch_folder,
    forget_folder,
    keep_folder,
    kept_folder,
    open_storage,
)
from services.store.zone_series import fingerprint, resampled
from tests.contracts.faulty_server import FAULTS
from tests.s3 import s3_address
from tests.storages import KINDS, TABLE_KINDS, Open, opener

T0, STEP, DAY = 1_646_092_800_000, 300_000, 86_400_000
END = T0 + 99 * DAY
CHANNELS = ("air_temp_c", "rh_pct")


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Each kind. Lists that lag are of what other processes write: readers see that later, a process that has just
    begun, too.
    """
    return opener(request.param, tmp_path, 0.2, [fault for fault in FAULTS if fault != "lagging"])


@pytest.fixture(params=TABLE_KINDS)
def tabled(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Each kind that tables can lie in."""
    return opener(request.param, tmp_path, 0.1)


def step(number: int, value: float = 20.0, partition: int = 0) -> SiteStep:
    """Two zones at a step."""
    values = np.array([[value + number, np.nan], [np.nan, 50.0]], np.float32)
    return SiteStep(partition, "demo", T0 + number * STEP, ("z1", "z2"), values, values)


def ends(history: History) -> list[int]:
    return [(end_ms - T0) // STEP for end_ms in history.read().filter(_of("z1"))["end_ms"].to_pylist()]


def _of(zone: str) -> Any:
    import pyarrow.compute as pc

    return pc.field("zone") == zone


def test_rows_are_there_once_over_days_restarts_and_compactions(tabled: Open) -> None:
    """Forty days in flushes of their own, late and repeated rows, a compaction, and replaced files that go."""
    written = []
    for day in range(0, 40, 4):
        history = History(tabled(), CHANNELS)  # a restart
        for number in (288 * day + 5, 288 * day + 6, 288 * day + 5, 288 * day + 1):
            history.add([step(number)])
            history.flush()
        written += [288 * day + n for n in (1, 5, 6)]
    assert ends(History(tabled(), CHANNELS)) == written
    assert history.newest_ms("demo") == T0 + written[-1] * STEP
    before = fingerprint(History(tabled(), CHANNELS), "demo", 0, END)
    writer = History(tabled(), CHANNELS)
    before_it = len(writer.files())
    assert writer.compact(T0 + 40 * DAY, [0]) == before_it > 8
    reader = History(tabled(), CHANNELS)
    assert fingerprint(reader, "demo", 0, END) != before
    assert ends(reader) == written
    writer.add([step(7)])
    writer.flush()
    assert writer.compact(T0 + 40 * DAY, [0]) == 2
    reader = History(tabled(), CHANNELS)
    assert len(reader.files(None, T0 + 31 * DAY)) == 1
    assert ends(reader) == sorted([*written, 7])
    found = resampled(reader, "demo", "z1", ["air_temp_c"], 0, END, STEP)
    assert found["mean"]["air_temp_c"].tolist() == [20 + n for n in sorted([*written, 7])]


def issued(origin: int, version: str = "v1", value: float = 1.0) -> IssuedForecast:
    shape = (1, 1, 1)
    one = np.full(shape, value, np.float32)
    return IssuedForecast("demo", T0 + origin * STEP, version, ("z1",), np.stack([one] * 3, axis=-1), one, one, 0)


def test_of_forecasts_that_were_issued_twice_the_newest_counts(opened: Open) -> None:
    """After restarts, in parts of the day and once they are one file."""
    for value, origins in enumerate(([1, 2], [2, 3], [2], [290])):
        IssuedForecasts(opened(), 0).put([issued(n, value=value) for n in origins], [60], ["air_temp_c"])

    def said() -> dict[int, float]:
        found = IssuedForecasts(opened(), 0).read("demo", 0, [60], ["air_temp_c"])
        return {(one.origin_ms - T0) // STEP: float(one.network[0, 0, 0]) for one in found}

    assert said() == {1: 0, 2: 2, 3: 1, 290: 3}
    writer = IssuedForecasts(opened(), 0)
    assert writer.merge_days(T0 + DAY, [0]) == 3
    assert said() == {1: 0, 2: 2, 3: 1, 290: 3}
    assert writer.merge_days(T0 + 2 * DAY, [0]) == 1
    assert said() == {1: 0, 2: 2, 3: 1, 290: 3}
    ahead = IssuedForecasts(opened(), 0).ahead("demo", "z1", "air_temp_c", 60, 0, T0 + 9 * DAY)
    assert ahead["p50"].tolist() == [0, 2, 1, 3]


def test_plans_are_kept_once(tabled: Open) -> None:
    """The same plan again changes nothing; each day has its own."""

    def plan(day: int, offset: int) -> KeptPlan:
        at_ms = T0 + day * DAY
        series = {"out_temp_c": (np.array([at_ms + STEP]), np.array([4.5], np.float32))}
        plan = Plan(zone="z1", source="a", kind="weather", issued_ms=at_ms, known_ms=at_ms, series=series)
        return KeptPlan("demo", offset, plan)

    for _ in range(3):
        PlanHistory(tabled()).put(0, [plan(0, 1), plan(1, 2)])
    found = PlanHistory(tabled()).read("demo", 0, 2**52)
    assert [kept.offset for kept in found] == [1, 2]
    assert PlanHistory(tabled()).sites() == ["demo"]


def test_an_import_is_one_job(opened: Open) -> None:
    """The same rows again are the same job, as far as it has come."""
    rows = zone_table(CHANNELS, [step(n) for n in range(3)])
    job = new_job(opened(), "demo", rows)
    job.put({**job.note(), "state": "done"})
    assert new_job(opened(), "demo", rows).note()["state"] == "done"
    (found,) = open_jobs(opened())
    assert len(found.days()) == 1
    found.forget_rows()
    assert not open_jobs(opened())[0].has_rows
    assert open_jobs(opened(), {found.id}) == []


def test_an_import_that_left_rows_out_is_tried_again_as_another_job(opened: Open) -> None:
    """Rows that were too new may be the past by now. While a job is under way it is the same one."""
    rows = zone_table(CHANNELS, [step(n) for n in range(3)])
    names = set()
    for _ in range(3):
        job = new_job(opened(), "demo", rows)
        assert new_job(opened(), "demo", rows).id == job.id
        job.put({**job.note(), "state": "done", "too_new": 2})
        names.add(job.id)
    assert {found.id for found in open_jobs(opened())} == names
    assert len(names) == 3


@pytest.mark.s3
def test_a_training_reads_rows_and_models_from_the_bucket(tmp_path: Path) -> None:
    """The same rows as from a folder; the address that tells a job where they are has no secret."""
    where = s3_address(tmp_path)
    found = []
    for storage, remote in ((FolderStorage(tmp_path / "folder"), None), (open_storage(where), where)):
        history = History(storage, CHANNELS)
        history.add([step(n) for n in range(400)])
        history.flush()
        files = history.files()
        whole = dataset.describe(files, 0, END, remote)
        rows = dataset.gather(files, CHANNELS, 0, END, ["demo/z1"], remote)
        found.append((history.span_ms(now_ms=END), whole, rows.values.tobytes()))
    assert found[0] == found[1]
    assert b"hothouse-test-secret" not in pickle.dumps(where)


def test_a_models_folder_is_kept_and_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, through a server that loses answers; where it was removed from the storage nothing is made."""
    opened = opener("faulty", tmp_path, faults=[fault for fault in FAULTS if fault != "lagging"])
    monkeypatch.setattr(kept_folder, "open_storage", lambda _: opened())
    where, folder = StorageAddress(url="s3://b"), tmp_path / "models" / "m"
    folder.mkdir(parents=True)
    for name in ("manifest.json", "weights.safetensors"):
        (folder / name).write_bytes(name.encode() * 1000)
    keep_folder(where, folder)
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(opened().entries("models/m")) == {"files.json", *kept}
    shutil.rmtree(folder)
    for _ in range(2):
        fetch_folder(where, folder)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == kept
    assert [path.name for path in folder.parent.iterdir()] == ["m"]
    forget_folder(where, folder)
    assert not opened().entries("models/m")
    shutil.rmtree(folder)
    fetch_folder(where, folder)
    assert not folder.exists()
    for nothing in (keep_folder, fetch_folder, forget_folder):
        nothing(None, tmp_path / "nowhere")


def test_a_folder_of_the_release_before_is_read_as_it_is(tmp_path: Path) -> None:
    """Files had the same names; only parts of forecasts had no number, and the time of a file said which is newer."""
    writer = IssuedForecasts(tmp_path, 0)
    folder = tmp_path / "history" / "forecasts" / "2022-03-01"
    for value, name in ((1.0, "p0-1646093100000-ffff.parquet"), (2.0, "p0-1646093100000-0000.parquet")):
        writer.put([issued(1, value=value)], [60], ["air_temp_c"])
        (part,) = (path for path in folder.iterdir() if path.name.count("-") == 3)
        part.rename(folder / name)
        os.utime(folder / name, (value, value))
    for added in range(2):
        if added:
            IssuedForecasts(tmp_path, 0).put([issued(1, value=3.0)], [60], ["air_temp_c"])
        (found,) = IssuedForecasts(tmp_path, 0).read("demo", 0, [60], ["air_temp_c"])
        assert found.network[0, 0, 0] == (3 if added else 2)
    assert writer.merge_days(T0 + DAY, [0]) == 3
    (found,) = IssuedForecasts(tmp_path, 0).read("demo", 0, [60], ["air_temp_c"])
    assert found.network[0, 0, 0] == 3
