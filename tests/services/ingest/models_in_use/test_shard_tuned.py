"""A network that was fine-tuned, in a shard: followed where the pointer names it, and part of what a replay gives."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import models.online.first_days.first_days as first_days
from edge.log.memory import MemoryLog
from models.pretraining.shipped_arrays import pretrained
from services.config import LearnSettings
from services.ingest.models_in_use.models_in_use import TUNED_LOOKS
from services.ingest.shard import Shard
from services.messages import ONLINE_VERSION
from services.store.examples.shown_examples import FOLDER, ShownExamples
from tests.services.forests import save_trees
from tests.services.ingest.rig import MOMENTS, Clock, Crashed, Held, Rig, day, dying, filled, issued_by
from tests.services.ingest.samples import T0
from tests.services.tuned import point_at_tuned, save_tuned


@pytest.fixture(autouse=True)
def _old_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    """First days that are over within hours: in them nothing is added."""
    monkeypatch.setattr(first_days, "ALONE_DAYS", 0.05)
    monkeypatch.setattr(first_days, "OLD_DAYS", 0.2)


class Tuned:
    """A rig with a shard, rows to come, and two networks that say different things."""

    def __init__(self, folder: Path, **learn: float) -> None:
        self.records = list(day(110))
        self.rig = Rig(folder, MemoryLog(1), snapshot_s=3000)
        self.rig.settings = self.rig.settings.model_copy(update={"learn": LearnSettings(**learn)})
        self.rig.clock = Clock()
        self.shard = self.rig.shard()
        self.storage = self.rig.settings.storage_folder
        self.folders = [save_tuned(self.storage / "models" / f"t{n}", self.shard.spec, bias) for n, bias in
                        enumerate((0.4, -0.4))]  # fmt: skip

    def point(self, version: str) -> str:
        """Point at ``tuned-v1``, ``tuned-v2`` or ``online``; what the shard says it follows some seconds later."""
        point_at_tuned(self.storage, version, "" if version == ONLINE_VERSION else self.folders[int(version[-1]) - 1])
        for _ in range(2):
            self.rig.clock.now_s += TUNED_LOOKS
            self.shard.step()
        return str(self.shard.stats()["tuned"])

    def read(self, first: int, last: int) -> None:
        """Rows come, one after the other."""
        for record in self.records[first:last]:
            self.rig.log.append([record])
            for _ in range(3):
                self.shard.step()

    def issued(self) -> dict[int, Any]:
        """Origin -> the quantiles that were shown."""
        found = issued_by(self.rig.settings)
        return {one.origin_ms: one.quantiles for one in found}


def learned(shard: Shard) -> dict[str, bytes]:
    """All that was learned, byte for byte."""
    state = shard._partitions[0].state()
    parts = ("forecaster", "scores", "paths", "bases")
    return {part: msgspec.msgpack.encode(state[part], enc_hook=np.ndarray.tobytes) for part in parts}


@pytest.mark.thorough
def test_a_promoted_network_is_followed_and_taken_back(tmp_path: Path) -> None:
    """Within seconds, from the next example on; forecasts before it, and after it was taken back, are those without
    it, but for what it never was: a state below that knows of it.
    """
    tuned, plain = Tuned(tmp_path / "a"), Tuned(tmp_path / "b")
    assert tuned.point(ONLINE_VERSION) == ONLINE_VERSION
    for one in (tuned, plain):
        one.read(0, 80)
    assert (tuned.point("tuned-v1"), plain.point(ONLINE_VERSION)) == ("tuned-v1", ONLINE_VERSION)
    for one in (tuned, plain):
        one.read(80, 105)
    assert tuned.point(ONLINE_VERSION) == ONLINE_VERSION
    for one in (tuned, plain):
        one.read(105, len(one.records))
    with_it, without = tuned.issued(), plain.issued()
    assert with_it.keys() == without.keys()
    differs = [not np.array_equal(with_it[at], without[at], equal_nan=True) for at in sorted(with_it)]
    first, last = differs.index(True), len(differs) - differs[::-1].index(True)
    assert 60 < first < last < len(differs) - 3
    assert all(differs[first:last])


@pytest.mark.parametrize("version", [ONLINE_VERSION, "v3"])
@pytest.mark.thorough
def test_a_crash_leaves_the_learners_as_they_would_have_been(tmp_path: Path, version: str) -> None:
    """After another network was taken up, with forecasts that were issued late, and with a registered network in them:
    the state after a replay, and what is forecast from then on, are those of a shard that never stopped.
    """
    states, shown = [], []
    for name in ("steady", "killed"):
        tuned = Tuned(tmp_path / name)
        tuned.rig.forecaster.version, tuned.rig.forecaster.network = version, 1.5
        tuned.read(0, 70)
        assert tuned.point("tuned-v1") == "tuned-v1"
        tuned.read(70, 90)
        assert tuned.point("tuned-v2") == "tuned-v2"
        held = tuned.rig.executor = Held()
        tuned.shard._queue._executor = held
        for n, record in enumerate(tuned.records[90:115]):
            tuned.rig.log.append([record])
            tuned.shard.step()
            if n % 3 == 2:
                held.release()
                tuned.shard.step()
        tuned.rig.drain(tuned.shard)
        if name == "killed":  # all since the network was taken up is lost; what was issued meanwhile is there
            shutil.rmtree(tuned.storage / "models")
            tuned.rig.executor = held = Held()
            tuned.shard = tuned.rig.shard()
            tuned.rig.drain(tuned.shard)
        states.append(learned(tuned.shard))
        for record in tuned.records[115:]:
            tuned.rig.log.append([record])
            for _ in range(3):
                tuned.shard.step()
                held.release()
        tuned.rig.drain(tuned.shard)
        states.append(learned(tuned.shard))
        shown.append(tuned.issued())
        added = tuned.shard._partitions[0].learner.forecaster.corrections.tuned
        assert added is not None
        assert np.abs(added.state_dict()["zones"]["added"]).max() > 0
    for part in states[0]:
        assert states[0][part] == states[2][part], part
        assert states[1][part] == states[3][part], f"{part}, later"
    assert shown[0].keys() == shown[1].keys()
    for at, quantiles in shown[0].items():
        np.testing.assert_array_equal(quantiles, shown[1][at])


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.thorough
def test_examples_are_kept_once_wherever_it_crashes(tmp_path: Path, moment: str) -> None:
    """Those on the storage are the same, byte for byte, whatever was written twice."""
    found = []
    for name in ("steady", "killed"):
        rig = Rig(tmp_path / name, filled(list(day(60))), snapshot_s=1.0)
        rig.clock = Clock(tick_s=0.3)
        shard = rig.shard(dying(moment, 2) if name == "killed" else lambda name: None)
        try:
            rig.drain(shard)
        except Crashed:
            assert name == "killed"
            shard = rig.shard()
            rig.drain(shard)
        shard.close()
        found.append(ShownExamples(rig.settings.storage_folder, shard.spec).read(0, 2**47, 12))
    one, other = found
    assert one.zones == other.zones == ("demo/z1", "demo/z2")
    np.testing.assert_array_equal(one.end_ms, other.end_ms)
    for name in ("origin", "ahead", "baseline"):
        assert getattr(one.inputs, name).tobytes() == getattr(other.inputs, name).tobytes()
    assert sorted(set(one.end_ms.tolist())) == [T0 + n * 1_800_000 for n in range(10)]


@pytest.mark.parametrize("damage", ["torn", "gone", "trees"])
def test_one_that_cannot_be_used_is_told_and_the_one_before_stays(tmp_path: Path, damage: str) -> None:
    """The shard's figures name the reason."""
    tuned = Tuned(tmp_path)
    tuned.read(0, 5)
    tuned.point("tuned-v1")
    if damage == "torn":
        weights = tuned.folders[1] / "weights.safetensors"
        weights.write_bytes(weights.read_bytes()[:99])
    else:
        shutil.rmtree(tuned.folders[1])
    if damage == "trees":
        save_trees(tuned.folders[1], tuned.shard.spec, tuned.shard._partitions[0].learner.forecaster.regressors)
    assert tuned.point("tuned-v2") == "tuned-v1"
    assert "tuned-v2" in tuned.shard.stats()["last_error"]
    assert tuned.shard.stats()["failing"]["tuned"]


def test_switched_off_nothing_is_kept_or_followed(tmp_path: Path) -> None:
    """And a state of when it was on still loads, without it; switched on again it begins anew."""
    tuned = Tuned(tmp_path)
    tuned.read(0, 12)
    assert tuned.point("tuned-v1") == "tuned-v1"
    tuned.shard.close()
    before = ShownExamples(tuned.storage, tuned.shard.spec).extent()
    for days, version in ((0.0, ONLINE_VERSION), (3.0, "tuned-v1")):
        tuned.rig.settings = tuned.rig.settings.model_copy(update={"learn": LearnSettings(tuned_every_days=days)})
        tuned.shard = tuned.rig.shard()
        assert (tuned.shard._partitions[0].learner.forecaster.corrections.tuned is not None) == (days > 0)
        tuned.read(12, 30) if not days else None
        assert tuned.point("tuned-v1") == version
        assert tuned.shard.stats()["last_error"] == ""
        tuned.shard.close()
        assert ShownExamples(tuned.storage, tuned.shard.spec).extent() == before
    assert before[0] > 0


def test_without_its_files_a_restarted_shard_follows_the_network_of_its_snapshot(tmp_path: Path) -> None:
    """Before it has looked; where pointer and files are lost for good, it says so."""
    tuned = Tuned(tmp_path)
    tuned.read(0, 5)
    tuned.point("tuned-v1")
    shutil.rmtree(tuned.storage / "models")
    (tuned.storage / "slot-tuned.json").unlink()
    tuned.shard = tuned.rig.shard()
    followed = tuned.shard._partitions[0].learner.forecaster.corrections.tuned
    assert followed is not None
    assert not np.array_equal(followed.arrays["head.bias"], pretrained().arrays["head.bias"])
    tuned.rig.clock.now_s += 1.0
    tuned.shard.step()
    assert tuned.shard.stats()["tuned"] == "unregistered"


def test_examples_lie_in_files_of_days(tmp_path: Path) -> None:
    """One a partition and day."""
    tuned = Tuned(tmp_path)
    tuned.read(0, 30)
    tuned.shard.close()
    (file,) = (tuned.storage / FOLDER).iterdir()
    assert file.name == f"2022-03-01-p0-{tuned.shard.spec.hash}.parquet"
