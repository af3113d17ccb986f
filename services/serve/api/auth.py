"""Who may ask what: the operator's key, a readers' key where one is configured, and named keys with scopes."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from services.access_keys import AccessKey, AccessKeys, Scope
from services.errors import ConfigError
from services.key_file import read_key
from services.serve.api.problems import ProblemError

__all__ = ["ALL_SITES", "OPERATOR_KEY_FILE", "READERS", "HashedKey", "Keys", "Reach"]

OPERATOR_KEY_FILE = "operator.key"
READERS = "the readers' key"


@dataclass(frozen=True, slots=True)
class Reach:
    """The sites that a request is about at most; ``None`` for all."""

    sites: frozenset[str] | None = None
    whose: str = ""

    def has(self, site: str) -> bool:
        """Whether it reaches a site."""
        return self.sites is None or site in self.sites

    def require_all(self) -> None:
        """Raises a 403 problem for a key that is limited to some sites: what was asked is about all of them."""
        if self.sites is not None:
            listed = ", ".join(sorted(self.sites))
            words = f"this is about all sites, and the key {self.whose} is limited to {listed}"
            raise ProblemError(403, words, sites=sorted(self.sites))  # by which a page tells it from a wrong key


ALL_SITES = Reach()


@dataclass(frozen=True, slots=True)
class HashedKey:
    """A key without the key: enough to know it again, where it is long and random. Replicas get no more."""

    sha256: str

    @classmethod
    def of(cls, key: str) -> HashedKey:
        """That of a key."""
        return cls(hashlib.sha256(key.encode()).hexdigest())

    def is_of(self, sent: str) -> bool:
        """Whether it is that of a key that was sent; takes constant time."""
        return hmac.compare_digest(self.of(sent).sha256, self.sha256)


class Keys:
    """Checks ``Authorization: Bearer KEY`` headers; comparisons take constant time.

    Reading is open unless there is a readers' key or ``read_needs_key`` says otherwise. ``named`` are keys that come
    and go while the system runs; ``wall_ms`` is the clock that their time is over by.
    """

    def __init__(
        self, operator: str | HashedKey, reader: str | None = None, named: AccessKeys | None = None, *,
        read_needs_key: bool = False, wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:  # fmt: skip
        self._operator = operator if isinstance(operator, HashedKey) else HashedKey.of(operator)
        self._reader = None if reader is None else HashedKey.of(reader)
        self._named = named
        self._read_needs_key = read_needs_key or reader is not None
        self._wall_ms = wall_ms

    @classmethod
    def load(
        cls, operator: HashedKey, named: AccessKeys, read_key_file: Path | None, *, read_needs_key: bool = False
    ) -> Keys:
        """With the readers' key from its file; raises as :func:`read_key` and :meth:`AccessKeys.follow`."""
        reader = None if read_key_file is None else read_key(read_key_file)
        named.follow()
        return cls(operator, reader, named, read_needs_key=read_needs_key)

    def require_reader(self, authorization: str | None) -> Reach:
        """What may be read. Raises a 401 or 403 problem unless reading is open or the header holds a key that may."""
        if not self._read_needs_key:
            return ALL_SITES
        own = (self._operator,) if self._reader is None else (self._reader, self._operator)
        return self._require(authorization, own, "read", "reading")

    def require_operator(self, authorization: str | None) -> Reach:
        """Where orders may be given. Raises a 401 problem without a key and a 403 problem for one that may not."""
        return self._require(authorization, (self._operator,), "operate", "this order")

    def reads_all(self, authorization: str | None) -> bool:
        """Whether who sends this header may read everything."""
        try:
            return self.require_reader(authorization).sites is None
        except ProblemError:
            return False

    def owner(self, authorization: str) -> str | None:
        """Whose key a header holds, in words; ``None`` where it is not one that is taken, or cannot be looked up."""
        sent = _sent(authorization)
        if sent is None:
            return None
        for key, words in ((self._operator, "the operator's key"), (self._reader, READERS)):
            if key is not None and key.is_of(sent):
                return words
        try:
            found = self._find(sent)
        except ProblemError:
            return None
        return None if found is None or found.expired(self._wall_ms()) else f"the key {found.name}"

    def _require(self, authorization: str | None, allowed: tuple[HashedKey, ...], scope: Scope, what: str) -> Reach:
        if not authorization:
            raise ProblemError(
                401, f"{what} needs a key: send the header 'Authorization: Bearer KEY'", {"WWW-Authenticate": "Bearer"}
            )
        sent = _sent(authorization)
        if sent is not None:
            matches = [key.is_of(sent) for key in allowed]
            if any(matches):
                return ALL_SITES
            found, now_ms = self._find(sent), self._wall_ms()
            if found is not None and found.expired(now_ms):
                raise ProblemError(403, f"the key {found.name} has expired")
            if found is not None and found.allows(scope, now_ms):
                return Reach(None if found.sites is None else frozenset(found.sites), found.name)
        raise ProblemError(403, f"the key that was sent does not allow {what}")

    def _find(self, sent: str) -> AccessKey | None:
        try:
            return None if self._named is None else self._named.find(sent)
        except ConfigError as error:
            raise ProblemError(503, error.message) from error


def _sent(authorization: str) -> str | None:
    """The key in a header."""
    scheme, _, given = authorization.partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None
