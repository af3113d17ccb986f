"""Imports of history after a crash, a failed write, or beside a job that nobody can read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from services.errors import StorageAwayError
from services.store.imports.import_job import ImportJob, ImportNote, new_job, open_jobs
from tests.services.ingest.late_history import PAST, finish, history, in_order, late, rows_of, stream
from tests.services.ingest.rig import Clock, Crashed, Rig, dying, filled
from tests.services.ingest.samples import T0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """A system that had all steps in their order."""
    return in_order(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("crash", ["flushed", "snapshot kept", "taken"])
@pytest.mark.thorough
def test_killed_in_the_middle_and_begun_again_it_ends_the_same(whole: Rig, tmp_path: Path, crash: str) -> None:
    """Whatever moment it dies at: the same rows, none twice, and the import is done."""
    rig = late(tmp_path)
    shard = rig.shard()
    finish(rig, shard)
    new_job(rig.settings.storage_folder, "demo", rows_of(whole, PAST + 1))
    rig.log.append(list(stream(PAST + 30, PAST + 60)))
    for moment in range(1, 6):
        shard = rig.shard(dying(crash, moment))
        try:
            finish(rig, shard)
        except Crashed:
            continue
    finish(rig, rig.shard())
    one, other = history(rig).read(), history(whole).read()
    assert one.select(["zone", "end_ms", "air_temp_c"]).equals(other.select(["zone", "end_ms", "air_temp_c"]))
    assert [job.note()["state"] for job in open_jobs(rig.settings.storage_folder)] == ["done"]


def test_rows_whose_note_could_not_be_kept_are_learned(
    whole: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the only day are there, and the note is not: the day comes again, and learners know it afterwards."""
    rig = late(tmp_path)
    shard = rig.shard()
    finish(rig, shard)
    put, failing = ImportJob.put, [True]

    def away_once(job: ImportJob, note: ImportNote, *more: Any) -> None:
        if failing:
            failing.clear()
            raise StorageAwayError("the storage is away")
        put(job, note, *more)

    monkeypatch.setattr(ImportJob, "put", away_once)
    job = new_job(rig.settings.storage_folder, "demo", rows_of(whole, PAST - 1))
    assert job.note()["of_days"] == 1
    finish(rig, shard)
    note = job.note()
    assert (failing, note["added"], note["state"], note["grown"]) == ([], 0, "done", ["z1", "z2"])


def test_killed_before_its_rows_are_forgotten_they_go_at_the_next_start(
    whole: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note says that all is done; the rows, which may be gigabytes, are in nobody's way for ever."""
    rig = late(tmp_path)
    job = new_job(rig.settings.storage_folder, "demo", rows_of(whole, 60))

    def killed(_: ImportJob) -> None:
        raise Crashed

    with monkeypatch.context() as dead:
        dead.setattr(ImportJob, "forget_rows", killed)
        with pytest.raises(Crashed):
            finish(rig, rig.shard())
    assert (job.note()["state"], job.has_rows) == ("done", True)
    shard = rig.shard()
    for _ in range(2000):  # it looks at imports now and then
        if not job.has_rows:
            break
        shard.step()
    assert not job.has_rows


def test_a_job_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """A folder without its note is never seen."""
    table = pa.table({"zone": ["z1"], "end_ms": pa.array([T0], pa.int64())})
    job = new_job(tmp_path, "demo", table)
    assert [one.id for one in open_jobs(tmp_path)] == [job.id]
    (tmp_path / "imports" / ".half").mkdir()
    assert [one.id for one in open_jobs(tmp_path)] == [job.id]
    assert ImportJob(tmp_path, job.id).note()["of_days"] == 1


@pytest.mark.thorough
def test_a_job_that_cannot_be_read_holds_up_no_other(whole: Rig, tmp_path: Path) -> None:
    """Torn by a power cut, of another version, without its rows: it is told, and the others go on."""
    rig = late(tmp_path)
    shard = rig.shard()
    finish(rig, shard)
    imports = rig.settings.storage_folder / "imports"
    for name, said in (
        ("0000", ""),
        ("0001", "{}"),
        ("0002", '{"site": "demo", "state": "new", "of_days": 1, "days": 0}'),
    ):
        (imports / name).mkdir(parents=True)
        (imports / name / "job.json").write_text(said)
    job = new_job(rig.settings.storage_folder, "demo", rows_of(whole, PAST + 1))
    rig.clock.tick_s = 0.05
    for _ in range(2000):
        shard.step()
        if job.note()["state"] == "done":
            break
    assert job.note()["state"] == "done"
    assert "import" in shard.stats()["last_error"]


def test_a_torn_job_that_was_deleted_is_no_failure_any_more(tmp_path: Path) -> None:
    """The figures name it for as long as it lies there."""
    rig = Rig(tmp_path, filled([]))
    rig.clock = Clock()
    shard = rig.shard()
    torn = rig.settings.storage_folder / "imports" / "0000"
    torn.mkdir(parents=True)
    (torn / "job.json").write_text("")

    def look() -> str:
        for _ in range(10):
            rig.clock.now_s += 1.0
            shard.step()
        return shard.stats()["last_error"]

    assert "import: 0000" in look()
    shutil.rmtree(torn)
    assert look() == ""
