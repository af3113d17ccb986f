"""Step 1 of the way of a reading: who may log in at the local broker besides Hothouse, and what each may do there.

``devices.json`` in the broker's folder holds a hash of each password, never the password. The broker's process follows
the file, so that a login that is added or revoked counts within a second or two, without a restart.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from edge.wire.topic import NAME_RULE, SITE_ZONE, is_name

__all__ = [
    "DEVICES_FILE", "DeviceLogin", "DeviceLogins", "LoginError", "is_password_of", "is_topic_filter", "sample_filter",
]  # fmt: skip

DEVICES_FILE = "devices.json"
_ITERATIONS = 1000
"""Enough: passwords are 24 random bytes, which nobody guesses. A broker checks one at each connection."""
_RESERVED = ("hothouse",)


class LoginError(ValueError):
    """A login that cannot be made or is not there; ``hint`` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class DeviceLogin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A login, without its password. ``writes`` and ``reads`` are topic filters."""

    name: str
    hash: str
    created_ms: int
    writes: tuple[str, ...]
    reads: tuple[str, ...] = ()

    def may(self, action: Literal["read", "write"], topic: str) -> bool:
        """Whether it may publish on a topic, or read a topic or topic filter.

        >>> DeviceLogin("bench", "", 0, ("hothouse/v1/+/+/bench/sample",)).may("write", "hothouse/v1/s/z/bench/sample")
        True
        """
        return any(_covers(filter_, topic) for filter_ in (self.writes if action == "write" else self.reads))


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal[1]
    devices: list[DeviceLogin]


class DeviceLogins:
    """The logins of one broker's folder; a missing file holds none. Safe for several processes."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / DEVICES_FILE

    def listed(self) -> list[DeviceLogin]:
        """All logins, as they were added. Raises :class:`LoginError` for a damaged file."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_Kept).devices
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError) as error:
            raise LoginError(
                f"the logins in {self.path} cannot be read: {error}",
                "Restore the file, or remove it and add them anew.",
            ) from error

    def add(self, name: str, now_ms: int, writes: Sequence[str], reads: Sequence[str] = ()) -> str:
        """Make a login and return its password, which is nowhere kept. Raises :class:`LoginError`."""
        if not is_name(name) or name in _RESERVED:
            raise LoginError(
                f"{name!r} cannot be a device's name", f"Name it otherwise, and not hothouse: {NAME_RULE}."
            )
        for topic in (*writes, *reads):
            if not is_topic_filter(topic):
                raise LoginError(
                    f"{topic!r} is no topic that a login can name",
                    "Write no space; + stands alone between slashes, # alone at the end: esphome/+/state, plant/#.",
                )
        password = secrets.token_urlsafe(24)

        def added(logins: list[DeviceLogin]) -> list[DeviceLogin]:
            if any(one.name == name for one in logins):
                raise LoginError(
                    f"there is a device named {name} already", f"Revoke it first: hothouse devices revoke {name}"
                )
            return [*logins, DeviceLogin(name, _hashed(password), now_ms, tuple(writes), tuple(reads))]

        self._change(added)
        return password

    def revoke(self, name: str) -> None:
        """Forget a login. Raises :class:`LoginError` where there is none."""

        def without(logins: list[DeviceLogin]) -> list[DeviceLogin]:
            left = [one for one in logins if one.name != name]
            if len(left) == len(logins):
                known = ", ".join(one.name for one in logins) or "none"
                raise LoginError(f"there is no device named {name}; known are {known}", "See `hothouse devices list`.")
            return left

        self._change(without)

    def _change(self, change: Callable[[list[DeviceLogin]], list[DeviceLogin]]) -> None:
        try:
            self._replace(change)
        except OSError as error:
            raise LoginError(
                f"the logins in {self.path} cannot be changed: {error.strerror}",
                "Look whether its disk has room, and whether you may write there.",
            ) from error

    def _replace(self, change: Callable[[list[DeviceLogin]], list[DeviceLogin]]) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self.path.with_name(f".{DEVICES_FILE}.lock")
        with os.fdopen(os.open(lock, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            text = msgspec.json.format(msgspec.json.encode(_Kept(1, change(self.listed()))))
            new = self.path.with_name(f".{DEVICES_FILE}.new")
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)


def sample_filter(name: str, zone: str = "") -> str:
    """Where a device named ``name`` may publish samples: in ``SITE/ZONE``, or in any zone. Raises :class:`LoginError`.

    >>> sample_filter("bench", "demo/north-1"), sample_filter("bench")
    ('hothouse/v1/demo/north-1/bench/sample', 'hothouse/v1/+/+/bench/sample')
    """
    if not zone:
        return f"hothouse/v1/+/+/{name}/sample"
    site, slash, of = zone.partition("/")
    if not slash or not is_name(site) or not (is_name(of) or of == SITE_ZONE):
        raise LoginError(f"{zone!r} does not name a site and a zone", f"Write it as demo/north-1: {NAME_RULE}.")
    return f"hothouse/v1/{site}/{of}/{name}/sample"


def is_topic_filter(text: str) -> bool:
    """Whether brokers take it as a topic filter, in one word of a line.

    >>> [is_topic_filter(each) for each in ("esphome/+/#", "esphome/de+mo", "esphome/x#", "a b")]
    [True, False, False, False]
    """
    levels = text.split("/")
    plain = all(len(level) < 2 or not {"+", "#"} & set(level) for level in levels) and "#" not in levels[:-1]
    return plain and text != "" and text.isprintable() and " " not in text


def is_password_of(login: DeviceLogin, password: str) -> bool:
    """Whether a device sent the right one."""
    try:
        _, _, iterations, salt, wanted = login.hash.split("$")
        found = _digest(password, base64.b64decode(salt), int(iterations))
        return hmac.compare_digest(found, base64.b64decode(wanted))
    except ValueError:
        return False


def _hashed(password: str) -> str:
    """As ``mosquitto_passwd`` of Mosquitto 2 writes it: PBKDF2 with SHA-512."""
    salt = secrets.token_bytes(12)
    digest = _digest(password, salt, _ITERATIONS)
    return f"$7${_ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def _digest(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations)


def _covers(allowed: str, asked: str) -> bool:
    """Whether every topic of the filter ``asked`` is one of the filter ``allowed``.

    >>> _covers("a/+/c", "a/b/c"), _covers("a/#", "a/b/#"), _covers("a/+", "a/#"), _covers("a/b", "a/+")
    (True, True, False, False)
    """
    parts, wanted = allowed.split("/"), asked.split("/")
    for at, part in enumerate(parts):
        if part == "#":
            return True
        if at >= len(wanted) or wanted[at] == "#" or (part != "+" and part != wanted[at]):
            return False
    return len(parts) == len(wanted)
