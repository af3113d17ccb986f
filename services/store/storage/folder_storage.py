"""Step 6 of the way of a reading: the storage in a folder of this machine, or of one that is mounted.

An object is a file of its name. It is written beside, made durable, and renamed; a new one is linked, which of two
writers lets one have it; and a replacement of one version holds a lock while it looks and renames.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from services.errors import AlreadyStoredError, ChangedError, NotStoredError, StorageError
from services.store.files import TMP_SUFFIX, leads_inside, sync_folder, write_atomically, write_new
from services.store.storage.storage import Content, Entry, FolderListing, Stored, always

__all__ = ["FolderStorage"]

LOCK = ".storage.lock"
_Write = Callable[[Path, Callable[[Path], None], Callable[[], None]], None]


class FolderStorage:
    """The storage (:class:`services.store.storage.storage.Storage`) in ``root``, which the first write makes."""

    def __init__(self, root: Path) -> None:
        self.root, self._lock = root, str(root / LOCK)
        self.url, self.poll_s = str(root), 1.0

    def read(self, key: str) -> Stored:
        """As the contract says."""
        with self._missing(key), self._path(key).open("rb") as file:
            version = _version(os.fstat(file.fileno()))
            return Stored(file.read(), version)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """As the contract says."""
        with self._missing(key), self._path(key).open("rb", buffering=0) as file:
            return os.pread(file.fileno(), length, start)

    def mapped(self, key: str) -> memoryview:
        """As the contract says."""
        with self._missing(key), self._path(key).open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def entry(self, key: str) -> Entry | None:
        """As the contract says."""
        try:
            return _entry(self._path(key).stat())
        except FileNotFoundError:
            return None

    def put(self, key: str, content: Content, check: Callable[[], None] = always) -> str:
        """As the contract says."""
        path = self._path(key)
        write_atomically(path, _filling(content), check)
        return _version(path.stat())

    def put_new(self, key: str, content: Content, check: Callable[[], None] = always) -> str:
        """As the contract says."""
        path = self._path(key)

        def nobody_was_faster() -> None:
            check()
            if path.exists():
                raise AlreadyStoredError(f"{path} is there already")

        return self._conditionally(write_new, path, content, nobody_was_faster)

    def swap(self, key: str, content: Content, version: str, check: Callable[[], None] = always) -> str:
        """As the contract says."""
        path = self._path(key)
        with ExitStack() as held:

            def is_the_same() -> None:
                held.pop_all().close()
                check()
                held.enter_context(self._locked())
                found = self.entry(key)
                if found is None or found.version != version:
                    raise ChangedError(f"{path} was changed meanwhile by another writer")

            return self._conditionally(write_atomically, path, content, is_the_same)

    def list_folder(self, folder: str) -> FolderListing:
        """As the contract says."""
        folders, names = list[str](), list[str]()
        try:
            with os.scandir(self._path(folder)) as found:
                for one in found:
                    if not one.name.startswith("."):
                        (folders if one.is_dir() else names).append(one.name)
        except (FileNotFoundError, NotADirectoryError):
            pass
        return FolderListing(tuple(sorted(folders)), tuple(sorted(names)))

    def entries(self, folder: str) -> Mapping[str, Entry]:
        """As the contract says."""
        found = {name: self.entry(f"{folder}/{name}") for name in self.list_folder(folder).names}
        return {name: entry for name, entry in found.items() if entry is not None}

    def delete(self, key: str) -> None:
        """As the contract says."""
        self._path(key).unlink(missing_ok=True)

    def tidy(self, folder: str, beginning: str = "", age_s: float = 0.0, now_s: float = 0.0) -> None:
        """As the contract says."""
        path = self._path(folder)
        for left in path.glob(f".{beginning}*{TMP_SUFFIX}"):
            with suppress(FileNotFoundError):  # its writer has just finished it
                if not age_s or now_s - left.stat().st_mtime > age_s:
                    left.unlink()
        if path.is_dir() and not any(path.iterdir()):
            with suppress(OSError):  # another writer has just put something into it
                path.rmdir()
            sync_folder(path.parent)

    def address(self, key: str) -> str:
        """As the contract says."""
        return str(self._path(key))

    def delta_options(self) -> dict[str, str]:
        """As the contract says."""
        return {}

    def local(self, key: str) -> Path | None:
        """As the contract says."""
        return self._path(key)

    def _path(self, key: str) -> Path:
        """The object's file; the folder itself for an empty key."""
        if key and not leads_inside(key):
            raise StorageError(f"{key!r} is no name of an object in {self.root}")
        return self.root / key

    def _conditionally(self, write: _Write, path: Path, content: Content, condition: Callable[[], None]) -> str:
        filled = False

        def fill(beside: Path) -> None:
            nonlocal filled
            _filling(content)(beside)
            filled = True

        while True:
            try:
                write(path, fill, condition)
            except (FileExistsError, ChangedError) as error:
                if _holds(path, content):
                    return _version(path.stat())
                if isinstance(error, AlreadyStoredError | ChangedError):
                    raise
                raise AlreadyStoredError(f"{path} is there already") from error
            except FileNotFoundError:
                if not filled:
                    raise
                filled = False
                continue  # who was faster has removed what others had half written: its condition is looked at again
            return _version(path.stat())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among those that look before they rename, also of other processes."""
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # the kernel lets go of it when the file is closed
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _missing(self, key: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotStoredError(f"{self._path(key)} is not there") from error


def _filling(content: Content) -> Callable[[Path], None]:
    if not isinstance(content, bytes):
        return content
    whole = content

    def fill(path: Path) -> None:
        path.write_bytes(whole)

    return fill


def _holds(path: Path, content: Content) -> bool:
    """Whether a file has that content already."""
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        return False
    if isinstance(content, bytes):
        return found == content
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}{TMP_SUFFIX}")
    try:
        content(beside)
        return found == beside.read_bytes()
    finally:
        beside.unlink(missing_ok=True)


def _entry(found: os.stat_result) -> Entry:
    return Entry(found.st_size, _version(found), found.st_mtime)


def _version(found: os.stat_result) -> str:
    # An inode may be used again: then the time tells, which write_atomically lets rise with each file of a name.
    return f"{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}"
