"""docs/sensors.md, followed word by word: its blocks are run, its readings arrive, its mistakes are told as it says."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edge.log import partition_of
from edge.log.sqlite import SqliteLog
from edge.mqtt.connection import MqttAddress, new_client, open_connection
from edge.mqtt.publish import publish_once
from edge.wire.reading import Sample
from edge.wire.samples import decode_samples
from tests.conftest import require_program
from tests.patience import patience_s, until

pytestmark = [pytest.mark.e2e, pytest.mark.broker, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sensors.md").read_text()
TOPIC = "hothouse/v1/demo/north-1/bench/sample"


def blocks(section: str, language: str) -> list[str]:
    """The blocks of one language under a heading that begins so."""
    text = re.split(rf"^## {re.escape(section)}", PAGE, flags=re.M)[1].split("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def mistakes() -> list[tuple[str, str, str]]:
    """What the table names: the mistake, what is sent, and what is told."""
    table = PAGE.split("## What goes wrong")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.*?) ?\| (.+?) \|$", table, re.M)[1:]
    return [(what, sent.strip("`"), told) for what, sent, told in rows]


class Reader:
    """A folder, an environment and a port of somebody who follows the page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"
        self.environment = {**os.environ, "PATH": path, "HOME": str(folder),
                            "HOTHOUSE_API__PORT": "0", "COLUMNS": "400",
                            "HOTHOUSE_HOME_ASSISTANT__PREFIX": "homeassistant",
                            "HOTHOUSE_STREAM__STEP_S": "10", "HOTHOUSE_STREAM__LATENESS_S": "2",
                            "HOTHOUSE_STREAM__IDLE_S": "3"}  # fmt: skip
        self.environment.pop("XDG_CONFIG_HOME", None)  # a shell of Debian has none
        configured = "".join(blocks("1. Let", "toml") + blocks("5. ESPHome", "toml"))
        (folder / "hothouse.toml").write_text(self.here(configured))

    def here(self, text: str) -> str:
        """The page's port, as it is in this test."""
        return text.replace("1883", str(self.port))

    def run(self, section: str) -> None:
        """Run the page's commands of a section."""
        for block in blocks(section, "sh"):
            done = subprocess.run(
                ["bash", "-euc", self.here(block)], cwd=self.folder, env=self.environment, capture_output=True,
                text=True, check=False, timeout=patience_s(60),
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr

    @contextmanager
    def keeps_running(self, name: str, *command: str) -> Iterator[Path]:
        """A command in another terminal, with what it prints; ended with Ctrl-C."""
        output = self.folder / f"{name}.txt"
        with output.open("wb") as file:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=file, stderr=file, start_new_session=True
            )
            try:
                yield output
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(patience_s(60))

    def samples(self) -> list[Sample]:
        """What is in the log."""
        log = SqliteLog(self.folder / "hothouse-data" / "log.sqlite")
        records = log.read(partition_of("demo", 4), 0, 100_000)
        log.close()
        return [sample for record in records if record.kind == "samples" for sample in decode_samples(record.payload)]

    def values(self, device: str) -> list[dict[str, float]]:
        """What one device said."""
        return [sample.values for sample in self.samples() if sample.device == device]

    def await_announced(self, zone: str) -> None:
        """Wait until Home Assistant finds the zone with its login."""
        found: list[str] = []
        client = new_client(self.login("home-assistant"), "test-home-assistant", v5=False)
        client.on_connect = lambda client, *_: client.subscribe("homeassistant/#", qos=1)
        client.on_message = lambda _client, _data, message: found.append(json.loads(message.payload)["device"]["name"])
        try:
            open_connection(client, self.login("home-assistant"))
            until(lambda: zone in found, "Home Assistant finds the zone", 120)
        finally:
            client.disconnect()
            client.loop_stop()

    def login(self, name: str) -> MqttAddress:
        """A device's own, from its password file."""
        password = (self.folder / f"{name}.password").read_text().strip()
        return MqttAddress(port=self.port, username=name, password=password, v5=False)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.thorough
def test_the_page_is_followed_word_by_word(tmp_path: Path) -> None:
    """Each reading that the page sends arrives, and each mistake that it names is told in its sentence, in the terminal
    of `hothouse up` and by `hothouse doctor --watch`.
    """
    require_program("mosquitto")
    require_program("mosquitto_pub")
    reader = Reader(tmp_path)
    (start,) = blocks("1. Let", "sh")
    with reader.keeps_running("up", "bash", "-c", f"exec {start.strip()}") as up:
        until(lambda: "devices publish to MQTT at" in up.read_text(), "it is up", 300)
        with reader.keeps_running("watch", "hothouse", "doctor", "--watch") as watch:
            until(lambda: "watching" in watch.read_text())
            reader.run("2. A login")
            assert (tmp_path / "bench.password").stat().st_mode & 0o777 == 0o600
            until(lambda: "bench" in (tmp_path / "hothouse-data/broker/mosquitto.users").read_text())
            reader.run("3. A first reading")
            until(lambda: reader.values("bench") == [{"air_temp_c": 21.4, "rh_pct": 71.0}], "the first reading")

            (program,) = blocks("4. A device", "python")
            assert len([line for line in program.splitlines() if line]) <= 18
            (tmp_path / "device.py").write_text(program)
            with reader.keeps_running("device", sys.executable, "device.py", "127.0.0.1", str(reader.port), "1"):
                until(lambda: len(reader.values("bench")) > 2, "the device's readings")
                reader.run("Home Assistant on")
                until(lambda: "home-assistant:" in (tmp_path / "hothouse-data/broker/mosquitto.users").read_text())
                publish(reader, "home-assistant", "homeassistant/status", b"online")
                reader.await_announced("north-1")

            (node,) = blocks("5. ESPHome", "yaml")
            assert "discovery: false" in node, "it else publishes on topics that its login does not have"
            reader.run("5. ESPHome")
            reader.run("6. Zigbee2MQTT")
            until(lambda: "zigbee:" in (tmp_path / "hothouse-data/broker/mosquitto.users").read_text())
            publish(reader, "stove", "esphome/demo/north-1/stove/sensor/air_temp_c/state", b"21.4")
            until(lambda: reader.values("stove") == [{"air_temp_c": 21.4}], "ESPHome's reading")
            seen = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime())}+00:00"
            document = {"temperature": 20.5, "humidity": 64, "battery": 90, "last_seen": seen}
            publish(reader, "zigbee", "zigbee2mqtt/demo/north-1/leaf", json.dumps(document).encode())
            until(lambda: reader.values("leaf") == [{"air_temp_c": 20.5, "rh_pct": 64.0}], "Zigbee2MQTT's reading")

            make_mistakes(reader)
            for what, _, told in mistakes():
                for terminal in (up, watch):
                    until(lambda: told in terminal.read_text(), f"{what}: {told!r} in {terminal.name}", 120)  # noqa: B023
            lines = [line for line in up.read_text().splitlines() if "What to do: " in line]
            assert len(lines) >= len(mistakes()) - 2
            assert any("device bench on topic hothouse/v1/demo/north-1/bench/sample: " in line for line in lines)
            password = (tmp_path / "bench.password").read_text().strip()
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name not in ("bench.password", "mosquitto_pub"):
            assert password.encode() not in path.read_bytes(), path


def publish(reader: Reader, device: str, topic: str, payload: bytes) -> None:
    """As a device does; until the broker knows its login."""

    def sent() -> bool:
        try:
            publish_once(reader.login(device), device, topic, payload, wait_s=5.0)
        except OSError:
            return False
        return True

    until(sent)


def make_mistakes(reader: Reader) -> None:
    """All of the page's table. Each on a topic of its own device, for the same of one device is told once a minute."""
    day_ms = 86_400_000
    times: dict[str, Any] = {
        "NOW": now_ms(), "SECONDS": now_ms() // 1000, "AHEAD": now_ms() + day_ms, "BEHIND": now_ms() - day_ms,
    }  # fmt: skip
    for _, sent, _ in mistakes():
        if not sent:
            continue
        for name, value in times.items():
            sent = re.sub(rf"\b{name}\b", str(value), sent)
        publish(reader, "bench", TOPIC, sent.replace("BOOT", "9f3c62d1a07be845").encode())
    command = ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(reader.port), "-t", TOPIC, "-m", "{}", "-q", "1"]
    wrong = reader.folder / "wrong"
    wrong.mkdir()
    (wrong / "mosquitto_pub").write_text("-u bench\n-P wrong\n")
    subprocess.run(command, env={**reader.environment, "XDG_CONFIG_HOME": str(wrong)}, check=False, timeout=60)
    boards = [new_client(reader.login("bench"), "ESP8266Client", v5=False) for _ in range(6)]
    for board in boards:
        open_connection(board, reader.login("bench"))
        until(board.is_connected)
    for board in boards:
        board.disconnect()
        board.loop_stop()
    command[6] = "hothouse/v1/demo/north-1/other/sample"
    subprocess.run(command, env=reader.environment, check=False, timeout=60)
