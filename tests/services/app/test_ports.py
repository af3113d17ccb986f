"""A port at which another program listens stops a start before Ray does, with a sentence that says what to do."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.app.whole_system import System
from services.config import load_settings
from services.errors import StartError
from services.runtime.ports import free_port, listening_ports, shared_ports
from tests.patience import patience_s

LISTEN = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))):
    print(flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which this process listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("section", "name", "advice"), [("api", "port", "--port, or api.port"), ("gateway", "metrics_port", "metrics_port")]
)
def test_a_taken_port_is_told_before_ray_starts(
    tmp_path: Path, taken: int, section: str, name: str, advice: str
) -> None:
    """With its number and its setting; neither broker nor Ray has begun to start."""
    said: list[str] = []
    settings = load_settings(data_dir=tmp_path, **{"api": {"port": 0}, section: {name: taken}})
    with (
        pytest.raises(StartError, match=f"port {taken} on 127.0.0.1 is taken") as told,
        System(settings, say=said.append),
    ):
        pass
    assert advice in told.value.hint
    assert said == []


def test_an_address_that_is_not_of_this_machine_is_not_called_taken(tmp_path: Path) -> None:
    """203.0.113.0/24 is for documentation: no machine has an address of it."""
    settings = load_settings(data_dir=tmp_path, api={"host": "203.0.113.1", "port": 8000})
    with pytest.raises(StartError, match=r"nothing can listen at 203\.0\.113\.1, port 8000: "):
        System(settings)._check_ports()


@pytest.mark.skipif(sys.platform != "linux", reason="it is found by /proc")
def test_what_a_killed_run_left_at_our_port_is_ended(tmp_path: Path) -> None:
    """Serve's HAProxy outlives its parents: its port is not another program's."""
    port, folder = free_port(), Path(tempfile.mkdtemp(prefix="hh-"))
    command = [sys.executable, "-c", LISTEN, str(port), str(folder / "haproxy.cfg")]
    (tmp_path / "runtime.json").write_text(json.dumps({"pid": 1, "folder": str(folder)}))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as left:
        assert left.stdout is not None
        assert left.stdout.readline() == b"\n"
        System(load_settings(data_dir=tmp_path, api={"port": port}))._check_ports()
        assert left.wait(patience_s(60)) != 0


def test_on_a_cluster_a_port_of_this_machine_says_nothing(tmp_path: Path, taken: int) -> None:
    """HTTP is on other nodes."""
    System(load_settings(data_dir=tmp_path, api={"port": taken}, ray={"address": "auto"}))._check_ports()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"api": {"port": 8123}, "mqtt": {"listen": "0.0.0.0", "port": 8123}}, "api.port and mqtt.port are both 8123"),
        (
            {"api": {"host": "localhost", "port": 8123}, "mqtt": {"listen": "127.0.0.1", "port": 8123}},
            "api.port and mqtt.port are both 8123",
        ),
        (
            {"mqtt": {"listen": "127.0.0.1", "port": 8123}, "gateway": {"metrics_port": 8123}},
            "mqtt.port and gateway.metrics_port are both 8123",
        ),
    ],
)
def test_one_port_in_two_settings_is_told_before_anything_starts(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    """Whichever came second would say that its port is taken, by nobody knows whom."""
    with pytest.raises(StartError, match=said):
        System(load_settings(data_dir=tmp_path, **{"api": {"port": 0}, **settings}))._check_ports()


@pytest.mark.parametrize(
    "settings",
    [
        {"api": {"port": 8123}, "mqtt": {"host": "broker", "port": 8123}},
        {"api": {"port": 8123}, "mqtt": {"port": 8123}},
        {"api": {"port": 8123}, "mqtt": {"gateway": "elsewhere", "listen": "0.0.0.0", "port": 8123}},
        {"api": {"host": "127.0.0.1", "port": 8123}, "gateway": {"metrics_host": "127.0.0.2", "metrics_port": 8123}},
    ],
    ids=["another machine's broker", "any free port", "no broker here", "another address"],
)
def test_a_port_that_is_not_listened_at_twice_may_be_named_twice(settings: dict[str, Any]) -> None:
    """A broker elsewhere has ports of its own; so has each address of this machine."""
    assert shared_ports(listening_ports(load_settings(**settings))) == []
