"""The task that a retraining is: what it does to trainings beside it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from services.learn.training import placement_groups, task
from services.learn.training.kept_runs import TRAININGS
from services.store.storage import FolderStorage

GROUP = "ab" * 18


@pytest.mark.parametrize(("kind", "released"), [("network", True), ("trees", False)])
def test_trees_leave_the_workers_of_a_network_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, released: bool
) -> None:
    """A network is trained at a time, so what is reserved before it is a lost one's; trees are trained beside it."""
    removed: list[object] = []
    monkeypatch.setattr(task.os, "nice", lambda _: 0)
    monkeypatch.setattr("services.learn.training.challenger.learn", lambda _: "learned")
    monkeypatch.setattr(placement_groups, "_cluster", lambda: "here")
    monkeypatch.setattr(placement_groups, "remove_placement_group", removed.append)
    monkeypatch.setattr(placement_groups.ray.util, "placement_group_table", lambda: {GROUP: {"state": "CREATED"}})
    FolderStorage(tmp_path / TRAININGS).put(
        "a/reservation.json", json.dumps({"cluster": "here", "group": GROUP}).encode()
    )
    job = SimpleNamespace(kind=kind, storage=str(tmp_path), where=None)
    assert task.run_job._function(job) == "learned"
    assert bool(removed) == released
