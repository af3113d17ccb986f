"""Where the storage is, and how it is reached: it travels to other processes, which open it for themselves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["StorageAddress"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageAddress:
    """A folder, or the URL of a bucket; no secret, only where secrets are."""

    url: str  # a path, or s3://bucket/prefix or az://...
    endpoint: str = ""
    region: str = ""
    path_style: bool = False
    account: str = ""
    credentials_file: str = ""
    retry_s: float = 10.0

    @property
    def remote(self) -> StorageAddress | None:
        """Itself; ``None`` where it is a folder, whose files need no address beside their paths."""
        return None if self.folder is not None else self

    @property
    def folder(self) -> Path | None:
        """The folder that it is; ``None`` for a bucket."""
        return None if "://" in self.url else Path(self.url)
