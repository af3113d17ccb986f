"""A data folder of a version before goes on where it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edge.log.sqlite import SqliteLog
from models.evaluation.scoring import LiveScore
from models.online.earlier_state import state_of_now
from models.online.first_days import days_before
from services.errors import HistoryError, StartError
from services.forecast_spec import forecast_spec
from services.ingest.learned import learned_parts
from services.ingest.snapshots.later_release import refuse_state_of_a_later_release
from services.ingest.snapshots.parts import ESSENTIAL, LEARNED, PARTS, Form
from services.ingest.snapshots.regrow import READ_TRIES
from services.ingest.snapshots.snapshot import Snapshots
from services.store.storage import FolderStorage
from tests.services.ingest.data_folder import END, POWER_CUT, SNAPSHOT, Kept, after, open_shard, settings_of
from tests.services.ingest.first_release import DATA, later, said_after, unpacked
from tests.tables import leave_out


@pytest.fixture(scope="module", autouse=True)
def _as_the_first_release_forecast() -> Iterator[None]:
    """The folder is of before there was a pre-trained network: zones of an upgraded snapshot begin to learn then how
    far it is right, those of one that is grown again at their first row. Its young zones had other constants (ADR 66).
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learned_parts, "pretrained", lambda: None)
        patch.setattr(days_before, "BEFORE", 0.3)
        yield


@pytest.mark.thorough
def test_a_folder_of_the_first_release_goes_on_as_if_it_had_always_been_of_this_one(tmp_path: Path) -> None:
    """Forecasts come for the same zones and origins, and say about what those of a system say that read the log from
    its beginning. The release before issued forecasts of before the power cut a second time; now the newest alone is
    shown again.
    """
    medians, repaired = said_after(unpacked(tmp_path), range(POWER_CUT, END))
    names = json.loads((DATA / "forecasts.json").read_text())
    again = sorted(set(names) - medians.keys(), key=lambda name: name.split()[1])
    assert medians.keys() == set(names) - set(again)
    assert (len(again), again[-1].split()[1]) == (3 * 11, "2022-03-01T23:45:00Z")
    assert repaired == ""
    (tmp_path / "new").mkdir()
    always = said_after(tmp_path / "new", range(END))[0]
    off = np.array([medians[name] - always[name] for name in medians])
    assert np.abs(off).mean() < 0.02
    assert np.abs(off).max() < 0.1
    assert not list((tmp_path / "storage" / "snapshots").glob("*.tmp"))


def test_what_the_first_release_had_learned_lies_where_this_one_looks_for_it(tmp_path: Path) -> None:
    """Knots, examples and what waits for its truth are those that this release has from the same log."""
    found = Snapshots(unpacked(tmp_path) / "storage" / "snapshots", 0).load()
    assert found is not None
    spec = forecast_spec(settings_of(tmp_path))
    before = state_of_now(found.parts["forecaster"], spec)
    scores = LiveScore(spec)
    scores.load_state_dict(found.parts["scores"])
    (tmp_path / "new").mkdir()
    shard, _, log = after(tmp_path / "new", range(SNAPSHOT))
    learned = shard._partitions[0].learner.parts
    now, scored = learned.forecaster.state_dict(), learned.scores.state_dict()
    shard.close()
    log.close()

    def same(part: str, name: str, atol: float) -> None:
        mine, theirs = before[part][name].astype(np.float64), now[part][name].astype(np.float64)
        if name == "issued":  # what has matured is not brought over
            theirs[np.isnan(mine)] = np.nan
        assert np.isfinite(theirs).sum() >= 3
        np.testing.assert_allclose(mine, theirs, atol=atol, err_msg=f"{part} {name}")

    for name in ("rows", "count", "past"):
        same("climatology", name, 0)
    for name in ("profile", "issued"):
        same("climatology", name, 0.02)
    for name in ("past", "past_step", "row", "row_step", "row_known"):
        same("features", name, 0)
    same("features", "profile", 4.0)  # instants then, means around them now
    for name, atol in (("stamp", 0), ("base", 0.02)):
        same("zones", name, atol)
    theirs = scores.state_dict()
    assert np.array_equal(theirs["origin"], scored["origin"])
    waits = np.isfinite(scored["waiting"][..., 3])  # the climatology's
    assert np.array_equal(np.isfinite(theirs["waiting"][..., 3]), waits)
    np.testing.assert_allclose(theirs["waiting"][..., 3][waits], scored["waiting"][..., 3][waits], atol=0.02)


def damage(folder: Path, *parts: str) -> None:
    """Change a byte of parts of the one snapshot that stays."""
    *old, path = sorted((folder / "storage" / "snapshots").glob("*.snapshot"))
    for other in old:
        other.unlink()
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[8:12], "little")
    header = msgspec.msgpack.decode(content[16 : 16 + size])
    at = 16 + size
    for one in header["parts"]:
        if one["name"] in parts:
            content[at + one["length"] // 2] ^= 0xFF
        at += one["length"]
    path.write_bytes(content)


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, closed by this version."""
    folder = unpacked(tmp_path_factory.mktemp("folder"))
    shard, _, log = after(folder, range(POWER_CUT, END))
    shard.close()
    log.close()
    return folder


@pytest.fixture(scope="module")
def expected(upgraded: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """What comes next if nothing is damaged."""
    return later(shutil.copytree(upgraded, tmp_path_factory.mktemp("whole") / "x"))[0]


def test_a_restart_alone_repairs_nothing(upgraded: Path, tmp_path: Path) -> None:
    """A whole snapshot of this version is read as it is."""
    assert later(shutil.copytree(upgraded, tmp_path / "x"))[1] == ""


@pytest.mark.parametrize("parts", [("rings",), ("past", "watch"), ("forecaster",), ("bases", "scores")])
@pytest.mark.thorough
def test_a_damaged_part_is_grown_again_and_named(
    parts: tuple[str, ...], upgraded: Path, expected: dict[str, float], tmp_path: Path
) -> None:  # fmt: skip
    """The shard starts, grows the part from the history, says so, and forecasts about as it would have: errors that the
    release of before had summed for a zone's first days fade in hours, those that are grown do from the beginning.
    """
    folder = shutil.copytree(upgraded, tmp_path / "x")
    damage(folder, *parts)
    said, repaired = later(folder)
    assert set(parts) <= LEARNED
    assert all(f"{part}: " in repaired for part in parts), repaired
    assert "is grown again from the history, done" in repaired
    assert said.keys() == expected.keys()
    assert max(abs(said[key] - expected[key]) for key in said) < 0.1
    assert later(folder)[1] == ""  # a snapshot of what was grown is whole


@pytest.mark.thorough
def test_without_an_essential_part_the_log_is_read_again(
    upgraded: Path, expected: dict[str, float], tmp_path: Path
) -> None:  # fmt: skip
    """Where the log holds all, that gives about the same again; forecasts of before are not issued once more."""
    folder = shutil.copytree(upgraded, tmp_path / "x")
    damage(folder, *ESSENTIAL)
    said, repaired = later(folder)
    assert "the log is read again" in repaired
    assert said.keys() >= expected.keys()
    assert max(abs(said[key] - expected[key]) for key in expected) < 0.1


def test_a_day_that_cannot_be_read_is_left_out_and_named(
    upgraded: Path, expected: dict[str, float], tmp_path: Path
) -> None:  # fmt: skip
    """Growing tries a damaged file again, then goes on without it, says so, and forecasts come."""
    folder = shutil.copytree(upgraded, tmp_path / "x")
    damage(folder, "forecaster", "watch")
    for path in (folder / "storage" / "history" / "zone_rows").rglob("*.parquet"):
        path.write_bytes(b"no Parquet")
    settings, log = settings_of(folder), SqliteLog(folder / "log.sqlite", 1)
    shard = open_shard(settings, log, Kept())
    failures = 0
    while shard.is_behind:
        try:
            shard.step()
        except HistoryError:
            failures += 1
    repaired = shard.stats()["repaired"]
    assert failures >= READ_TRIES - 1
    assert "without rows of 2022-03-0" in repaired
    assert "done" in repaired
    shard.close()
    log.close()


@pytest.mark.thorough
def test_a_site_without_rows_to_grow_from_stops_nothing(upgraded: Path, tmp_path: Path) -> None:
    """A house that stood empty for longer than the history is read gets its forecast with its next row."""
    folder = shutil.copytree(upgraded, tmp_path / "x")
    damage(folder, "forecaster")
    leave_out(folder / "storage", "zones", "south")
    said, repaired = later(folder)
    assert "done" in repaired
    assert any(key.startswith("north/z1") for key in said)
    assert later(folder)[1] == ""


def test_parts_of_the_first_release_are_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are of version 1: where a part has another form now, its upgrade is called, and without one it is named."""
    folder = unpacked(tmp_path) / "storage" / "snapshots"
    monkeypatch.setitem(PARTS, "figures", Form(2, {1: lambda state: {**state, "new": 1}}))
    monkeypatch.setitem(PARTS, "watch", Form(2))
    found = Snapshots(folder, 0).load()
    assert found is not None
    assert found.parts["figures"]["new"] == 1
    assert "version 1" in found.unreadable["watch"]


def test_state_of_a_later_release_is_left_alone(
    upgraded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused in one sentence before anything is changed; the later release goes on with it."""
    folder = shutil.copytree(upgraded, tmp_path / "x")
    storage = FolderStorage(folder / "storage")
    refuse_state_of_a_later_release(storage)
    scores = Form(PARTS["scores"].version + 1, {PARTS["scores"].version: lambda state: state})
    with monkeypatch.context() as patch:
        patch.setitem(PARTS, "scores", scores)
        later(folder)
    there = contents(folder)
    with pytest.raises(StartError, match="was written by a later release: its part 'scores' has version 3") as caught:
        refuse_state_of_a_later_release(storage)
    assert "restore the backup" in caught.value.hint
    assert contents(folder) == there
    monkeypatch.setitem(PARTS, "scores", scores)
    assert later(folder)[1] == ""


def contents(folder: Path) -> dict[str, bytes]:
    """The snapshots in a folder."""
    return {path.name: path.read_bytes() for path in sorted((folder / "storage" / "snapshots").iterdir())}
