"""Step 1 of the way of a reading: Mosquitto as the local broker, configured by us and watched by a process of ours."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from edge.mqtt.secret_file import write_secret
from edge.parent_watch import when_stdin_ends

__all__ = ["is_installed", "run"]

_PR_SET_PDEATHSIG = 1
_SBIN = "/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"


def is_installed() -> bool:
    """Whether Mosquitto can be started here."""
    return all(_program(name) for name in ("mosquitto", "mosquitto_passwd"))


def run(folder: Path, host: str, port: int, username: str, password: str, stop_with_stdin: bool) -> int:
    """Run Mosquitto until it ends or we are told to; returns its exit code. Sessions and queues stay in ``folder``."""
    configuration = _configure(folder, host, port, username, password)
    libc = ctypes.CDLL(None)

    def die_with_us() -> None:
        if sys.platform == "linux":
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    stopping, process = False, None

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        if process is not None:
            process.terminate()

    # Before it starts: killed by a signal that we do not handle yet, we would take it with us, unsaved queues and all.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    command = [_program("mosquitto") or "mosquitto", "-c", str(configuration)]
    # No other thread runs yet, so the function between fork and exec is safe.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_us)
    if stopping:
        process.terminate()
    if stop_with_stdin:
        when_stdin_ends(process.terminate)
    return process.wait()


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_SBIN)


def _configure(folder: Path, host: str, port: int, username: str, password: str) -> Path:
    """Write the configuration and the hashed password file; returns the former."""
    users = folder / "mosquitto.users"
    write_secret(users, f"{username}:{password}\n")
    subprocess.run([_program("mosquitto_passwd") or "mosquitto_passwd", "-U", str(users)], check=True)
    data = folder / "mosquitto"
    data.mkdir(mode=0o700, exist_ok=True)
    lines = [
        f"listener {port} {host}",
        "allow_anonymous false",
        f"password_file {users}",
        "persistence true",
        f"persistence_location {data}/",
        "autosave_interval 1",
        # Nothing that waits for the gateway is dropped; 0 means no limit.
        "max_queued_messages 0",
        "max_inflight_messages 0",
        "log_type error",
        "log_type warning",
        "log_type notice",
    ]
    if os.getuid() == 0:
        lines.append("user root")  # Mosquitto would else become a user who may not read the folder
    configuration = folder / "mosquitto.conf"
    configuration.write_text("\n".join(lines) + "\n")
    return configuration
