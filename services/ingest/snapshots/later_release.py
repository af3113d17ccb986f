"""State that a later release wrote is left as it is: who went on from it would throw a part of it away."""

from __future__ import annotations

import msgspec

from services.errors import NotStoredError, StartError
from services.ingest.snapshots import format_10
from services.ingest.snapshots.parts import PARTS
from services.ingest.snapshots.snapshot_file import FORMAT, MAGIC, head_of, header_bytes
from services.store.storage import Storage

__all__ = ["SNAPSHOTS", "later", "refuse_state_of_a_later_release"]

SNAPSHOTS = "snapshots"
"""The folder of snapshots in the storage."""
HINT = "Start that release, or restore the backup that was made before it into an empty place. Nothing was changed."


def refuse_state_of_a_later_release(storage: Storage) -> None:
    """Raises :class:`StartError` where a snapshot says that a later release wrote it.

    Called before anything of the state is changed. A damaged snapshot says nothing; who reads it copes with that.
    """
    for name in storage.list_folder(SNAPSHOTS).names:
        if not name.endswith(".snapshot"):
            continue
        key = f"{SNAPSHOTS}/{name}"
        try:
            why = later(head_of(storage, key))
        except NotStoredError:
            continue
        if why:
            raise StartError(f"{storage.address(key)} was written by a later release: {why}", HINT)


def later(content: bytes) -> str:
    """Why a snapshot that begins with ``content`` is of a later release; nothing where it is not, or says nothing.

    >>> later(b"HHSNP9" + bytes(20)), later(MAGIC + b"torn"), later(b"")
    ('it is of another kind', '', '')
    """
    if content.startswith(format_10.MAGIC):
        return ""
    if not content.startswith(MAGIC):
        return "it is of another kind" if content.startswith(MAGIC[:4]) else ""
    try:
        header = msgspec.msgpack.decode(content[len(MAGIC) + 8 : header_bytes(content)])
        if header["format"] > FORMAT:
            return f"it has format {header['format']}, and this release reads up to {FORMAT}"
        parts = {part["name"]: part["version"] for part in header["parts"]}
        for name, version in parts.items():
            if name not in PARTS:
                return f"this release does not know its part {name!r}"
            if version > PARTS[name].version:
                return f"its part {name!r} has version {version}, and this release reads up to {PARTS[name].version}"
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return ""
    return ""
