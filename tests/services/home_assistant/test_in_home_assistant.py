"""Home Assistant itself takes what we publish: its package, its MQTT integration, its schemas, over a real broker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from edge.mqtt.connection import MqttAddress
from edge.mqtt.publish import publish_once
from services.home_assistant.names import device_id
from tests.broker.conftest import local_broker
from tests.services.home_assistant.environment import PYTHON, why_not
from tests.services.home_assistant.greenhouse import ORIGIN_MS, Greenhouse, alert, forecast

pytestmark = [pytest.mark.home_assistant, pytest.mark.broker]

ZONE = device_id("demo", "north-1")
SITE = device_id("demo")


class HomeAssistant:
    """The program in its own environment."""

    def __init__(self, folder: Path, address: MqttAddress) -> None:
        folder.mkdir()
        self._errors = (folder / "errors.log").open("wb")
        program = Path(__file__).with_name("hass_program.py")
        self._process = subprocess.Popen(
            [PYTHON, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, cwd=folder
        )
        self._write({"host": address.host, "port": address.port, "username": address.username,
                     "password": address.password, "folder": str(folder)})  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def wait_for(self, **states: str | None) -> dict[str, Any]:
        """All that Home Assistant has, once entities of the zone (by key), and the site's model, have these states."""
        self._write({"wait_for": {f"{SITE if key == 'model' else ZONE}_{key}": said for key, said in states.items()}})
        assert self._process.stdout
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "missed" not in found, found
        assert found["complaints"] == []
        return found

    def _write(self, line: Mapping[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        self._process.stdin.flush()


@pytest.fixture(params=["mosquitto", "amqtt"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MqttAddress]:
    """Both brokers that Hothouse starts; without Home Assistant's environment the test is skipped."""
    if reason := why_not():
        pytest.skip(reason)  # also in CI: a machine without Python 3.13 cannot make it
    with local_broker(tmp_path / "broker", request.param) as broker:
        yield broker.address


def test_home_assistant_makes_every_entity(address: MqttAddress, tmp_path: Path) -> None:
    """Each component becomes an entity with its state, attributes, unit and device; nothing is complained of; an alert
    turns its binary sensor on; after its start Home Assistant finds everything; a zone that retires is gone.
    """
    greenhouse = Greenhouse(tmp_path, address)
    greenhouse.say(forecasts=[forecast(), forecast("north-2")])
    with greenhouse.link, HomeAssistant(tmp_path / "hass", address) as hass:
        found = hass.wait_for(
            air_temp_c="18.3", night="12.41", health="on", alert_condensation="off", day="unknown", model="v3"
        )
        entities = found["entities"]
        wanted = json.loads(next(
            payload for topic, payload in greenhouse.link._publication.again() if topic.endswith(f"{ZONE}/config")
        ))["components"]  # fmt: skip
        assert {f"{ZONE}_{key}" for key in wanted} == {one for one in entities if one.startswith(ZONE)}
        air, night = entities[f"{ZONE}_air_temp_c"], entities[f"{ZONE}_night"]
        assert air["id"] == "sensor.north_1_air_temperature"
        assert air["attributes"]["unit_of_measurement"] == "°C"
        assert night["attributes"]["time"] == "2022-03-02T05:30+01:00"
        assert night["attributes"]["chance"] == 0.18
        path = entities[f"{ZONE}_forecast_air_temp_c"]["attributes"]["path"]
        assert path[0] == ["2022-03-01T18:05+01:00", 17.12, 17.12, 17.12]
        assert found["devices"][ZONE] == {"name": "north-1", "via": "demo"}

        greenhouse.say(alerts=[alert("firing", 2)])
        told = hass.wait_for(alert_condensation="on")["entities"][f"{ZONE}_alert_condensation"]["attributes"]
        assert told["text"].startswith("condensation 72 % between 04:00 and 06:30")
        assert told["device_class"] == "moisture"

        left = [{"site": "demo", "zone": "north-1", "left_ms": ORIGIN_MS}]
        greenhouse.say(stats={"shard-0": {"left": left}})
        found = hass.wait_for(air_temp_c=None, alert_condensation=None)
        assert [one for one in found["entities"] if one.startswith(ZONE)] == []
        assert ZONE not in found["devices"]


def test_a_hothouse_that_stops_is_unavailable_and_comes_back(address: MqttAddress, tmp_path: Path) -> None:
    """Entities are unavailable while Hothouse is away. Whoever says `online` on the status topic gets all again."""
    with HomeAssistant(tmp_path / "hass", address) as hass:
        first = Greenhouse(tmp_path, address)
        first.say(forecasts=[forecast()])
        with first.link:
            hass.wait_for(air_temp_c="18.3")
        hass.wait_for(air_temp_c="unavailable", night="unavailable", alert_frost="unavailable")
        again = Greenhouse(tmp_path, address)
        again.say(forecasts=[forecast(now={"air_temp_c": 19.5})])
        with again.link:
            hass.wait_for(air_temp_c="19.5")
            publish_once(address, "test", f"homeassistant/device/{ZONE}/config", b"")
            hass.wait_for(air_temp_c=None)
            publish_once(address, "test", "homeassistant/status", b"online")
            hass.wait_for(air_temp_c="19.5")
        off = Greenhouse(tmp_path, address, prefix="")
        with off.link:
            hass.wait_for(air_temp_c=None)
