"""Step 12 of the way of a reading: objects of the storage as Arrow and Ray Data read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyarrow import fs

from services.store.storage.cloud_server import options_of
from services.store.storage.storage_address import StorageAddress

__all__ = ["arrow_files"]


def arrow_files(files: Sequence[str], where: StorageAddress | None) -> tuple[list[str], Any]:
    """Names of files and the file system that they are on, as Arrow wants them; ``None`` for this machine's.

    ``where`` is the address of the storage that ``files`` are URLs of; ``None`` where they are paths. The file system
    travels to other processes without the login, which each of them reads for itself.
    """
    if where is None:
        return list(files), None
    return [name.partition("://")[2] for name in files], fs.PyFileSystem(fs.FSSpecHandler(_store(where)))


def _store(where: StorageAddress) -> Any:
    from obstore import fsspec

    kind: Any = fsspec.FsspecStore

    class Store(kind):
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[StorageAddress]]:
            return _store, (where,)

    scheme, options = options_of(where)
    return Store(scheme, **options)
