"""Step 6 of the way of a reading: what an object store is asked, one request each; and one in memory, for tests."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Protocol

from services.errors import AlreadyStoredError, ChangedError, NotStoredError, StorageRefusedError
from services.store.storage.storage import Entry, Stored

__all__ = ["ABSENT", "Body", "MemoryServer", "ObjectServer", "Objects"]

Body = bytes | Path
"""What is sent: bytes, or a file of them."""

ABSENT = ""
"""The version of an object that is not there."""

Objects = tuple[tuple[str, ...], dict[str, Entry]]
"""The folders and the objects that lie directly in a folder."""


class ObjectServer(Protocol):
    """One request a call, none repeated here. Raises :class:`StorageAwayError` where nobody knows whether it was done,
    :class:`StorageRefusedError` where it was not, and would not be.
    """

    url: str

    def get(self, key: str, start: int = 0, length: int | None = None) -> Stored:
        """An object, or some bytes of it; raises :class:`NotStoredError`."""

    def head(self, key: str) -> Entry | None:
        """Size and version, ``None`` where there is no such object."""

    def put(self, key: str, body: Body, version: str | None) -> str:
        """Write an object in place of that ``version``: :data:`ABSENT` where there may be none, ``None`` for any.

        Raises :class:`AlreadyStoredError`, or :class:`ChangedError`.
        """

    def list_folder(self, folder: str) -> Objects:
        """What lies directly in a folder."""

    def delete(self, key: str) -> None:
        """Remove an object, if it is there."""

    def renew(self) -> None:
        """Read the credentials again: they may have expired."""

    def delta_options(self) -> dict[str, str]:
        """What the library of Delta Lake must be told to reach the same server."""


@dataclass
class MemoryServer:
    """An object store in memory, for tests; nothing outlives the process."""

    url: str = "memory://test"
    objects: dict[str, Stored] = field(default_factory=dict)
    _changing: Lock = field(default_factory=Lock)
    _count: int = 0
    _changed_s: dict[str, float] = field(default_factory=dict)

    def get(self, key: str, start: int = 0, length: int | None = None) -> Stored:
        """As the contract says."""
        found = self.objects.get(key)
        if found is None:
            raise NotStoredError(f"{self.url}/{key} is not there")
        end = None if length is None else start + length
        return Stored(found.content[start:end], found.version)

    def head(self, key: str) -> Entry | None:
        """As the contract says."""
        found = self.objects.get(key)
        return None if found is None else Entry(len(found.content), found.version, self._changed_s[key])

    def put(self, key: str, body: Body, version: str | None) -> str:
        """As the contract says."""
        content = body if isinstance(body, bytes) else body.read_bytes()
        with self._changing:
            found = self.objects.get(key)
            if version == ABSENT and found is not None:
                raise AlreadyStoredError(f"{self.url}/{key} is there already")
            if version and (found is None or found.version != version):
                raise ChangedError(f"{self.url}/{key} was changed meanwhile by another writer")
            self._count += 1
            self.objects[key], self._changed_s[key] = Stored(content, str(self._count)), time.time()
            return str(self._count)

    def list_folder(self, folder: str) -> Objects:
        """As the contract says."""
        begin = f"{folder}/" if folder else ""
        rests = {key[len(begin) :]: found for key, found in sorted(self.objects.items()) if key.startswith(begin)}
        folders = dict.fromkeys(rest.split("/")[0] for rest in rests if "/" in rest)
        files = {rest: one for rest, one in rests.items() if "/" not in rest}
        changed_s = {rest: self._changed_s[f"{begin}{rest}"] for rest in files}
        return tuple(folders), {
            rest: Entry(len(one.content), one.version, changed_s[rest]) for rest, one in files.items()
        }

    def delete(self, key: str) -> None:
        """As the contract says."""
        with self._changing:
            self.objects.pop(key, None)

    def renew(self) -> None:
        """Nothing expires."""

    def delta_options(self) -> dict[str, str]:
        """Nobody else sees this memory."""
        raise StorageRefusedError(f"no table can lie in {self.url}", "Take a folder or a bucket.")
