"""Keys that people and programs get by name: what each may do, until when, and nothing that a thief of the file could
use.

``keys.json`` in the data folder holds a SHA-256 of each key, never the key. That is enough for 32 random bytes, which
nobody guesses. The file is replaced as a whole, so whoever reads it sees all of a change or nothing; who follows it
sees the change with the next request.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

import msgspec

from services.errors import ConfigError

__all__ = ["KEYS_FILE", "SCOPES", "AccessKey", "AccessKeys", "Scope"]

KEYS_FILE = "keys.json"
Scope = Literal["read", "operate", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""From the least to the most; each may do what those before it may."""


class AccessKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key, without the key."""

    name: str
    scope: Scope
    sha256: str
    created_ms: int
    expires_ms: int | None = None

    def allows(self, scope: Scope, now_ms: int) -> bool:
        """Whether it may do what ``scope`` names, now."""
        return SCOPES.index(self.scope) >= SCOPES.index(scope) and not self.expired(now_ms)

    def expired(self, now_ms: int) -> bool:
        """Whether its time is over."""
        return self.expires_ms is not None and now_ms >= self.expires_ms


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal[1]
    keys: list[AccessKey]


class AccessKeys:
    """The keys of one data folder; a missing file holds none. Safe for several threads and processes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / KEYS_FILE
        self._seen: tuple[int, ...] | None = None
        self._by_hash: dict[str, AccessKey] = {}
        self._reading = threading.Lock()

    def find(self, key: str) -> AccessKey | None:
        """The key that was sent, where there is such a one. Raises :class:`ConfigError` for a damaged file."""
        with self._reading:
            stat = _identity(self._path)
            if stat != self._seen:
                self._by_hash = {one.sha256: one for one in self.listed()}
                self._seen = stat
            return self._by_hash.get(_hash(key))

    def listed(self) -> list[AccessKey]:
        """All keys, as they were added. Raises :class:`ConfigError` for a damaged file."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Kept).keys
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(
                f"the keys in {self._path} cannot be read: {error}", "Restore the file, or remove it and add keys anew."
            ) from error

    def add(self, name: str, scope: Scope, now_ms: int, expires_ms: int | None = None) -> str:
        """Make a key and return it; it is nowhere kept. Raises :class:`ConfigError` where the name is there already."""
        key = f"hothouse_{secrets.token_urlsafe(32)}"

        def added(keys: list[AccessKey]) -> list[AccessKey]:
            if any(one.name == name for one in keys):
                raise ConfigError(
                    f"there is a key named {name} already", f"Revoke it first: hothouse keys revoke {name}"
                )
            return [*keys, AccessKey(name, scope, _hash(key), now_ms, expires_ms)]

        self._change(added)
        return key

    def revoke(self, name: str) -> None:
        """Forget a key: the next request with it is refused. Raises :class:`ConfigError` where there is none."""

        def without(keys: list[AccessKey]) -> list[AccessKey]:
            left = [one for one in keys if one.name != name]
            if len(left) == len(keys):
                known = ", ".join(one.name for one in keys) or "none"
                raise ConfigError(f"there is no key named {name}; known are {known}", "See `hothouse keys list`.")
            return left

        self._change(without)

    def _change(self, change: Callable[[list[AccessKey]], Sequence[AccessKey]]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self._path.with_name(f".{KEYS_FILE}.lock")):
            written = msgspec.json.format(msgspec.json.encode(_Kept(1, list(change(self.listed())))))
            new = self._path.with_name(f".{KEYS_FILE}.new")
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(written)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Between processes, so that of two changes at once none is lost."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _identity(path: Path) -> tuple[int, ...]:
    """Differs for each file that was put in place; empty where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
