"""What the host gives to the builds and the containers: secrets, and how it reaches a package index."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.compose.stack import ROOT

__all__ = ["build_environment", "make_secrets", "pip_conf"]

HOST_ONLY = ("cert", "client-cert", "cache-dir", "find-links")
"""Settings of pip that name files of the host. Its certificates have to be in the base image."""


def make_secrets() -> None:
    """`make secrets`: what is there stays."""
    subprocess.run([ROOT / "deploy/secrets.sh"], check=True)


def build_environment(folder: Path) -> dict[str, str]:
    """How pip is set up here goes into builds as a secret, its folder of wheels as a context; nothing of it stays."""
    told = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    lines = told.stdout.splitlines()
    file = folder / "pip.conf"
    file.write_text(pip_conf(lines))
    environment = {"HOTHOUSE_PIP_CONF": str(file)}
    for line in lines:
        name, _, value = line.partition("=")
        wheels = Path(value.strip("'\""))
        if name.endswith(".find-links") and wheels.is_dir() and any(wheels.glob("*.whl")):
            environment["HOTHOUSE_WHEELS"] = str(wheels)
    return environment


def pip_conf(lines: list[str]) -> str:
    """A pip.conf of what `pip config list` printed; what the environment says comes last there, and wins.

    >>> print(pip_conf(["global.index-url='https://a/simple'", ":env:.timeout='9'", "global.cert='/x.pem'"]), end="")
    [global]
    index-url = https://a/simple
    timeout = 9
    """
    kept: dict[str, str] = {}
    for line in sorted(lines, key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        setting = name.rsplit(".", 1)[-1]
        if setting not in HOST_ONLY:
            kept[setting] = value.strip("'\"")
    return "[global]\n" + "".join(f"{name} = {value}\n" for name, value in kept.items())
