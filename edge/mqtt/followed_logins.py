"""Step 1 of the way of a reading: the logins of devices, as they change while a broker runs."""

from __future__ import annotations

import logging
from pathlib import Path

from edge.mqtt.device_logins import DeviceLogin, DeviceLogins, LoginError

__all__ = ["FollowedLogins"]

_log = logging.getLogger(__name__)


class FollowedLogins:
    """Looks at the file; a damaged one leaves the logins as they were, and is logged once."""

    def __init__(self, folder: Path) -> None:
        self._logins = DeviceLogins(folder)
        self._seen: tuple[int, ...] | None = None

    def changed(self) -> list[DeviceLogin] | None:
        """All logins, if the file is another one than at the last call; ``None`` if it is the same."""
        try:
            found = self._logins.path.stat()
            identity: tuple[int, ...] = (found.st_ino, found.st_mtime_ns, found.st_size)
        except FileNotFoundError:
            identity = ()
        if identity == self._seen:
            return None
        self._seen = identity
        try:
            return self._logins.listed()
        except LoginError as error:
            _log.error("%s", error)
            return None
