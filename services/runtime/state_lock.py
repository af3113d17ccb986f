"""One running system a state: the lock is kept with the state, and works between machines, too.

The kernel's lock on the data folder (:mod:`services.runtime.folder`) is let go of at once when its process dies, but is
worth nothing between two machines whose mount does not share locks. So an owner also writes itself down beside the
state, in a file whose name is its epoch and which can be made once only, and shows every few seconds that it lives.
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
from typing import Any, Protocol

from services.errors import LOOK_AT_THE_DISK, StartError

__all__ = ["BEAT_S", "SILENT_S", "OwnersFolder", "OwnersPlace", "StateLock", "this_machine"]

OWNERS = "owner"
BEAT_S = 2.0
"""In a folder, and after a sign of life that could not be written."""
SILENT_S = 20.0
"""An owner elsewhere whose file has not changed for this long is dead; or it is stopped, and finds out when it wakes
up."""
LOOK_S = 0.5
_WIDTH = 512
"""Bytes of a file: it is written over in one piece, so that a reader over a network sees the change."""

_log = logging.getLogger(__name__)


def this_machine(folder: Path) -> str:
    """Where the kernel's lock on ``folder`` is the same lock: this boot of this machine, and this folder."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        boot = platform.node()
    found = folder.stat()
    return f"{boot}/{found.st_dev}/{found.st_ino}"


class OwnersPlace(Protocol):
    """Where owners of a state write themselves down. Raises ``OSError`` where nobody can tell what is there."""

    name: str
    """Of the state, for people."""
    beat_s: float
    """Seconds between two signs of life of an owner."""

    def machine(self) -> str:
        """Where the kernel's lock on our data folder is the same lock, and keeps others from this state."""

    def newest(self) -> int:
        """The largest epoch; 0 where there is none."""

    def make(self, epoch: int, record: bytes) -> None:
        """Write a new owner down; raises ``FileExistsError`` where that epoch is somebody's."""

    def write(self, epoch: int, record: bytes) -> None:
        """Replace an owner's record."""

    def read(self, epoch: int) -> bytes:
        """An owner's record; empty where there is none."""

    def remove_older(self, epoch: int) -> None:
        """Remove the owners before that one."""


class OwnersFolder:
    """Owners in a folder (:class:`OwnersPlace`): a record is written over in one piece, under the same name."""

    def __init__(self, storage: Path) -> None:
        self.name, self.beat_s, self._folder = str(storage), BEAT_S, storage / OWNERS

    def machine(self) -> str:
        """As the contract says."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return this_machine(self._folder)

    def newest(self) -> int:
        """As the contract says."""
        # Not by glob, which takes a folder that it cannot read for an empty one.
        return max(map(_epoch_of, self._folder.iterdir()), default=0)

    def make(self, epoch: int, record: bytes) -> None:
        """As the contract says."""
        with (path := self._path(epoch)).open("xb") as file:
            try:
                file.write(record)
                file.flush()
                os.fsync(file.fileno())
            except OSError:  # half of it would be an owner elsewhere, which the next start waits for
                path.unlink(missing_ok=True)
                raise

    def write(self, epoch: int, record: bytes) -> None:
        """As the contract says."""
        descriptor = os.open(self._path(epoch), os.O_WRONLY)
        try:
            os.pwrite(descriptor, record, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, epoch: int) -> bytes:
        """As the contract says."""
        try:
            return self._path(epoch).read_bytes()
        except FileNotFoundError:
            return b""

    def remove_older(self, epoch: int) -> None:
        """As the contract says."""
        for path in self._folder.glob("*.json"):
            if _epoch_of(path) < epoch:
                path.unlink(missing_ok=True)

    def _path(self, epoch: int) -> Path:
        return self._folder / f"{epoch:012d}.json"


class StateLock:
    """Owns the state in ``storage`` while the context lasts. The caller holds the kernel's lock on the data folder.

    An owner before us is waited for until it has been silent for ``SILENT_S``; not at all where it left in good order,
    or ran on this machine: then the kernel's lock says that it is dead. Raises :class:`StartError` if it lives.
    ``lost`` is called once, from another thread, when another process has taken the state over: we were stopped so long
    that we seemed dead, and must end.
    """

    def __init__(
        self, storage: Path | OwnersPlace, lost: Callable[[], None], *, machine: str = "",
        say: Callable[[str], None] = _log.warning, monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self._place: OwnersPlace = OwnersFolder(storage) if isinstance(storage, Path) else storage
        self._lost, self._machine = lost, machine
        self._say, self._monotonic_s, self._sleep = say, monotonic_s, sleep
        self.epoch = 0
        self._beats = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="state-lock", daemon=True)

    def __enter__(self) -> StateLock:
        try:
            machine = self._place.machine()
            self._machine = self._machine or machine
            self._claim()
        except OSError as error:
            words = f"the owner of the state cannot be written to {self._place.name}: {error}"
            raise StartError(words, getattr(error, "hint", LOOK_AT_THE_DISK)) from error
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(BEAT_S)
        try:
            if self._place.newest() == self.epoch:
                self._write(released=True)
        except OSError:
            _log.warning("the next start waits %g s: the state could not be given back", SILENT_S, exc_info=True)

    def beat(self) -> bool:
        """Show that we live; ``False`` if somebody else has taken the state over.

        Raises ``OSError`` if that cannot be told: a folder that is away says nothing of another owner.
        """
        if self._place.newest() > self.epoch:
            return False
        self._beats += 1
        self._write()
        return True

    def _claim(self) -> None:
        self._await_silence()
        self.epoch = self._place.newest() + 1
        try:
            self._place.make(self.epoch, self._record())
        except FileExistsError as error:  # somebody who waited, too, was faster
            raise self._refusal(self.epoch) from error
        self._place.remove_older(self.epoch)

    def _await_silence(self) -> None:
        """Return when nobody owns the state any more."""
        epoch = self._place.newest()
        before, since_s = self._place.read(epoch), self._monotonic_s()
        owner = _parsed(before)
        if not epoch or owner.get("released") or owner.get("machine") == self._machine:
            return
        self._say(f"waiting {SILENT_S:g} s for a sign of life of {_who(owner)}")
        while self._monotonic_s() < since_s + SILENT_S:
            self._sleep(LOOK_S)
            now = self._place.read(self._place.newest())
            if _parsed(now).get("released"):
                return
            if now != before:
                raise self._refusal(self._place.newest())

    def _refusal(self, epoch: int) -> StartError:
        return StartError(
            f"another Hothouse runs on the state in {self._place.name}: {_who(_parsed(self._place.read(epoch)))}",
            "Stop it, or choose another place with data_dir or storage.url.",
        )

    def _run(self) -> None:
        wait_s = self._place.beat_s
        while not self._ended.wait(wait_s):
            wait_s = BEAT_S
            try:
                if not self.beat():
                    _log.error("another process has taken the state over: this one was silent for too long, and ends")
                    self._lost()
                    return
                wait_s = self._place.beat_s
            except OSError:
                _log.warning("no sign of life could be written to %s", self._place.name, exc_info=True)

    def _record(self, released: bool = False) -> bytes:
        owner = {
            "host": platform.node()[:64], "pid": os.getpid(), "machine": self._machine, "beats": self._beats,
            "released": released,
        }  # fmt: skip
        return json.dumps(owner).encode().ljust(_WIDTH - 1) + b"\n"

    def _write(self, released: bool = False) -> None:
        self._place.write(self.epoch, self._record(released))


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
