"""Trees in a shard: taken up where the pointer names them, rolled back, refused, and part of what a replay gives."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from models.families import FAMILIES
from models.online.basis import EXPERTS
from services.errors import HistoryError
from services.ingest.models_in_use.trees_in_use import TreesInUse
from services.ingest.shard import Shard
from services.ingest.snapshots.snapshot import Snapshots
from services.messages import ONLINE_VERSION
from tests.services.forests import keep_as_before, point_at, save_trees
from tests.services.ingest.rig import Clock, Rig, day, filled
from tests.services.ingest.samples import STEP, T0, new_records, sample


class Trees:
    """A rig with a shard that has read ten rows, and two artefacts of trees that differ."""

    def __init__(self, folder: Path) -> None:
        self.records = list(day(60))
        self.rig = Rig(folder, filled(self.records[:10]))
        self.rig.clock = Clock()
        self.shard = self.rig.shard()
        self.rig.drain(self.shard)
        self.storage, spec, takes = self.rig.settings.storage_folder, self.shard.spec, self.forecaster.regressors
        self.folders = [save_trees(self.storage / "models" / f"t{n}", spec, takes, n) for n in range(2)]

    @property
    def forecaster(self) -> Any:
        return self.shard._partitions[0].learner.forecaster

    def point(self, version: str) -> None:
        """Point at ``trees-v1``, ``trees-v2`` or ``online``."""
        point_at(self.storage, version, "" if version == ONLINE_VERSION else self.folders[int(version[-1]) - 1])

    def look(self, seconds: int = 2) -> str:
        """A second or more passes, and the shard looks; what it says it uses."""
        for _ in range(seconds):
            self.rig.clock.now_s += 1.0
            self.shard.step()
        return str(self.shard.stats()["trees"])

    def read(self, first: int, last: int) -> None:
        """Rows come."""
        self.rig.log.append(self.records[first:last])
        self.rig.drain(self.shard)

    def restart(self) -> None:
        """The shard is gone without a word, as after kill -9."""
        self.shard = self.rig.shard()


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    """One."""
    return Trees(tmp_path)


def learned(shard: Shard) -> dict[str, bytes]:
    """Learners and live scores, byte for byte."""
    state = shard._partitions[0].state()
    return {part: msgspec.msgpack.encode(state[part], enc_hook=np.ndarray.tobytes) for part in ("forecaster", "scores")}


def same_forest(shard: Shard, folder: Path) -> bool:
    """Whether a shard's trees are those of an artefact."""
    from models import artefact

    arrays, kept = shard._partitions[0].learner.forecaster.forest.state_dict(), artefact.load(folder).model.arrays()
    return set(arrays) == set(kept) and all(arrays[name].tobytes() == kept[name].tobytes() for name in kept)


def test_promoted_trees_are_used_within_a_second_and_rolled_back(trees: Trees) -> None:
    """A shard follows the pointer, forwards and backwards, and to no trees at all."""
    assert trees.look() == ONLINE_VERSION
    for version, at in (("trees-v1", 0), ("trees-v2", 1), ("trees-v1", 0)):
        trees.point(version)
        assert trees.look() == version
        assert same_forest(trees.shard, trees.folders[at])
    trees.point(ONLINE_VERSION)
    assert trees.look() == ONLINE_VERSION
    assert len(trees.forecaster.forest) == 0


def test_trees_are_in_the_snapshot(trees: Trees) -> None:
    """A restarted shard goes on with its trees before it has looked, and without their files."""
    trees.point("trees-v1")
    trees.look()
    shutil.rmtree(trees.storage / "models")
    trees.restart()
    assert len(trees.forecaster.forest) > 0


def test_a_crash_after_new_trees_leaves_the_learners_as_they_would_have_been(tmp_path: Path) -> None:
    """What was learned with the trees before is learned with them again, and what came after with the new ones: the
    state after a replay is the same, byte for byte, as that of a shard that never stopped.
    """
    states = []
    for name in ("steady", "killed"):
        trees = Trees(tmp_path / name)
        trees.point("trees-v1")
        trees.look()
        trees.read(10, 25)
        trees.point("trees-v2")
        trees.look()
        trees.read(25, 40)
        if name == "killed":
            trees.restart()
            assert same_forest(trees.shard, trees.folders[1]), "before it has looked"
            while trees.shard.step():
                pass
        trees.read(40, len(trees.records))
        trees.look()
        states.append(learned(trees.shard))
    assert states[0] == states[1]


def test_trees_that_cannot_be_saved_are_not_used(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is learned with trees that no snapshot has: the ones before stay until the storage works."""
    trees.point("trees-v1")
    trees.look()
    finish = Snapshots._write

    def full(*_: Any) -> int:
        raise HistoryError("no space left on device")

    monkeypatch.setattr(Snapshots, "_write", full)
    trees.point("trees-v2")
    with pytest.raises(HistoryError, match="no space"):
        trees.look()
    assert same_forest(trees.shard, trees.folders[0])
    monkeypatch.setattr(Snapshots, "_write", finish)
    assert trees.look() == "trees-v2"


def test_a_restart_with_the_same_trees_saves_nothing(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trees of the snapshot are those that the pointer names: there is nothing new to keep."""
    trees.point("trees-v1")
    trees.look()
    trees.restart()
    monkeypatch.setattr(Snapshots, "_write", lambda *_: pytest.fail("saved again"))
    assert trees.look() == "trees-v1"


@pytest.mark.parametrize("damage", ["torn", "gone", "another kind", "regressors", "pointer"])
def test_trees_that_cannot_be_used_are_told_and_the_ones_before_stay(
    trees: Trees, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shard's figures name the reason; forecasts go on with the trees before."""
    trees.point("trees-v1")
    trees.look()
    weights = trees.folders[1] / "weights.safetensors"
    if damage == "torn":
        weights.write_bytes(weights.read_bytes()[:99])
    elif damage == "gone":
        shutil.rmtree(trees.folders[1])
    elif damage == "another kind":
        manifest = trees.folders[1] / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"kind": "trees"', '"kind": "oracle"'))
    elif damage == "regressors":
        shutil.rmtree(trees.folders[1])
        save_trees(trees.folders[1], trees.shard.spec, trees.forecaster.regressors + 1, 1)
    trees.point("trees-v2")
    if damage == "pointer":
        (trees.storage / "slot-trees.json").write_text("{")
    assert trees.look() == "trees-v1"
    said = trees.shard.stats()["last_error"]
    assert {
        "torn": "trees-v2 cannot be used", "gone": "trees-v2 cannot be used", "another kind": "'oracle'",
        "regressors": "regressors, rows now give", "pointer": "slot-trees.json cannot be read",
    }[damage] in said  # fmt: skip
    assert same_forest(trees.shard, trees.folders[0])
    assert "oracle" not in FAMILIES


def test_trees_that_could_not_be_loaded_are_tried_again(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage that failed for a moment costs seconds, not days; tries are further and further apart."""
    load, tries = TreesInUse._load, list[float]()

    def away(*_: Any) -> Any:
        from services.errors import ModelFilesError

        tries.append(trees.rig.clock.now_s)
        raise ModelFilesError("the storage is away")

    monkeypatch.setattr(TreesInUse, "_load", away)
    trees.point("trees-v1")
    trees.look(3600)
    pauses = np.diff(tries)
    assert pauses[0] <= 10
    assert (np.diff(pauses) >= 0).all()
    assert 60 <= pauses[-1] <= 600
    assert "the storage is away" in trees.shard.stats()["last_error"]
    trees.point("trees-v2")
    monkeypatch.setattr(TreesInUse, "_load", load)
    assert trees.look() == "trees-v2", "other trees are tried at once"
    assert trees.shard.stats()["last_error"] == ""


@pytest.mark.parametrize("in_use", ["nothing", "trees-v1"])
def test_a_pointer_that_can_be_read_again_is_no_failure_any_more(trees: Trees, in_use: str) -> None:
    """Also where it says what it said before, and where there is none."""
    pointer = trees.storage / "slot-trees.json"
    if in_use != "nothing":
        trees.point(in_use)
        trees.look()
    before = pointer.read_text() if pointer.exists() else None
    pointer.write_text("{")
    trees.look()
    assert "slot-trees.json cannot be read" in trees.shard.stats()["last_error"]
    pointer.unlink() if before is None else pointer.write_text(before)
    trees.look(600)
    assert trees.shard.stats()["last_error"] == ""


def test_trees_of_before_there_was_a_registry_are_still_used(trees: Trees) -> None:
    """A data folder of an earlier release goes on with the newest of its trees, until others are promoted."""
    spec, takes = trees.shard.spec, trees.forecaster.regressors
    keep_as_before(trees.storage, spec, takes, T0)
    name = keep_as_before(trees.storage, spec, takes, T0 + STEP)
    assert trees.look() == name
    assert same_forest(trees.shard, trees.folders[0])
    trees.point("trees-v2")
    assert trees.look() == "trees-v2"
    assert same_forest(trees.shard, trees.folders[1])


def test_trees_of_a_snapshot_that_nothing_names_go_on(trees: Trees) -> None:
    """Where pointer and files are lost, forecasts go on with the trees of the snapshot, and the shard says so."""
    keep_as_before(trees.storage, trees.shard.spec, trees.forecaster.regressors, T0)
    trees.look()
    shutil.rmtree(trees.storage / "models")
    trees.restart()
    assert trees.look() == "unregistered"
    assert len(trees.forecaster.forest) > 0


def test_what_each_zone_is_served_by_and_what_weighs_in_it(trees: Trees) -> None:
    """Each zone that is there names the version of each that has models, and shares of its mixture that sum to one."""
    trees.rig.forecaster.version, trees.rig.forecaster.network = "v3", 1.5
    trees.point("trees-v2")
    trees.look()
    trees.read(10, 30)
    found = trees.shard.questions.mixtures()
    assert [(one["site"], one["zone"]) for one in found] == [("demo", "z1"), ("demo", "z2")]
    for one in found:
        assert one["serving"] == {"network": "v3", "trees": "trees-v2", "tuned": ONLINE_VERSION}
        assert sum(shares["30"] for shares in one["weights"].values()) == pytest.approx(1, abs=1e-3)
        assert set(one["weights"]) <= set(EXPERTS)


def test_shares_of_a_zone_with_one_sensor_sum_to_one(tmp_path: Path) -> None:
    """Targets that the zone does not measure have no mixture, and take no share from the others."""
    batches = [[sample(T0 + n * STEP, n, air_temp_c=20 + n % 7 / 3)] for n in range(30)]
    rig = Rig(tmp_path, filled(new_records(batches)))
    shard = rig.shard()
    rig.drain(shard)
    (found,) = shard.questions.mixtures()
    for minutes in ("5", "30", "1440"):
        assert sum(shares[minutes] for shares in found["weights"].values()) == pytest.approx(1, abs=1e-3)
