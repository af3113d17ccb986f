"""A snapshot is there whole or not at all, part by part, and writes only what changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.errors import SnapshotError
from services.ingest.snapshots import pieces
from services.ingest.snapshots.parts import PARTS
from services.ingest.snapshots.snapshot import FencedError, Snapshots
from services.store.files import write_atomically
from services.store.storage import folder_storage


def parts(**given: Any) -> dict[str, Any]:
    """All parts, of which only those given hold anything."""
    return {name: given.get(name, {}) for name in PARTS}


def newest(folder: Path) -> Path:
    return max(folder.glob("*.snapshot"))


def test_arrays_and_values_come_back_as_they_were(tmp_path: Path) -> None:
    """Nested maps, bytes and arrays of any number type, small and large, survive bit for bit, NaN too."""
    large = np.linspace(0, 1, 5_000).reshape(50, 100).astype(np.float32)
    state = {"a": np.array([[1.5, np.nan]], np.float32), "b": {"c": [np.arange(3), b"x", "y", None]}, "n": np.int64(4)}
    Snapshots(tmp_path, 0).save(7, parts(watch={**state, "large": large, "none": np.empty((0, 3))}))
    found = Snapshots(tmp_path, 0).load()
    assert found is not None
    assert (found.offset, found.unreadable) == (7, {})
    watch = found.parts["watch"]
    assert watch["a"].tobytes() == state["a"].tobytes()  # type: ignore[attr-defined]
    assert watch["a"].shape == (1, 2)
    assert watch["b"]["c"][0].tolist() == [0, 1, 2]
    assert watch["b"]["c"][1:] == [b"x", "y", None]
    assert watch["n"] == 4
    assert watch["large"].tobytes() == large.tobytes()
    assert watch["large"].shape == (50, 100)
    assert watch["none"].shape == (0, 3)
    watch["a"][0, 0] = watch["large"][0, 0] = 2  # writable


def test_only_pieces_that_changed_are_written(tmp_path: Path) -> None:
    """One number of a large array costs a piece, a new end what is new; what comes back is the newest."""
    snapshots, large = Snapshots(tmp_path, 0), np.random.default_rng(1).random(200_000)
    first = snapshots.save(1, parts(scores={"x": large}))
    large[70_000] = -1
    one = snapshots.save(2, parts(scores={"x": large}))
    longer = np.append(large, np.ones(10_000))
    grown = Snapshots(tmp_path, 0)
    assert grown.load() is not None
    more = grown.save(3, parts(scores={"x": longer}))
    same = grown.save(4, parts(scores={"x": longer}))
    assert first.written_bytes > 1_600_000
    assert 0 < one.written_bytes - same.written_bytes <= pieces.PIECE
    assert 80_000 < more.written_bytes - same.written_bytes < 80_000 + 2 * pieces.PIECE
    found = Snapshots(tmp_path, 0).load()
    assert found is not None
    assert found.parts["scores"]["x"].tobytes() == longer.tobytes()


def test_saving_lists_the_folder_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket is paid by the list, and a shard saves every few seconds."""
    listed: list[str] = []
    list_folder = folder_storage.FolderStorage.list_folder

    def counted(storage: folder_storage.FolderStorage, folder: str) -> Any:
        listed.append(folder)
        return list_folder(storage, folder)

    snapshots = Snapshots(tmp_path, 0, "snapshots")
    monkeypatch.setattr(folder_storage.FolderStorage, "list_folder", counted)
    for offset in range(1, 5):
        snapshots.save(offset, parts(watch={"v": np.full(9_999, offset)}))
    assert listed == 4 * ["snapshots"]
    assert len(list(tmp_path.glob("snapshots/*.snapshot"))) == 2


def test_files_take_at_most_about_twice_what_is_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of which little is alive are let go, however long a shard runs, and every snapshot comes back."""
    monkeypatch.setattr(pieces, "SLACK", 8)
    snapshots, rng = Snapshots(tmp_path, 0), np.random.default_rng(2)
    large = rng.random(100 * pieces.PIECE // 8)
    for offset in range(200):
        large[rng.integers(0, len(large), 5)] = offset
        snapshots.save(offset, parts(scores={"x": large}))
        segments = list(tmp_path.glob("*.pieces"))
        assert sum(path.stat().st_size for path in segments) <= (2 * 100 + 8 + 2 * 100) * pieces.PIECE
        assert len(segments) <= 2 * pieces.MOST_SEGMENTS
    found = Snapshots(tmp_path, 0).load()
    assert found is not None
    assert found.parts["scores"]["x"].tobytes() == large.tobytes()


def test_what_has_not_changed_is_not_even_looked_at(tmp_path: Path) -> None:
    """A part that is named as the same is taken from the last snapshot."""
    snapshots, large = Snapshots(tmp_path, 0), np.arange(5_000)
    snapshots.save(1, parts(scores={"x": large}))
    saved = snapshots.begin(2, parts(scores={"x": large}), not_copied={"scores"}, unchanged={"scores"})()
    assert saved.looked_at_bytes == 0
    found = Snapshots(tmp_path, 0).load()
    assert found is not None
    assert found.parts["scores"]["x"].tolist() == large.tolist()


def test_what_may_change_is_copied_at_once(tmp_path: Path) -> None:
    """Of parts that do not stand still the snapshot has what they were when it began."""
    snapshots, counts, small = Snapshots(tmp_path, 0), {"rows": 1}, np.zeros(3)
    finish = snapshots.begin(1, parts(figures=counts, windows={"x": small}), not_copied={"scores"})
    counts["rows"], small[0] = 2, 2
    finish()
    found = Snapshots(tmp_path, 0).load()
    assert found is not None
    assert found.parts["figures"] == {"rows": 1}
    assert found.parts["windows"]["x"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "header", "format", "pieces", "no pieces"])
def test_a_damaged_snapshot_falls_back_to_the_one_before(tmp_path: Path, damage: str) -> None:
    """Torn and corrupt files are told apart from good ones, whatever broke, and what was wrong is said."""
    snapshots = Snapshots(tmp_path, 0)
    snapshots.save(1, parts(watch={"v": np.full(9_999, 1)}))
    snapshots.save(2, parts(watch={"v": np.full(9_999, 2)}))
    path = newest(tmp_path)
    segment = max(tmp_path.glob("*.pieces"))
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-1] ^= 1
    elif damage == "header":
        content[20] ^= 0xFF
    elif damage == "format":
        content[:8] = b"ELSE\r\n\x00\x00"
    path.write_bytes({"cut": bytes(content[:-1]), "empty": b""}.get(damage, bytes(content)))
    if damage == "pieces":
        segment.write_bytes(segment.read_bytes()[:-1] + b"\x01")
        inside = bytearray(segment.read_bytes())
        inside[5_000] ^= 1
        segment.write_bytes(inside)
    elif damage == "no pieces":
        segment.unlink()
    found = Snapshots(tmp_path, 0).load()
    assert found is not None
    assert (found.offset, found.parts["watch"]["v"][0]) == (1, 1)
    assert str(path) in " ".join(found.damage)


def test_the_rest_of_a_damaged_snapshot_is_of_use(tmp_path: Path) -> None:
    """Where no snapshot is whole, the newest gives all parts but those that cannot be read, and says why."""
    snapshots = Snapshots(tmp_path, 0)
    snapshots.save(1, parts(watch={"v": np.full(9_999, 1)}, windows={"w": 1}))
    next(tmp_path.glob("*.pieces")).unlink()
    found = Snapshots(tmp_path, 0).load()
    assert found is not None
    assert list(found.unreadable) == ["watch"]
    assert found.parts["windows"] == {"w": 1}
    assert "watch" in found.damage[0]


def test_a_whole_snapshot_from_before_the_log_begins_is_worth_less_than_a_damaged_one(tmp_path: Path) -> None:
    """What the log has let go of cannot be read again."""
    snapshots = Snapshots(tmp_path, 0)
    snapshots.save(1, parts(watch={"v": np.full(9_999, 1)}))
    snapshots.save(5, parts(watch={"v": np.full(9_999, 2)}))
    max(tmp_path.glob("*.pieces")).unlink()
    found = Snapshots(tmp_path, 0).load(begin=3)
    assert found is not None
    assert (found.offset, list(found.unreadable)) == (5, ["watch"])


def test_nothing_readable_is_an_error_not_a_fresh_start(tmp_path: Path) -> None:
    """When every snapshot is corrupt whoever asked decides."""
    Snapshots(tmp_path, 0).save(1, parts())
    newest(tmp_path).write_bytes(b"")
    with pytest.raises(SnapshotError, match="partition 0"):
        Snapshots(tmp_path, 0).load()


def test_two_are_kept_and_partitions_do_not_mix(tmp_path: Path) -> None:
    """Old snapshots go with what only they need; partition 1 is not partition 10."""
    one, ten = Snapshots(tmp_path, 1), Snapshots(tmp_path, 10)
    ten.save(99, parts(watch={"v": np.ones(9_999)}))
    for offset in range(5):
        one.save(offset, parts(watch={"v": np.full(9_999, offset)}))
    assert sorted(p.name for p in tmp_path.glob("p1-*.snapshot")) == [f"p1-{n:020d}.snapshot" for n in (3, 4)]
    assert len(list(tmp_path.glob("p1-*.pieces"))) == 2
    found = ten.load()
    assert found is not None
    assert found.offset == 99


def test_an_older_writer_is_fenced(tmp_path: Path) -> None:
    """Once a newer writer has claimed the partition, the older one cannot save, whenever it began to."""
    older = Snapshots(tmp_path, 0)
    finish = older.begin(1, parts(), not_copied=())
    later = Snapshots(tmp_path, 0)
    with pytest.raises(FencedError, match="partition 0"):
        finish()
    with pytest.raises(FencedError, match="partition 0"):
        older.save(1, parts())
    later.save(2, parts())


def test_objects_are_refused(tmp_path: Path) -> None:
    """Nothing is pickled."""
    with pytest.raises(NotImplementedError, match="cannot hold"):
        Snapshots(tmp_path, 0).save(1, parts(watch={"x": np.array([object()])}))


def test_a_replay_from_the_beginning_takes_the_place_of_later_snapshots(tmp_path: Path) -> None:
    """What is saved last is where the partition stands, however far others were; the log may be let go of up to it."""
    first = Snapshots(tmp_path, 0)
    for offset in (40, 60):
        first.save(offset, parts(watch={"v": np.full(9_999, offset)}))
    for path in tmp_path.glob("*.snapshot"):
        path.write_bytes(b"")
    again = Snapshots(tmp_path, 0)
    with pytest.raises(SnapshotError):
        again.load()
    again.save(1, parts(watch={"v": np.ones(9_999)}))
    assert again.oldest_offset == 1
    found = Snapshots(tmp_path, 0).load()
    assert found is not None
    assert (found.offset, len(list(tmp_path.glob("*.pieces")))) == (1, 1)


def test_a_damaged_snapshot_goes_before_a_good_one(tmp_path: Path) -> None:
    """After going on from the one before, that one and the next are the two that are kept."""
    first = Snapshots(tmp_path, 0)
    first.save(1, parts())
    first.save(2, parts())
    newest(tmp_path).write_bytes(b"")
    again = Snapshots(tmp_path, 0)
    assert again.load() is not None
    again.save(3, parts())
    assert sorted(int(path.stem.split("-")[1]) for path in tmp_path.glob("*.snapshot")) == [1, 3]


def test_what_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is not filled further by each new try, and what a killed writer left goes with the next."""
    (tmp_path / ".p0-1-1.pieces.abc.tmp").write_bytes(b"half")
    snapshots = Snapshots(tmp_path, 0)
    monkeypatch.setattr(Snapshots, "_name", lambda self, offset: "p0.epoch/not a folder")
    for _ in range(3):
        with pytest.raises(OSError, match=r"p0\.epoch"):
            snapshots.save(1, parts(watch={"v": np.arange(9_999)}))
    assert [path.name for path in tmp_path.iterdir() if path.is_file() and path.name != ".storage.lock"] == ["p0.epoch"]


def test_what_fails_once_the_snapshot_is_in_place_leaves_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be synchronised after the rename: the snapshot that is there keeps its pieces."""
    snapshots = Snapshots(tmp_path, 0)
    values = np.arange(9_999)

    def fails_afterwards(path: Path, *rest: Any) -> None:
        write_atomically(path, *rest)
        if path.suffix == ".snapshot":
            raise OSError("the folder cannot be synchronised")

    monkeypatch.setattr(folder_storage, "write_atomically", fails_afterwards)
    with pytest.raises(OSError, match="synchronised"):
        snapshots.save(1, parts(watch={"v": values}))
    found = Snapshots(tmp_path, 0).load()
    assert found is not None
    assert found.damage == ()
    assert np.array_equal(found.parts["watch"]["v"], values)
