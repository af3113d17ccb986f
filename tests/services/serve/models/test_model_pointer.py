"""The model pointer: durable, rising generations, waiting replicas."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from services.errors import ModelFilesError
from services.messages import ONLINE_VERSION
from services.serve.models.model_pointer import ModelPointer
from services.store.pointer import Pointed, Pointer
from tests.patience import patience_s


def test_begins_with_the_climatology(tmp_path: Path) -> None:
    """Without a file the climatology serves, as generation 1."""
    champion = asyncio.run(ModelPointer(tmp_path).get())
    assert (champion["generation"], champion["version"], champion["folder"]) == (1, ONLINE_VERSION, "")


def test_survives_a_restart(tmp_path: Path) -> None:
    """A model pointer that is made again on the same file names the same champion and generation."""
    path = tmp_path / "storage"
    champion = asyncio.run(ModelPointer(path).set("v3", "/models/v3"))
    assert asyncio.run(ModelPointer(path).get()) == champion
    assert [file.name for file in path.iterdir() if file.name != ".storage.lock"] == ["slot.json"]


def test_setting_the_same_again_changes_nothing(tmp_path: Path) -> None:
    """``set`` is idempotent: the generation rises only with a change."""

    async def run() -> None:
        pointer = ModelPointer(tmp_path)
        first = await pointer.set("v1", "a")
        assert await pointer.set("v1", "a") == first
        assert (await pointer.set("v2", "b"))["generation"] == first["generation"] + 1

    asyncio.run(run())


def test_a_waiting_replica_hears_at_once(tmp_path: Path) -> None:
    """``wait`` returns as soon as another champion is set, and after its time-out otherwise."""

    async def run() -> None:
        pointer = ModelPointer(tmp_path)
        assert (await pointer.wait(0, 10))["generation"] == 1
        assert (await pointer.wait(1, 0.01))["generation"] == 1
        waiting = asyncio.create_task(pointer.wait(1, patience_s(60)))
        await asyncio.sleep(0)
        await pointer.set("v1", "a")
        assert (await asyncio.wait_for(waiting, patience_s(10)))["version"] == "v1"

    asyncio.run(run())


def test_a_storage_that_is_slow_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a bucket that is away, which is asked again for a while: replicas that start and who asks get an answer."""
    answers = threading.Event()
    move = Pointer.move

    def slow(self: Pointer, version: str, folder: str, least: int = 0) -> Pointed:
        assert answers.wait(patience_s(5)), "nobody could ask meanwhile"
        return move(self, version, folder, least)

    async def run() -> None:
        monkeypatch.setattr(Pointer, "move", slow)
        pointer = ModelPointer(tmp_path)
        moves = [asyncio.create_task(pointer.set(version, "a")) for version in ("v1", "v2", "v1")]
        await asyncio.sleep(0)
        assert (await pointer.get())["version"] == ONLINE_VERSION
        assert (await pointer.wait(0, 10))["version"] == ONLINE_VERSION
        answers.set()
        assert [(await one)["generation"] for one in moves] == [2, 3, 4]
        assert (await pointer.get())["version"] == "v1"

    asyncio.run(run())


def test_an_unreadable_pointer_is_an_error(tmp_path: Path) -> None:
    """A damaged file is refused, not replaced by a default."""
    path = tmp_path / "slot.json"
    path.write_text("{")
    with pytest.raises(ModelFilesError, match="cannot be read"):
        ModelPointer(tmp_path)


def test_reports_say_who_serves_what_and_who_was_first(tmp_path: Path) -> None:
    """The first replica that serves a generation is told so; one that is silent for a minute is forgotten."""
    now_s = 0.0

    async def run() -> None:
        nonlocal now_s
        pointer = ModelPointer(tmp_path, clock_s=lambda: now_s)
        assert not await pointer.report("a", 2, "v1", "corrupt")
        assert await pointer.report("b", 2, "v2")
        assert not await pointer.report("b", 2, "v2")
        assert not await pointer.report("a", 2, "v2")
        now_s = 50
        await pointer.report("b", 2, "v2")
        now_s = 100
        assert list((await pointer.status())["replicas"]) == ["b"]

    asyncio.run(run())
