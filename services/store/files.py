"""Step 6 of the way of a reading: files that are written whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["TMP_SUFFIX", "always", "leads_inside", "sync_folder", "write_atomically", "write_new"]

TMP_SUFFIX = ".tmp"
"""Ends the name, which begins with a dot, of a file that is still being written; readers skip it."""


def leads_inside(name: str) -> bool:
    r"""Whether a name leads below the folder that it is joined to, on the one way there: ``folder / "/etc/passwd"`` is
    ``/etc/passwd``.

    >>> [name for name in ("a", "a/..b", "/a", "a//b", "a/", "./a", "a/../b", "a\0b", "") if leads_inside(name)]
    ['a', 'a/..b']
    """
    return "\0" not in name and not {"", ".", ".."}.intersection(name.split("/"))


def always() -> None:
    """The check of a writer that never loses its path to another."""


def write_atomically(path: Path, write: Callable[[Path], None], check: Callable[[], None] = always) -> None:
    """Let ``write`` fill a file beside ``path``, make it durable, then rename it to ``path``.

    After a crash at any moment ``path`` holds the old content or the new one. ``check`` raises when the path belongs
    to another writer by now; it is called at the last moment, and what it raises leaves ``path`` as it was.
    """

    def put(beside: Path) -> None:
        _remove_leftovers(path, beside)
        _make_later(beside, path)
        beside.replace(path)

    _write(path, write, check, put)


def write_new(path: Path, write: Callable[[Path], None], check: Callable[[], None] = always) -> None:
    """The same of a ``path`` that is not there. Of several writers one has it, and the others get a
    :class:`FileExistsError`; nobody waits for another one, who may hang.
    """

    def put(beside: Path) -> None:
        os.link(beside, path)
        beside.unlink()

    _write(path, write, check, put)


def _write(path: Path, write: Callable[[Path], None], check: Callable[[], None], put: Callable[[Path], None]) -> None:
    new = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}{TMP_SUFFIX}")
    try:
        write(beside)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        check()
        put(beside)
    except BaseException:  # Ctrl-C, too: a backup has gigabytes
        beside.unlink(missing_ok=True)
        raise
    for folder in (path.parent, *(made.parent for made in new)):
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Make renames and removals in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_later(tmp: Path, path: Path) -> None:
    """Let the time of a change rise with every file of a name: clocks tick in milliseconds, and may be set back."""
    with suppress(FileNotFoundError):
        before_ns, now = path.stat().st_mtime_ns, tmp.stat()
        if now.st_mtime_ns <= before_ns:
            os.utime(tmp, ns=(now.st_atime_ns, before_ns + 1))


def _remove_leftovers(path: Path, own: Path) -> None:
    # Of a crash; or of a writer that was taken over from between its check and its rename, which thereby fails.
    for found in path.parent.iterdir():
        if found.name.startswith(f".{path.name}.") and found.name.endswith(TMP_SUFFIX) and found != own:
            found.unlink(missing_ok=True)
