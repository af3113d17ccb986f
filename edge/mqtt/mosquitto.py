"""Step 1 of the way of a reading: Mosquitto as the local broker, configured by us and watched by a process of ours."""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from edge.mqtt.broker_log import LOG, shorten
from edge.mqtt.connection import MAX_PACKET_BYTES
from edge.mqtt.device_logins import DeviceLogin, is_topic_filter
from edge.mqtt.followed_logins import FollowedLogins
from edge.parent_watch import when_stdin_ends
from edge.secret_file import write_secret

__all__ = ["is_installed", "run", "write_logins"]

_log = logging.getLogger(__name__)
_PR_SET_PDEATHSIG = 1
_USERS, _RULES = "mosquitto.users", "mosquitto.rules"
FOLLOW_S = 0.5
"""How often the logins of devices are looked at."""
_SBIN = "/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"


def is_installed() -> bool:
    """Whether Mosquitto can be started here."""
    return all(_program(name) for name in ("mosquitto", "mosquitto_passwd"))


def run(folder: Path, host: str, port: int, username: str, password: str, stop_with_stdin: bool) -> int:
    """Run Mosquitto until it ends or we are told to; returns its exit code. Sessions and queues stay in ``folder``."""
    configuration = _configure(folder, host, port, username, password)
    logins = FollowedLogins(folder)
    own = (folder / _USERS).read_text()
    write_logins(folder, own, username, logins.changed() or [])
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
    following = (process, logins, folder, own, username)
    threading.Thread(target=_follow, args=following, name="logins-and-log", daemon=True).start()
    if stop_with_stdin:
        when_stdin_ends(process.terminate)
    return process.wait()


def _follow(mosquitto: subprocess.Popen[bytes], logins: FollowedLogins, folder: Path, own: str, username: str) -> None:
    """While Mosquitto runs, give it the logins that change, and keep its log short."""
    waiting: list[DeviceLogin] | None = None  # not written yet: they are told as changed once only
    told = ""
    while mosquitto.poll() is None:
        try:
            changed = logins.changed()
            waiting = waiting if changed is None else changed
            if waiting is not None:
                write_logins(folder, own, username, waiting)
                mosquitto.send_signal(signal.SIGHUP)  # it reads both files again, and ends who is no longer there
                waiting, told = None, ""
        except OSError as error:
            if str(error) != told:
                _log.error("a change of the devices' logins does not count yet: %s; trying again", error)
            told = str(error)
        shorten(folder / LOG)
        time.sleep(FOLLOW_S)


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_SBIN)


def write_logins(folder: Path, own: str, username: str, logins: Sequence[DeviceLogin]) -> None:
    """Write who may log in, and what each may do: ``own`` is the line of ``username``, who may do all."""
    write_secret(folder / _USERS, own + "".join(f"{one.name}:{one.hash}\n" for one in logins))
    rules = [f"user {username}", "topic readwrite #"]
    for one in logins:
        rules.append(f"user {one.name}")
        for topic in dict.fromkeys((*one.writes, *one.reads)):
            if is_topic_filter(topic):
                rules.append(f"topic {'read' * (topic in one.reads)}{'write' * (topic in one.writes)} {topic}")
            else:  # an earlier release kept it: at one such line Mosquitto has no rules, and everybody may do all
                _log.error("%r of the device %s is no topic filter: revoke the device and add it anew", topic, one.name)
    write_secret(folder / _RULES, "\n".join(rules) + "\n")


def _configure(folder: Path, host: str, port: int, username: str, password: str) -> Path:
    """Write the configuration and the hashed password file; returns the former."""
    users, rules = folder / _USERS, folder / _RULES
    write_secret(users, f"{username}:{password}\n")
    subprocess.run([_program("mosquitto_passwd") or "mosquitto_passwd", "-U", str(users)], check=True)
    data = folder / "mosquitto"
    data.mkdir(mode=0o700, exist_ok=True)
    lines = [
        f"listener {port} {host}",
        "allow_anonymous false",
        f"password_file {users}",
        f"acl_file {rules}",
        "persistence true",
        f"persistence_location {data}/",
        "autosave_interval 1",
        # Nothing that waits for the gateway is dropped; 0 means no limit.
        "max_queued_messages 0",
        "max_inflight_messages 0",
        f"max_packet_size {MAX_PACKET_BYTES}",
        "log_type error",
        "log_type warning",
        "log_type notice",
    ]
    if os.getuid() == 0:
        lines.append("user root")  # Mosquitto would else become a user who may not read the folder
    configuration = folder / "mosquitto.conf"
    configuration.write_text("\n".join(lines) + "\n")
    return configuration
