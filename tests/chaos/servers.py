"""Real servers of an experiment's own, which may be killed."""

from __future__ import annotations

import re
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.conftest import require_env
from tests.patience import patience_s, until

__all__ = ["Servers"]

_ANSWER_S = 120


class Servers:
    """Servers in ``folder``, started by the script that ``HOTHOUSE_SERVERS`` names; they keep ports and data.

    ``environment`` holds what the script said about them: ``HOTHOUSE_TEST_KAFKA``, ``HOTHOUSE_TEST_INFLUXDB_URL`` ...
    """

    def __init__(self, folder: Path, *names: str) -> None:
        self._script = [require_env("HOTHOUSE_SERVERS"), "--dir", str(folder)]
        self.environment: dict[str, str] = {}
        try:
            self.start(*names)
        except BaseException:
            with suppress(subprocess.SubprocessError):  # what went wrong first is what is to be said
                self.clean()
            raise

    @property
    def kafka(self) -> str:
        """The bootstrap server."""
        return self.environment["HOTHOUSE_TEST_KAFKA"]

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._do("kill", name)

    def start(self, *names: str) -> None:
        """Start some, also again; returns when they listen."""
        try:
            said = self._do("start", *names)
        except subprocess.CalledProcessError:  # on a busy machine the script loses patience before a server is up
            for name in names:
                if name != "kafka":  # it goes on starting; the others are not only started but also set up
                    self._do("kill", name)
            said = self._do("start", *names)
        self.environment |= dict(re.findall(r"(HOTHOUSE_TEST_\w+)=(\S+)", said))
        if "kafka" in names:
            until(lambda: _listens(self.kafka), "Kafka listens", 120)

    def clean(self) -> None:
        """Stop all and delete their data."""
        self._do("clean")

    def _do(self, command: str, *names: str) -> str:
        script, *options = self._script
        return subprocess.run(
            [script, command, *options, *names], check=True, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=patience_s(_ANSWER_S),
        ).stdout  # fmt: skip


def _listens(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=30):
        return True
    return False
