"""Step 6 of the way of a reading: one storage for all that outlives a process, a folder or an object store.

An *object* is bytes with a name such as ``snapshots/p0.epoch``, read and replaced as a whole. What a writer may rely on
is what object stores give, and no more: one name is changed at once or not at all, and a change may be made conditional
on what was there. There is no rename, no lock, and no time of a change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from services.store.files import always

__all__ = ["Content", "Entry", "FolderListing", "Storage", "Stored", "always"]

Content = bytes | Callable[[Path], None]
"""What is stored: bytes, or what fills a file with them, for content that is made piece by piece. It may be called more
than once."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An object as it is listed. Its ``version`` is another one once the content is.

    ``modified_s`` is Unix time by whatever clock the storage has: good enough for how long something useless is still
    kept, and for nothing that decides.
    """

    size: int
    version: str
    modified_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Stored:
    """An object's content, and which version of it that is."""

    content: bytes
    version: str


@dataclass(frozen=True, slots=True)
class FolderListing:
    """What lies directly in a folder: names without it, sorted."""

    folders: tuple[str, ...]
    names: tuple[str, ...]


class Storage(Protocol):
    """Objects by name. Any thread may call any method; every one may be repeated.

    A *key* is ``folder/folder/name``, relative, in letters, digits and ``. _ - =``; a name that begins with a dot is
    not listed. ``check`` is called at the last moment before an object is written, at every try; what it raises leaves
    the object as it was. Raises :class:`StorageError` (an ``OSError``) where the storage does not do it, or what a
    folder's disk raises.

    The three that write return the new version. The same content as is there already counts as written, whoever wrote
    it: an answer that was lost on the way cannot be told from that. So who must know that an object is its own puts
    something of its own into it.
    """

    url: str
    """How people call it."""

    poll_s: float
    """Who follows what others write looks no oftener than this: each look may cost a request, and be paid for."""

    def read(self, key: str) -> Stored:
        """The whole object; raises :class:`NotStoredError`."""

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Some bytes of it, fewer where it ends; raises :class:`NotStoredError`."""

    def mapped(self, key: str) -> memoryview:
        """The whole of a large object, in memory only where it must be; raises :class:`NotStoredError`."""

    def entry(self, key: str) -> Entry | None:
        """Size and version; ``None`` where there is no such object."""

    def put(self, key: str, content: Content, check: Callable[[], None] = always) -> str:
        """Replace whatever is there."""

    def put_new(self, key: str, content: Content, check: Callable[[], None] = always) -> str:
        """Make an object that is not there; raises :class:`AlreadyStoredError` where another content is."""

    def swap(self, key: str, content: Content, version: str, check: Callable[[], None] = always) -> str:
        """Replace that version, and no other; raises :class:`ChangedError` where it is gone."""

    def list_folder(self, folder: str) -> FolderListing:
        """What lies in a folder; nothing where there is none. What this object wrote and deleted is always taken into
        account, what others did perhaps a while later.
        """

    def entries(self, folder: str) -> Mapping[str, Entry]:
        """The objects that lie directly in a folder, by name."""

    def delete(self, key: str) -> None:
        """Remove an object; none is no error."""

    def tidy(self, folder: str, beginning: str = "", age_s: float = 0.0, now_s: float = 0.0) -> None:
        """Remove what killed writers left half written in a folder, under names that begin so and longer ago than
        ``age_s`` before ``now_s``; and the folder, where nothing is left in it. For the folder's one writer. Object
        stores keep neither.
        """

    def address(self, key: str) -> str:
        """Where the object is, in words that other programs understand: a path, or a URL."""

    def delta_options(self) -> dict[str, str]:
        """What the library of Delta Lake must be told to reach the same storage by itself."""

    def local(self, key: str) -> Path | None:
        """The object's file, which only :meth:`put` and the others may write; ``None`` where it is none."""
