"""The broker knows which gateways are there, and splits the messages among those that share them."""

from __future__ import annotations

import secrets
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from edge.mqtt.connection import MqttAddress, new_client, open_connection
from tests.broker.conftest import GatewayProcess, device, local_broker, until
from tests.patience import patience_s

pytestmark = pytest.mark.broker


def test_presence_follows_the_gateway(gateway: GatewayProcess) -> None:
    """Retained: online while it is connected, offline after it left, and after it was killed."""
    seen: list[bytes] = []
    client = new_client(gateway.address, f"test-watch-{secrets.token_hex(4)}", v5=gateway.address.v5)
    client.on_message = lambda _client, _data, message: seen.append(message.payload)
    open_connection(client, gateway.address)
    until(client.is_connected)
    client.subscribe(f"hothouse/presence/{gateway.client_id}", qos=1)
    for number in (signal.SIGTERM, signal.SIGKILL):
        gateway.start()
        until(lambda: seen and seen[-1] == b'{"online":true}')
        gateway.stop(number)
        until(lambda: seen[-1] == b'{"online":false}')
    client.publish(f"hothouse/presence/{gateway.client_id}", b"", qos=1, retain=True).wait_for_publish(patience_s(60))
    client.disconnect()
    client.loop_stop()


def test_gateways_that_share_split_the_messages(tmp_path: Path) -> None:
    """Two gateways with one share name take every message once between them, each of them some."""
    with local_broker(tmp_path / "broker", "mosquitto") as broker, ExitStack() as stack:
        gateways = [stack.enter_context(_gateway(broker.address, tmp_path / name)) for name in ("one", "two")]
        for gateway in gateways:
            gateway.mqtt = {"share": "house"}
            gateway.start()
        with device(broker.address) as publish:
            publish(gateways[0].messages(range(400)))
        gateways[1].site = gateways[0].site
        until(lambda: sum(len(gateway.seqs()) for gateway in gateways) >= 400)
        parts = [gateway.seqs() for gateway in gateways]
        assert sorted(parts[0] + parts[1]) == list(range(400))
        assert all(parts)


def test_gateways_with_one_client_id_ask_for_each_other(tmp_path: Path) -> None:
    """They end each other's connection for ever; both say why that may be, and what to set."""
    with local_broker(tmp_path / "broker", "mosquitto") as broker, ExitStack() as stack:
        gateways = [stack.enter_context(_gateway(broker.address, tmp_path / name)) for name in ("one", "two")]
        for gateway in gateways:
            gateway.client_id = gateways[0].client_id
            gateway.start()
        asked = f"is there another gateway with the client id {gateways[0].client_id} (mqtt.client_id)?"
        for gateway in gateways:
            until(lambda: asked in gateway.status().get("last_error", ""))  # noqa: B023


def test_a_topic_that_begins_wrongly_reaches_the_gateway(tmp_path: Path) -> None:
    """A slash before the topic, or a capital letter: it is counted, and nothing comes twice."""
    with (
        local_broker(tmp_path / "broker", "mosquitto") as broker,
        _gateway(broker.address, tmp_path / "one") as gateway,
    ):
        gateway.gateway = {"decoders": ["esphome"]}
        gateway.start()
        with device(broker.address) as publish:
            publish((f"{begins}/v1/demo/z1/d/sample", b"{}") for begins in ("/hothouse", "Hothouse", "HOTHOUSE"))
            publish([("/esphome/demo/z1/d/sensor/rh_pct/state", b"71")])
            publish(gateway.messages(range(1)))
        until(lambda: gateway.status()["messages"] >= 5)
        status = gateway.status()
        assert (status["messages"], status["other_topics"], status["samples"]) == (5, 4, 1)


def _gateway(address: MqttAddress, folder: Path) -> GatewayProcess:
    folder.mkdir()
    return GatewayProcess(address, folder)
