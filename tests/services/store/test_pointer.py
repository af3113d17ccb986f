"""The pointer to what serves: durable, its generation rises, and one that cannot be read is nobody's default."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.errors import ModelFilesError
from services.store.pointer import NOWHERE, Pointed, Pointer, pointer_file


def test_it_points_nowhere_until_it_is_moved(tmp_path: Path) -> None:
    """Without a file no model serves."""
    pointer = Pointer(pointer_file(tmp_path, "trees"))
    assert pointer.read() == NOWHERE == Pointed(1, "online", "")
    assert pointer.move("online", "") == NOWHERE
    assert not pointer.path.exists()


def test_a_move_is_seen_by_whoever_reads(tmp_path: Path) -> None:
    """Each move has a generation of its own, and the same again is none."""
    path = pointer_file(tmp_path, "trees")
    assert path.name == "slot-trees.json"
    moved = Pointer(path).move("trees-v1", "/models/a")
    assert (moved.generation, Pointer(path).read()) == (2, moved)
    assert Pointer(path).move("trees-v1", "/models/a") == moved
    assert Pointer(path).move("online", "") == Pointed(3, "online", "")


def test_the_networks_pointer_is_the_pointer_of_before(tmp_path: Path) -> None:
    """A data folder of an earlier release serves on with the network that it had."""
    (tmp_path / "slot.json").write_text('{"generation": 4, "version": "v3", "folder": "/models/v3"}')
    assert Pointer(pointer_file(tmp_path, "network")).read() == Pointed(4, "v3", "/models/v3")


def test_a_lost_file_does_not_turn_generations_back(tmp_path: Path) -> None:
    """Whoever follows has seen a generation, and must see that there is a newer one."""
    pointer = Pointer(pointer_file(tmp_path, "network"))
    for version in ("v1", "v2"):
        pointer.move(version, version)
    pointer.path.unlink()
    assert pointer.move("v3", "v3", least=4).generation == 4


@pytest.mark.parametrize("content", ["{", "[]", '{"generation": 2}'])
def test_a_damaged_pointer_is_an_error(tmp_path: Path, content: str) -> None:
    """It is for the operator to say what should serve; the sentence names the file."""
    pointer = Pointer(pointer_file(tmp_path, "trees"))
    pointer.path.write_text(content)
    for act in (pointer.read, lambda: pointer.move("trees-v1", "a")):
        with pytest.raises(ModelFilesError, match=r"slot-trees\.json cannot be read"):
            act()
