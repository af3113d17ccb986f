"""One storage for what outlives a process: a folder, memory, or an object store."""

from __future__ import annotations

from services.store.storage.folder_storage import FolderStorage
from services.store.storage.kept_folder import fetch_folder, forget_folder, keep_folder
from services.store.storage.object_server import MemoryServer
from services.store.storage.object_storage import ObjectStorage, Pauses
from services.store.storage.open_storage import address_of, open_storage, storage_of, stored_in
from services.store.storage.storage import Content, Entry, FolderListing, Storage, Stored, always
from services.store.storage.storage_address import StorageAddress

__all__ = [
    "Content", "Entry", "FolderListing", "FolderStorage", "MemoryServer", "ObjectStorage", "Pauses", "Storage",
    "StorageAddress", "Stored", "address_of", "always", "fetch_folder", "forget_folder", "keep_folder", "open_storage",
    "storage_of", "stored_in",
]  # fmt: skip
