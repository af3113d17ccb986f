"""The package of docs/decoders.md, installed as a user installs it, behind a real broker."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from paho.mqtt import client as paho

from edge.log import partition_of
from edge.log.sqlite import SqliteLog
from edge.mqtt.connection import MqttAddress, new_client, open_connection
from edge.wire.reading import Refusal
from edge.wire.samples import decode_samples
from tests.broker.conftest import ROOT, GatewayProcess, device, local_broker
from tests.ci.record import balance
from tests.gateways import GATEWAY, gateway_environment
from tests.patience import patience_s, until

pytestmark = pytest.mark.broker

BOOT = "9f3c62d1a07be845"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which pip installed the package that the page shows."""
    page = (ROOT / "docs" / "decoders.md").read_text()
    folder, target = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("installed")
    for name, language in (("pyproject.toml", "toml"), ("hothouse_plant.py", "python")):
        found = re.search(rf"^`{re.escape(name)}`:\n\n```{language}\n(.*?)^```$", page, re.S | re.M)
        assert found, f"docs/decoders.md shows no {name}"
        (folder / name).write_text(found[1])
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", target, folder], check=True)
    return target


@contextmanager
def listening(address: MqttAddress, topic: str) -> Iterator[list[tuple[str, bytes]]]:
    """What is published on a topic."""
    heard: list[tuple[str, bytes]] = []
    subscribed: list[int] = []
    client = new_client(address, f"test-listener-{secrets.token_hex(4)}", v5=address.v5)

    def on_message(_client: paho.Client, _data: object, message: Any) -> None:
        heard.append((message.topic, message.payload))

    client.on_message = on_message
    client.on_subscribe = lambda *given: subscribed.append(given[2])
    open_connection(client, address)
    try:
        until(client.is_connected)
        client.subscribe(topic, 1)
        until(lambda: subscribed)
        yield heard
    finally:
        client.disconnect()
        client.loop_stop()


def data(gateway: GatewayProcess, seqs: range) -> list[tuple[str, bytes]]:
    """A device's messages with bare numbers."""
    now_ms = time.time_ns() // 1_000_000
    topic = f"plant/{gateway.site}/z1/bench/data"
    return [(topic, msgspec.json.encode({"seq": n, "ts": now_ms, "values": [21.5, 70.0 + n]})) for n in seqs]


def test_an_installed_decoder_reads_and_answers(installed: Path, tmp_path: Path) -> None:
    """Numbers of a device that never introduced itself are refused, and it is asked to, on its own topic, a few times
    at most; once it has, every number is in the log under its metric; after a lost message it is asked again.
    """
    with local_broker(tmp_path / "broker", "mosquitto") as broker:
        (tmp_path / "gateway").mkdir()
        with GatewayProcess(broker.address, tmp_path / "gateway") as gateway, device(broker.address) as publish:
            gateway.gateway = {"decoders": ["plant"]}
            gateway.environment = {"PYTHONPATH": os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])}
            with listening(broker.address, f"plant/{gateway.site}/#") as heard:
                gateway.start()
                publish(data(gateway, range(1, 51)))
                until(lambda: gateway.status()["answered"] + gateway.status()["unanswered"] == 50)
                asks = _asks(heard, gateway.status()["answered"])
                assert asks[0] == (f"plant/{gateway.site}/z1/bench/ask", b"birth")
                assert gateway.status()["samples"] == 0
                birth = {"boot": BOOT, "metrics": ["air_temp_c", "rh_pct"]}
                publish([(f"plant/{gateway.site}/z1/bench/birth", msgspec.json.encode(birth))])
                publish(data(gateway, range(1, 21)))
                until(lambda: gateway.status()["samples"] == 20)
                publish(data(gateway, range(22, 23)))
                until(lambda: gateway.status()["answered"] + gateway.status()["unanswered"] == 51)
                assert len(_asks(heard, gateway.status()["answered"])) == gateway.status()["answered"]
            publish(gateway.messages(range(3)))  # our own format, beside it
            until(lambda: gateway.status()["samples"] == 23)
            assert gateway.stop() == 0
    log = SqliteLog(gateway.log_path)
    records = log.read(partition_of(gateway.site, 4), 0, 1000)
    log.close()
    samples = [sample for r in records if r.kind == "samples" for sample in decode_samples(r.payload)]
    with balance():
        assert [s.values for s in samples if s.boot == BOOT and s.device == "bench"] == [
            {"air_temp_c": 21.5, "rh_pct": 70.0 + n} for n in range(1, 21)
        ]
    refusals = [r for each in records if each.kind == "refused" for r in _refusals(each.payload)]
    assert len(refusals) == 51
    assert {(r.reason, r.topic) for r in refusals} == {("malformed", f"plant/{gateway.site}/z1/bench/data")}


def _asks(heard: list[tuple[str, bytes]], wanted: int) -> list[tuple[str, bytes]]:
    """The questions, once there are as many as were counted."""

    def asked() -> list[tuple[str, bytes]]:
        return [each for each in heard if each[0].endswith("/ask")]

    until(lambda: len(asked()) >= wanted)
    return asked()


def _refusals(payload: bytes) -> list[Refusal]:
    return msgspec.msgpack.decode(payload, type=list[Refusal])


def test_the_gateway_names_the_decoder_that_is_installed(installed: Path, tmp_path: Path) -> None:
    """A slip of the pen is answered with what there is."""
    settings = gateway_environment(data_dir=tmp_path, gateway={"decoders": ["plants"]})
    settings["PYTHONPATH"] = os.pathsep.join([str(installed), settings.get("PYTHONPATH", "")])
    result = subprocess.run(GATEWAY, env=settings, cwd=ROOT, capture_output=True, text=True, timeout=patience_s(60))
    assert result.returncode == 2
    assert "plant (hothouse-plant 1.0)" in result.stderr
