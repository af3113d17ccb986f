"""Step 1 of the way of a reading: the embedded broker's part of the logins of devices.

Both follow ``devices.json``: a login that is added or revoked counts at once. amqtt asks before it takes and before it
delivers each message, so a revoked device is silent also while its connection lasts.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amqtt.contexts import Action
from amqtt.plugins.authentication import FileAuthPlugin

from edge.mqtt.device_logins import DeviceLogin, is_password_of
from edge.mqtt.followed_logins import FollowedLogins

__all__ = ["DevicePasswords", "DeviceRules"]

TOLD_AGAIN_S = 60.0
"""Seconds in which a topic that a device may not publish on is logged once."""
_MOST_TOLD = 1000
_logger = logging.getLogger(__name__)

OURS = "hothouse"
"""The client ids of Hothouse's own parts begin so."""


class _Logins:
    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._followed = FollowedLogins(Path(folder))
        self._by_name: dict[str, DeviceLogin] = {}

    def find(self, name: str | None) -> DeviceLogin | None:
        changed = self._followed.changed()
        if changed is not None:
            self._by_name = {one.name: one for one in changed}
        return self._by_name.get(name or "")


class DevicePasswords(FileAuthPlugin):  # type: ignore[misc]
    """Logs devices in by their hashes, and everybody else by the file of users."""

    @dataclass
    class Config(FileAuthPlugin.Config):  # type: ignore[misc]
        """``folder`` has the logins of devices."""

        folder: str = ""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._logins = _Logins(self.config.folder)

    async def authenticate(self, *, session: Any) -> bool | None:
        """Whether name and password belong together."""
        login = self._logins.find(session.username)
        if login is None:
            known: bool | None = await super().authenticate(session=session)
        else:
            # amqtt asks nobody about a will, and hands a session over to whoever has its client id.
            may_leave = not session.will_flag or login.may("write", session.will_topic or "")
            is_ours = (session.client_id or "").startswith(OURS)
            known = may_leave and not is_ours and is_password_of(login, session.password or "")
        if not known:
            address = getattr(session, "remote_address", None) or "?"
            self.context.logger.warning(
                f"client {session.client_id} of {address} with the name {session.username!r}: not authorised"
            )
        return bool(known)


class DeviceRules:
    """Lets a device publish and read what its login says; ``username`` may do all. The log names what is dropped
    because it may not be published: the device is told nothing.
    """

    def __init__(self, folder: Path, username: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._logins, self._username, self._clock_s = _Logins(folder), username, clock_s
        self._told_s: dict[tuple[str | None, str], float] = {}

    def allow(self, name: str | None, topic: str, action: Action) -> bool:
        """Whether that may be."""
        if name == self._username:
            return True
        login = self._logins.find(name)
        publishes = action == Action.PUBLISH
        may = login is not None and login.may("write" if publishes else "read", topic)
        if publishes and not may:
            self._tell(name, topic)
        return may

    def _tell(self, name: str | None, topic: str) -> None:
        key, now_s = (name, topic[:256]), self._clock_s()
        if now_s - self._told_s.get(key, -TOLD_AGAIN_S) < TOLD_AGAIN_S:
            return
        if len(self._told_s) >= _MOST_TOLD:  # somebody makes topics up
            self._told_s.clear()
        self._told_s[key] = now_s
        _logger.warning("the device %r may not publish on %r", *key)
