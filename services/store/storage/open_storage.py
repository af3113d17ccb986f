"""The storage that an address, or the settings, name."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from services.config import Settings
from services.store.storage.folder_storage import FolderStorage
from services.store.storage.object_storage import ObjectStorage, Pauses
from services.store.storage.storage import Storage
from services.store.storage.storage_address import StorageAddress

__all__ = ["address_of", "open_storage", "storage_of", "stored_in"]

REST_S = 2.0
"""How long a server that did not answer for all of ``storage.retry_s`` is left alone each time: a shard that asks it in
several places spends its time on samples.
"""


def address_of(settings: Settings) -> StorageAddress:
    """Where the settings say that the storage is."""
    said = settings.storage
    return StorageAddress(
        url=said.url or str(settings.storage_folder.absolute()), endpoint=said.endpoint, region=said.region,
        path_style=said.path_style, account=said.account,
        credentials_file=str(said.credentials_file.absolute()) if said.credentials_file else "", retry_s=said.retry_s,
    )  # fmt: skip


@lru_cache(maxsize=64)
def open_storage(address: StorageAddress) -> Storage:
    """The storage at an address. A process has one of each: what one part wrote all its parts find in lists."""
    if address.folder is not None:
        return FolderStorage(address.folder)
    from services.store.storage.cloud_server import CloudServer  # the edge part has no obstore

    return ObjectStorage(CloudServer(address), Pauses(total_s=address.retry_s, rest_s=REST_S))


def storage_of(settings: Settings) -> Storage:
    """The storage of a system's settings."""
    return open_storage(address_of(settings))


def stored_in(root: Storage | Path) -> Storage:
    """A folder as a storage; a storage as it is."""
    return FolderStorage(root) if isinstance(root, Path) else root
