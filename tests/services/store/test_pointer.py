"""The pointer to what serves: durable, its generation rises, and one that cannot be read is nobody's default."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.errors import ModelFilesError
from services.store.pointer import NOWHERE, Pointed, Pointer
from services.store.storage import MemoryServer, ObjectStorage, Pauses
from tests.contracts.faulty_server import FaultyServer


def test_it_points_nowhere_until_it_is_moved(tmp_path: Path) -> None:
    """Without a file no model serves."""
    pointer = Pointer(tmp_path, "trees")
    assert pointer.read() == NOWHERE == Pointed(1, "online", "")
    assert pointer.move("online", "") == NOWHERE
    assert not list(tmp_path.iterdir())


def test_a_move_is_seen_by_whoever_reads(tmp_path: Path) -> None:
    """Each move has a generation of its own, and the same again is none."""
    moved = Pointer(tmp_path, "trees").move("trees-v1", "/models/a")
    assert (tmp_path / "slot-trees.json").exists()
    assert (moved.generation, Pointer(tmp_path, "trees").read()) == (2, moved)
    assert Pointer(tmp_path, "trees").move("trees-v1", "/models/a") == moved
    assert Pointer(tmp_path, "trees").move("online", "") == Pointed(3, "online", "")


def test_of_two_that_move_it_neither_undoes_the_other(tmp_path: Path) -> None:
    """Each move has a generation of its own, whoever made it, and the answer of the later one is what is there."""
    server = MemoryServer()
    one, other = (Pointer(ObjectStorage(server), "network") for _ in range(2))
    raced = False

    def first() -> None:
        nonlocal raced
        if not raced:
            raced = True
            other.move("v2", "b")

    one._storage = _Before(ObjectStorage(server), first)  # type: ignore[assignment]
    assert one.move("v1", "a") == Pointed(3, "v1", "a") == other.read()


def test_a_storage_that_is_away_is_not_a_damaged_pointer() -> None:
    """The sentence says so, and nobody is told to remove anything."""
    server = FaultyServer(MemoryServer("s3://b"), chance=1, faults=["lost"])
    pointer = Pointer(ObjectStorage(server, Pauses(total_s=0)), "network")
    with pytest.raises(ModelFilesError, match=r"s3://b/slot\.json cannot be read: s3://b does not answer") as raised:
        pointer.move("v1", "a")
    assert "Remove" not in raised.value.hint


class _Before:
    """Does something before each first write."""

    def __init__(self, storage: ObjectStorage, first: Callable[[], None]) -> None:
        self._storage, self._first = storage, first

    def __getattr__(self, name: str) -> Any:
        if name in ("put_new", "swap"):
            self._first()
        return getattr(self._storage, name)


def test_the_networks_pointer_is_the_pointer_of_before(tmp_path: Path) -> None:
    """A data folder of an earlier release serves on with the network that it had."""
    (tmp_path / "slot.json").write_text('{"generation": 4, "version": "v3", "folder": "/models/v3"}')
    assert Pointer(tmp_path, "network").read() == Pointed(4, "v3", "/models/v3")


def test_a_lost_file_does_not_turn_generations_back(tmp_path: Path) -> None:
    """Whoever follows has seen a generation, and must see that there is a newer one."""
    pointer = Pointer(tmp_path, "network")
    for version in ("v1", "v2"):
        pointer.move(version, version)
    (tmp_path / "slot.json").unlink()
    assert pointer.move("v3", "v3", least=4).generation == 4


@pytest.mark.parametrize("content", ["{", "[]", '{"generation": 2}'])
def test_a_damaged_pointer_is_an_error(tmp_path: Path, content: str) -> None:
    """It is for the operator to say what should serve; the sentence names the file."""
    pointer = Pointer(tmp_path, "trees")
    (tmp_path / "slot-trees.json").write_text(content)
    for act in (pointer.read, lambda: pointer.move("trees-v1", "a")):
        with pytest.raises(ModelFilesError, match=r"slot-trees\.json cannot be read"):
            act()
