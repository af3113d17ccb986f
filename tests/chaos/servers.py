"""Real servers of an experiment's own, which may be killed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.conftest import require_env

__all__ = ["Servers"]

_ANSWER_S = 120


class Servers:
    """Servers in ``folder``, started by the script that ``HOTHOUSE_SERVERS`` names; they keep ports and data.

    ``environment`` holds what the script said about them: ``HOTHOUSE_TEST_KAFKA``, ``HOTHOUSE_TEST_INFLUXDB_URL`` ...
    """

    def __init__(self, folder: Path, *names: str) -> None:
        self._script = [require_env("HOTHOUSE_SERVERS"), "--dir", str(folder)]
        said = self._do("start", *names)
        self.environment = dict(re.findall(r"(HOTHOUSE_TEST_\w+)=(\S+)", said))

    @property
    def kafka(self) -> str:
        """The bootstrap server."""
        return self.environment["HOTHOUSE_TEST_KAFKA"]

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._do("kill", name)

    def start(self, name: str) -> None:
        """Start one again; returns when it listens."""
        try:
            self._do("start", name)
        except subprocess.CalledProcessError:  # on a busy machine the script loses patience before the server is up
            self._do("start", name)

    def clean(self) -> None:
        """Stop all and delete their data."""
        self._do("clean")

    def _do(self, command: str, *names: str) -> str:
        script, *options = self._script
        return subprocess.run(
            [script, command, *options, *names], check=True, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=_ANSWER_S,
        ).stdout  # fmt: skip
