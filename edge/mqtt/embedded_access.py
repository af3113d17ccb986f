"""Step 1 of the way of a reading: the embedded broker's part of the logins of devices.

Both follow ``devices.json``: a login that is added or revoked counts at once. amqtt asks before it takes and before it
delivers each message, so a revoked device is silent also while its connection lasts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amqtt.contexts import Action
from amqtt.plugins.authentication import FileAuthPlugin

from edge.mqtt.device_logins import DeviceLogin, is_password_of
from edge.mqtt.followed_logins import FollowedLogins

__all__ = ["DevicePasswords", "DeviceRules"]

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
    """Lets a device publish and read what its login says; ``username`` may do all."""

    def __init__(self, folder: Path, username: str) -> None:
        self._logins, self._username = _Logins(folder), username

    def allow(self, name: str | None, topic: str, action: Action) -> bool:
        """Whether that may be."""
        if name == self._username:
            return True
        login = self._logins.find(name)
        return login is not None and login.may("write" if action == Action.PUBLISH else "read", topic)
