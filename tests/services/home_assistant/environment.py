"""The environment with Home Assistant's package, which is its own: ``make home-assistant`` makes it.

Home Assistant pins a hundred packages and a Python: releases that know device discovery (2024.12 and later) need 3.12,
those of 2025 need 3.13. So it cannot share ours. ``python -m tests.services.home_assistant.environment`` makes it, and
says in one sentence why if it cannot.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["PYTHON", "VERSION", "make", "why_not"]

VERSION = "2025.4.4"
"""The newest release for every Python 3.13; later ones want 3.13.2."""
PACKAGES = (f"homeassistant=={VERSION}", "paho-mqtt==2.1.0")
"""The second is what its MQTT integration's manifest asks for."""
FOLDER = Path(__file__).parents[3] / ".venv" / "home-assistant"
PYTHON = FOLDER / "bin" / "python"
_STAMP = FOLDER / ".made"
_REASON = FOLDER.with_suffix(".reason")


def why_not() -> str:
    """Why the environment cannot be used, in one sentence; empty if it can."""
    if _STAMP.exists() and _STAMP.read_text() == "\n".join(PACKAGES):
        return ""
    if _REASON.exists():
        return _REASON.read_text()
    return f"there is no environment with Home Assistant {VERSION}: `make home-assistant` makes one"


def make() -> str:
    """Make it where it is not there yet; the reason, in one sentence, where that is not possible."""
    if not why_not():
        return ""
    base = _python()
    if base is None:
        return f"Home Assistant {VERSION} needs Python 3.13, and there is none on PATH nor of pyenv"
    shutil.rmtree(FOLDER, ignore_errors=True)
    log = FOLDER.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        for command in (
            [base, "-m", "venv", str(FOLDER)],
            [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--no-compile", *PACKAGES],
        ):
            if subprocess.run(command, stdout=output, stderr=output, check=False).returncode:
                return f"Home Assistant {VERSION} cannot be installed; {log} says why"
    _STAMP.write_text("\n".join(PACKAGES))
    return ""


def _python() -> str | None:
    """A Python 3.13, of PATH or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    names = [shutil.which("python3.13"), *sorted(map(str, pyenv.glob("3.13*/bin/python")), reverse=True)]
    for name in filter(None, names):
        asked = subprocess.run(
            [name, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, check=False
        )
        if asked.stdout.strip() == b"(3, 13)":  # pyenv's own python3.13 may only say that it is not chosen
            return name
    return None


if __name__ == "__main__":
    _REASON.unlink(missing_ok=True)
    reason = make()
    if reason:
        _REASON.write_text(reason)
    sys.stdout.write(f"{reason or f'Home Assistant {VERSION} is in {FOLDER}'}\n")
