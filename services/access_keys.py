"""Keys that people and programs get by name: what each may do, until when, and nothing that a thief of the file could
use.

``keys.json`` in the data folder, or in the bucket, holds a SHA-256 of each key, never the key. That is enough for 32
random bytes, which nobody guesses. It is replaced as a whole, so whoever reads it sees all of a change or nothing; who
follows a file sees the change with the next request, who follows a bucket at its next look, ten seconds later at most
while the bucket answers.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol, get_args

import msgspec

from services.config import Settings
from services.errors import LOOK_AT_THE_DISK, AlreadyStoredError, ChangedError, ConfigError
from services.store.storage import Storage, storage_of

__all__ = ["KEYS_FILE", "SCOPES", "AccessKey", "AccessKeys", "Scope", "keys_of"]

_log = logging.getLogger(__name__)

KEYS_FILE = "keys.json"
CHANGE_TRIES = 8
Scope = Literal["read", "operate", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""From the least to the most; each may do what those before it may."""


class AccessKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A key, without the key; ``sites`` are those that it is limited to, ``None`` for all.

    A release that knows no limits refuses a file that has one: the key is not taken for one of all sites.
    """

    name: str
    scope: Scope
    sha256: str
    created_ms: int
    expires_ms: int | None = None
    sites: tuple[str, ...] | None = None

    def allows(self, scope: Scope, now_ms: int) -> bool:
        """Whether it may do what ``scope`` names, now."""
        return SCOPES.index(self.scope) >= SCOPES.index(scope) and not self.expired(now_ms)

    def expired(self, now_ms: int) -> bool:
        """Whether its time is over."""
        return self.expires_ms is not None and now_ms >= self.expires_ms


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal[1]
    keys: list[AccessKey]


class _Place(Protocol):
    """Where the keys are kept."""

    name: str
    look_s: float | None
    """How often a thread looks for changes, since no request may wait for that; ``None``: each request looks."""

    def identity(self) -> Hashable:
        """Differs for each content that was put in place. Raises ``OSError``."""

    def read(self) -> bytes:
        """Raises ``OSError``; ``FileNotFoundError`` where nothing is."""

    def change(self, changed: Callable[[], bytes]) -> None:
        """Put in place what ``changed`` makes of what is there; of two changes at once none is lost."""


class AccessKeys:
    """The keys of one data folder, or bucket; where nothing is there are none. Safe for several threads and
    processes.
    """

    def __init__(self, root: Path | Storage) -> None:
        self._place: _Place = _File(root / KEYS_FILE) if isinstance(root, Path) else _Object(root)
        self._seen: Hashable = None
        self._by_hash: dict[str, AccessKey] = {}
        self._reading = threading.Lock()

    def follow(self) -> None:
        """Read the keys; once, before the first :meth:`find`. Those in a bucket are followed by a thread from now on:
        while it is away, or what it holds is damaged, what was read last holds.

        Raises :class:`ConfigError` where they cannot be read.
        """
        self._look()
        if self._place.look_s is not None:
            threading.Thread(target=self._keep_looking, args=(self._place.look_s,), name="keys", daemon=True).start()

    def find(self, key: str) -> AccessKey | None:
        """The key that was sent, where there is such a one; waits for a file at most, never for a bucket. Raises
        :class:`ConfigError` for a damaged file.
        """
        if self._place.look_s is None:
            self._look()
        return self._by_hash.get(_hash(key))

    def _look(self) -> None:
        with self._reading, self._readable():
            identity = self._place.identity()
            if identity != self._seen:
                self._by_hash = {one.sha256: one for one in self.listed()}
                self._seen = identity

    def _keep_looking(self, look_s: float) -> None:
        said = ""
        while True:
            time.sleep(look_s)
            try:
                self._look()
            except Exception as error:  # a thread that died would take a revoked key for ever
                if str(error) != said:  # it comes again with every look
                    _log.warning("what was read last holds: %s", error)
                said = str(error)
            else:
                said = ""

    def listed(self) -> list[AccessKey]:
        """All keys, as they were added. Raises :class:`ConfigError` for a damaged file."""
        with self._readable():
            try:
                return msgspec.json.decode(self._place.read(), type=_Kept).keys
            except FileNotFoundError:
                return []

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(
                f"the keys in {self._place.name} cannot be read: {error}",
                "Restore the file, or remove it and add keys anew.",
            ) from error

    def add(
        self, name: str, scope: Scope, now_ms: int, expires_ms: int | None = None, sites: Sequence[str] | None = None
    ) -> str:
        """Make a key and return it; it is nowhere kept. Raises :class:`ConfigError` where the name is there already."""
        key = f"hothouse_{secrets.token_urlsafe(32)}"

        limit = None if sites is None else tuple(sites)

        def added(keys: list[AccessKey]) -> list[AccessKey]:
            if any(one.name == name for one in keys):
                raise ConfigError(
                    f"there is a key named {name} already", f"Revoke it first: hothouse keys revoke {name}"
                )
            return [*keys, AccessKey(name, scope, _hash(key), now_ms, expires_ms, limit)]

        self._change(added)
        return key

    def revoke(self, name: str) -> None:
        """Forget a key: who follows a file refuses the next request with it, who follows a bucket those after its next
        look. Raises :class:`ConfigError` where there is none.
        """

        def without(keys: list[AccessKey]) -> list[AccessKey]:
            left = [one for one in keys if one.name != name]
            if len(left) == len(keys):
                known = f"known are {', '.join(one.name for one in keys)}" if keys else "there are no keys"
                raise ConfigError(f"there is no key named {name}; {known}", "See `hothouse keys list`.")
            return left

        self._change(without)

    def _change(self, change: Callable[[list[AccessKey]], Sequence[AccessKey]]) -> None:
        self._place.change(lambda: msgspec.json.format(msgspec.json.encode(_Kept(1, list(change(self.listed()))))))


class _File:
    look_s: float | None = None

    def __init__(self, path: Path) -> None:
        self._path, self.name = path, str(path)

    def identity(self) -> Hashable:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size

    def read(self) -> bytes:
        return self._path.read_bytes()

    def change(self, changed: Callable[[], bytes]) -> None:
        try:
            self._replace(changed)
        except OSError as error:
            raise ConfigError(
                f"the keys in {self.name} cannot be changed: {error.strerror}",
                LOOK_AT_THE_DISK,
            ) from error

    def _replace(self, changed: Callable[[], bytes]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self._path.with_name(f".{KEYS_FILE}.lock")):
            written = changed()
            new = self._path.with_name(f".{KEYS_FILE}.new")
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(written)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)


class _Object:
    def __init__(self, storage: Storage) -> None:
        self._storage, self.name = storage, storage.address(KEYS_FILE)
        self.look_s: float | None = storage.poll_s

    def identity(self) -> Hashable:
        found = self._storage.entry(KEYS_FILE)
        return () if found is None else found.version

    def read(self) -> bytes:
        return self._storage.read(KEYS_FILE).content

    def change(self, changed: Callable[[], bytes]) -> None:
        for left in range(CHANGE_TRIES, 0, -1):
            entry = self._storage.entry(KEYS_FILE)
            try:
                written = changed()
                if entry is None:
                    self._storage.put_new(KEYS_FILE, written)
                else:
                    self._storage.swap(KEYS_FILE, written, entry.version)
            except (AlreadyStoredError, ChangedError):
                if left == 1:
                    raise
            else:
                return


def keys_of(settings: Settings) -> AccessKeys:
    """Those of a system: in its data folder, or where its storage is a bucket there, where all machines see them."""
    return AccessKeys(storage_of(settings) if settings.storage.url else settings.data_dir)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Between processes, so that of two changes at once none is lost."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
