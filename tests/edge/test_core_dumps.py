"""A program that crashes leaves no dump of its memory, in which its secrets would be."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edge.mqtt.connection import MqttAddress
from tests.gateways import GATEWAY, broker_settings, gateway_environment
from tests.patience import patience_s, until

ROOT = Path(__file__).parents[2]
SECRET = "correct-horse-battery"
PATTERN = Path("/proc/sys/kernel/core_pattern")


def wants_dumps() -> None:
    """In the child, before it becomes the program: dumps as large as they may be."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))


def core_limit(pid: int) -> str:
    """The soft limit of a process's dumps, in bytes or as ``unlimited``."""
    (line,) = [one for one in Path(f"/proc/{pid}/limits").read_text().splitlines() if one.startswith("Max core file")]
    return line.split()[4]


def crashed(process: subprocess.Popen[bytes]) -> None:
    """It gets the signal of a bad address, and ends by it."""
    process.send_signal(signal.SIGSEGV)
    assert process.wait(patience_s(60)) == -signal.SIGSEGV


@pytest.mark.skipif(not PATTERN.exists(), reason="dumps are looked at as Linux makes them")
def test_a_gateway_that_crashes_leaves_no_dump(tmp_path: Path) -> None:
    """The same signal makes a program without this leave its memory, with the secret in it, where dumps are files."""
    (tmp_path / "password").write_text(SECRET)
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    address = MqttAddress(port=1, username="gateway", password=SECRET)
    settings = gateway_environment(
        data_dir=tmp_path, mqtt=broker_settings(address, password_file=tmp_path / "password"),
        gateway={"status_file": tmp_path / "status.json"},
    )  # fmt: skip
    environment = {**settings, "PYTHONPATH": str(ROOT)}
    gateway = subprocess.Popen(GATEWAY, cwd=dumps, env=environment, preexec_fn=wants_dumps, stderr=subprocess.DEVNULL)
    until((tmp_path / "status.json").exists)
    assert core_limit(gateway.pid) in ("0", "1")
    crashed(gateway)
    assert list(dumps.iterdir()) == []

    code = f"import sys; kept = {SECRET!r}[::-1]; print(flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", code], cwd=dumps, preexec_fn=wants_dumps, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    other.stdout.readline()
    limit = core_limit(other.pid)
    crashed(other)
    if PATTERN.read_text().strip() == "core" and limit == "unlimited":
        (dump,) = dumps.iterdir()
        assert SECRET[::-1].encode() in dump.read_bytes()


@pytest.mark.skipif(not PATTERN.exists(), reason="limits are looked at as Linux shows them")
def test_a_command_and_what_it_starts_leave_none(tmp_path: Path) -> None:
    """So `hothouse up` and all that it starts: the limit is inherited, and nobody without rights can raise it."""
    code = (
        "import resource, subprocess, sys; from services.cli import main; sys.argv = ['hothouse', '--version']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "subprocess.run([sys.executable, '-c', 'import resource; print(resource.getrlimit(resource.RLIMIT_CORE))'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, preexec_fn=wants_dumps, capture_output=True, text=True,
        timeout=patience_s(60), check=True, env={**os.environ, "HOTHOUSE_DATA_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] in ("(1, 1)", "(0, 0)")
