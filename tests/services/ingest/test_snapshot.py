"""A snapshot is there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from services.ingest.snapshots.snapshot import FencedError, SnapshotError, Snapshots


def test_arrays_and_values_come_back_as_they_were(tmp_path: Path) -> None:
    """Nested maps, bytes and arrays of any number type survive bit for bit, NaN too."""
    state = {"a": np.array([[1.5, np.nan]], np.float32), "b": {"c": [np.arange(3), b"x", "y", None]}, "n": np.int64(4)}
    Snapshots(tmp_path, 0).save(7, state)
    offset, found = Snapshots(tmp_path, 0).load() or (0, {})
    assert offset == 7
    assert found["a"].tobytes() == state["a"].tobytes()  # type: ignore[attr-defined]
    assert found["a"].shape == (1, 2)
    assert found["b"]["c"][0].tolist() == [0, 1, 2]
    assert found["b"]["c"][1:] == [b"x", "y", None]
    assert found["n"] == 4
    found["a"][0, 0] = 2  # writable


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "header", "format"])
def test_a_damaged_snapshot_falls_back_to_the_one_before(tmp_path: Path, damage: str) -> None:
    """Torn and corrupt files are told apart from good ones, whatever broke."""
    snapshots = Snapshots(tmp_path, 0)
    snapshots.save(1, {"v": 1})
    snapshots.save(2, {"v": 2})
    newest = max(tmp_path.glob("*.snapshot"))
    content = bytearray(newest.read_bytes())
    if damage == "flip":
        content[-1] ^= 1
    elif damage == "header":
        content[14] ^= 0xFF
    elif damage == "format":
        content[:8] = b"ELSE\r\n\x00\x00"
    newest.write_bytes({"cut": bytes(content[:-1]), "empty": b""}.get(damage, bytes(content)))
    assert Snapshots(tmp_path, 0).load() == (1, {"v": 1})


def test_nothing_readable_is_an_error_not_a_fresh_start(tmp_path: Path) -> None:
    """When every snapshot is corrupt the operator decides."""
    Snapshots(tmp_path, 0).save(1, {})
    next(tmp_path.glob("*.snapshot")).write_bytes(b"")
    with pytest.raises(SnapshotError, match="partition 0"):
        Snapshots(tmp_path, 0).load()


def test_two_are_kept_and_partitions_do_not_mix(tmp_path: Path) -> None:
    """Old snapshots go; partition 1 is not partition 10."""
    one, ten = Snapshots(tmp_path, 1), Snapshots(tmp_path, 10)
    ten.save(99, {})
    for offset in range(5):
        one.save(offset, {})
    assert sorted(p.name for p in tmp_path.glob("p1-*")) == [f"p1-{n:020d}.snapshot" for n in (3, 4)]
    assert ten.load() == (99, {})


def test_an_older_writer_is_fenced(tmp_path: Path) -> None:
    """Once a newer writer has claimed the partition, the older one cannot save."""
    older = Snapshots(tmp_path, 0)
    newer = Snapshots(tmp_path, 0)
    with pytest.raises(FencedError, match="partition 0"):
        older.save(1, {})
    newer.save(2, {})


def test_objects_are_refused(tmp_path: Path) -> None:
    """Nothing is pickled."""
    with pytest.raises(NotImplementedError, match="cannot hold"):
        Snapshots(tmp_path, 0).save(1, {"x": np.array([object()])})
