"""A snapshot is written beside the stream."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from tests.patience import until
from tests.services.ingest.rig import Rig, day, filled
from tests.services.ingest.samples import STEP, T0, new_records, sample


class Awaited(Future[Any]):
    """Says when somebody waits for it."""

    def __init__(self, waits: threading.Event) -> None:
        super().__init__()
        self._waits = waits

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self.done():
            self._waits.set()
        return super().exception(timeout)


class Gate(Executor):
    """Runs in a thread of its own, but not before it is opened."""

    def __init__(self) -> None:
        self.opened, self.waits = threading.Event(), threading.Event()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = Awaited(self.waits)

        def later() -> None:
            assert self.opened.wait(600)
            future.set_result(fn(*args, **kwargs))

        threading.Thread(target=later, daemon=True).start()
        return future


def test_samples_are_taken_while_a_snapshot_is_written_and_rows_wait_for_it(tmp_path: Path) -> None:
    """What closes no row goes on; what does waits, so that the snapshot is of one moment: a shard that starts from it
    forecasts what one that never stopped does.
    """
    at = T0 + 30 * STEP - STEP // 2
    first = new_records([[sample(at, 499, "z1", air_temp_c=20.0)]])
    rig = Rig(tmp_path / "a", filled([*day(30), *first]))
    rig.saver = gate = Gate()
    learned: list[bool] = []  # whether the snapshot could be written by then
    shard = rig.shard(lambda name: learned.append(gate.opened.is_set()) if name == "taken" else None)
    gate.opened.set()
    rig.drain(shard)
    gate.opened.clear()
    gate.waits.clear()
    shard.flush()  # a snapshot begins, and hangs
    before = shard.stats()["accepted"]
    rig.log.append(new_records([[sample(at + 1, 500, "z1", air_temp_c=21.0)]]))
    while shard.step():
        pass
    assert shard.stats()["accepted"] == before + 1
    assert not gate.waits.is_set()
    learned.clear()
    closing = [[sample(T0 + n * STEP, n, zone, air_temp_c=20.0 + n) for zone in ("z1", "z2")] for n in range(30, 34)]
    rig.log.append(new_records(closing))
    learner = threading.Thread(target=rig.drain, args=(shard,))
    learner.start()
    until(lambda: gate.waits.is_set() or not learner.is_alive(), "the learner waits for the snapshot")
    assert learned == []
    gate.opened.set()
    learner.join()
    assert all(learned)

    other = Rig(tmp_path / "b", filled([]))
    other.log = rig.log
    never_stopped = other.shard()
    other.drain(never_stopped)
    again = Rig(tmp_path / "a", rig.log)
    restarted = again.shard()
    again.drain(restarted)
    newest = [{f["zone"]: f for f in one.live_state.published} for one in (other, again)]
    assert newest[0] == newest[1]


class Failing(Executor):
    """The first call fails."""

    def __init__(self) -> None:
        self.calls = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls += 1
        future: Future[Any] = Future()
        if self.calls == 1:
            future.set_exception(OSError("no space left"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_a_snapshot_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    """The error is raised to who counts failures; nothing is let go of, and the next one has it all."""
    rig = Rig(tmp_path, filled(list(day(30))))
    rig.saver = Failing()
    shard = rig.shard()
    rig.drain(shard)
    with pytest.raises(OSError, match="no space left"):
        shard.flush()
    assert not list((rig.settings.storage_folder / "snapshots").glob("*.snapshot"))
    shard.flush()
    assert len(list((rig.settings.storage_folder / "snapshots").glob("*.snapshot"))) == 1


def test_closing_after_a_snapshot_that_failed_saves_all(tmp_path: Path) -> None:
    """The last one is written although the one before it could not be, and the failure was told."""
    rig = Rig(tmp_path, filled(list(day(30))))
    rig.saver = failing = Failing()
    shard = rig.shard()
    rig.drain(shard)
    with pytest.raises(OSError, match="no space left"):
        shard.flush()
    assert "no space left" in shard.stats()["last_error"]
    shard.close()
    assert failing.calls == 2
    assert len(list((rig.settings.storage_folder / "snapshots").glob("*.snapshot"))) == 1
