"""One running system a state: the lock is kept with the state, and works between machines, too.

The kernel's lock on the data folder (:mod:`services.runtime.folder`) is let go of at once when its process dies, but is
worth nothing between two machines whose mount does not share locks. So an owner also writes itself down beside the
state, in a file whose name is its epoch and which can be made once only, and shows every two seconds that it lives.
Clocks are never compared: a newcomer watches whether the file changes.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.errors import StartError

__all__ = ["BEAT_S", "SILENT_S", "StateLock", "this_machine"]

OWNERS = "owner"
BEAT_S = 2.0
SILENT_S = 20.0
"""An owner elsewhere whose file has not changed for this long is dead; or it is stopped, and finds out when it wakes
up."""
LOOK_S = 0.5
_WIDTH = 512
"""Bytes of a file: it is written over in one piece, so that a reader over a network sees the change."""

_log = logging.getLogger(__name__)


def this_machine(folder: Path) -> str:
    """Where the kernel's lock on ``folder`` is the same lock: this boot of this machine, and this mount."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        boot = platform.node()
    return f"{boot}/{folder.stat().st_dev}"


class StateLock:
    """Owns the state in ``storage`` while the context lasts. The caller holds the kernel's lock on the data folder.

    An owner before us is waited for until it has been silent for ``SILENT_S``; not at all where it left in good order,
    or ran on this machine: then the kernel's lock says that it is dead. Raises :class:`StartError` if it lives.
    ``lost`` is called once, from another thread, when another process has taken the state over: we were stopped so long
    that we seemed dead, and must end.
    """

    def __init__(
        self, storage: Path, lost: Callable[[], None], *, machine: str = "",
        say: Callable[[str], None] = _log.warning, monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self._folder = storage / OWNERS
        self._lost, self._machine = lost, machine
        self._say, self._monotonic_s, self._sleep = say, monotonic_s, sleep
        self.epoch = 0
        self._beats = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="state-lock", daemon=True)

    def __enter__(self) -> StateLock:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._machine = self._machine or this_machine(self._folder)
            self._claim()
        except OSError as error:
            raise StartError(f"the owner of the state cannot be written to {self._folder}: {error}") from error
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(BEAT_S)
        try:
            if self._newest() == self.epoch:
                self._write(released=True)
        except OSError:
            _log.warning("the next start waits %g s: the state could not be given back", SILENT_S, exc_info=True)

    def beat(self) -> bool:
        """Show that we live; ``False`` if somebody else has taken the state over.

        Raises ``OSError`` if that cannot be told: a folder that is away says nothing of another owner.
        """
        if self._newest() > self.epoch:
            return False
        self._beats += 1
        self._write()
        return True

    def _claim(self) -> None:
        self._await_silence()
        self.epoch = self._newest() + 1
        try:
            with self._path(self.epoch).open("xb") as file:
                file.write(self._record())
                file.flush()
                os.fsync(file.fileno())
        except FileExistsError as error:  # somebody who waited, too, was faster
            raise self._refusal(self.epoch) from error
        for path in self._folder.glob("*.json"):
            if _epoch_of(path) < self.epoch:
                path.unlink(missing_ok=True)

    def _await_silence(self) -> None:
        """Return when nobody owns the state any more."""
        epoch = self._newest()
        before, since_s = self._read(epoch), self._monotonic_s()
        owner = _parsed(before)
        if not epoch or owner.get("released") or owner.get("machine") == self._machine:
            return
        self._say(f"waiting {SILENT_S:g} s for a sign of life of {_who(owner)}")
        while self._monotonic_s() < since_s + SILENT_S:
            self._sleep(LOOK_S)
            now = self._read(self._newest())
            if _parsed(now).get("released"):
                return
            if now != before:
                raise self._refusal(self._newest())

    def _refusal(self, epoch: int) -> StartError:
        return StartError(
            f"another Hothouse runs on the state in {self._folder.parent}: {_who(_parsed(self._read(epoch)))}",
            "Stop it, or choose another folder with data_dir.",
        )

    def _run(self) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                if not self.beat():
                    _log.error("another process has taken the state over: this one was silent for too long, and ends")
                    self._lost()
                    return
            except OSError:
                _log.warning("no sign of life could be written to %s", self._folder, exc_info=True)

    def _newest(self) -> int:
        # Not by glob, which takes a folder that it cannot read for an empty one.
        return max(map(_epoch_of, self._folder.iterdir()), default=0)

    def _path(self, epoch: int) -> Path:
        return self._folder / f"{epoch:012d}.json"

    def _record(self, released: bool = False) -> bytes:
        owner = {
            "host": platform.node()[:64], "pid": os.getpid(), "machine": self._machine, "beats": self._beats,
            "released": released,
        }  # fmt: skip
        return json.dumps(owner).encode().ljust(_WIDTH - 1) + b"\n"

    def _write(self, released: bool = False) -> None:
        descriptor = os.open(self._path(self.epoch), os.O_WRONLY)
        try:
            os.pwrite(descriptor, self._record(released), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _read(self, epoch: int) -> bytes:
        try:
            return self._path(epoch).read_bytes()
        except FileNotFoundError:
            return b""


def _epoch_of(path: Path) -> int:
    return int(path.stem) if path.suffix == ".json" and path.stem.isdigit() else 0


def _who(owner: dict[str, Any]) -> str:
    return f"process {owner.get('pid', '?')} on {owner.get('host', 'another machine')}"


def _parsed(record: bytes) -> dict[str, Any]:
    """A record; empty if it is torn: its writer lives, or never will again."""
    try:
        found = json.loads(record)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
