"""Ends what a killed run has left on a data folder: processes, and its private folder.

Serve's HAProxy outlives its parents. A runtime of our own puts its files into a private folder, and a record of that
folder into the data folder.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

__all__ = ["RECORD", "end_left_over", "end_processes_using", "no_room", "short_folder"]

RECORD = "runtime.json"
"""File of the data folder: which private folder its runtime has."""

_SOCKET_FOLDER_LIMIT = 20  # HAProxy's socket paths must stay under 97 bytes: ours, Serve's and the name add 73

PATIENCE_S = 3.0
"""How long processes may take to end after each signal."""

LEAST_MIB = 16
"""Room that a runtime needs for its files. Without any its start never ends."""


def short_folder() -> Path:
    """A new private folder for a runtime; its name is short enough for sockets in it."""
    return Path(tempfile.mkdtemp(prefix="hh-", dir=_base()))


def no_room() -> tuple[str, str]:
    """Why a runtime could not keep its files here, and what to do; empty where it can."""
    free_mib = shutil.disk_usage(base := _base()).free // 2**20
    if free_mib >= LEAST_MIB:
        return "", ""
    advice = f"Make room, or set TMPDIR to another folder, of {_SOCKET_FOLDER_LIMIT} letters at most."
    return f"{base} has {free_mib} MiB left for temporary files: Ray needs {LEAST_MIB}", advice


def _base() -> Path:
    base = Path(tempfile.gettempdir())
    # mkdtemp makes a private folder in it
    return base if len(str(base)) <= _SOCKET_FOLDER_LIMIT else Path("/tmp")  # noqa: S108


def end_left_over(data_dir: Path) -> None:
    """End what a run on this data folder that was killed has left; the caller holds the folder's lock."""
    record = data_dir / RECORD
    try:
        folder = Path(json.loads(record.read_text())["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    if folder.name.startswith("hh-"):
        end_processes_using(folder)
        shutil.rmtree(folder, ignore_errors=True)
    record.unlink(missing_ok=True)


def end_processes_using(folder: Path) -> None:
    """Ask, then force, every process that was started on a file in our private ``folder`` to end, and wait for it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in _processes_using(folder):
            _signal(pid, number)
        deadline = time.monotonic() + PATIENCE_S
        while _processes_using(folder) and time.monotonic() < deadline:
            time.sleep(0.05)


def _processes_using(folder: Path) -> list[int]:
    prefix = f"{folder}/".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if prefix in arguments and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
