"""The broker for devices: the one that the settings name, or the local one that `hothouse up` starts."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from edge.listening import why_no_broker
from edge.secret_file import read_secret
from edge.tls_files import tls_files
from services.cli.setup.check import Check, CheckState
from services.config import MqttSettings, Settings, UplinkSettings

if TYPE_CHECKING:
    from edge.mqtt.connection import MqttAddress  # `hothouse --help` must not pay for an MQTT client

__all__ = ["TIMEOUT_S", "check_broker", "login_at", "running_here"]

TIMEOUT_S = 3.0
NAME = "MQTT broker"
SILENT = "it does not answer as an MQTT broker"
LOOPBACK = "127.0.0.1"


def check_broker(settings: Settings) -> Check | None:
    """Whether the broker lets us in; without one configured, which local one runs or would be started. ``None`` where
    none would be, for a reason that stands elsewhere.
    """
    mqtt = settings.mqtt
    if not mqtt.host:
        return _local_broker(settings)
    where, advice = f"{mqtt.host}:{mqtt.port}", "Check mqtt.host, mqtt.port and mqtt.tls_ca_file."
    try:
        answer = login_at(mqtt.host, mqtt.port, mqtt, v5=False)
    except (OSError, ValueError) as error:
        return Check(NAME, CheckState.FAIL, f"{where}: {error}", advice)
    if answer == SILENT:
        return Check(NAME, CheckState.FAIL, f"{where}: {answer}", advice)
    if answer != "Success":
        return Check(NAME, CheckState.FAIL, f"{where}: {answer}", "Check mqtt.username and mqtt.password_file.")
    return Check(NAME, CheckState.OK, f"{where} answers")


def _local_broker(settings: Settings) -> Check | None:
    from edge.mqtt.mosquitto import is_installed

    mqtt, ours = settings.mqtt, running_here(settings)
    if ours is not None:
        own = ours.get("mqtt") or {}
        where = f" at {own['host']}:{own['port']}" if own.get("host") else ""
        return Check(NAME, CheckState.OK, f"the Hothouse that runs here has one{where}")
    if mqtt.gateway == "elsewhere" or (mqtt.listen and why_no_broker(mqtt.listen, mqtt.port)[0]):
        return None
    will_be = f"{'a local Mosquitto' if is_installed() else 'the embedded broker'} will be started"
    if not mqtt.listen and _one_answers(mqtt):
        return Check(
            NAME, CheckState.WARN, f"{will_be} on a free port, beside the broker that answers at port {mqtt.port}",
            f"Devices of that one do not reach it. To use that one set mqtt.host to {LOOPBACK}.",
        )  # fmt: skip
    if is_installed():
        return Check(NAME, CheckState.OK, will_be)
    return Check(
        NAME, CheckState.WARN, f"{will_be} (MQTT 3.1.1, keeps nothing over a restart)",
        "For more than a trial install Mosquitto, or set mqtt.host.",
    )  # fmt: skip


def _one_answers(mqtt: MqttSettings) -> bool:
    """Whether a broker of somebody else is where a device would look for one on this machine; it may refuse us."""
    try:
        return login_at(LOOPBACK, mqtt.port, mqtt, v5=False) != SILENT
    except (OSError, ValueError):
        return False


def running_here(settings: Settings) -> dict[str, Any] | None:
    """What the system that runs on the data folder wrote down of itself; ``None`` where none runs."""
    try:
        told: dict[str, Any] = json.loads((settings.data_dir / "run.json").read_text())
        os.kill(int(told["pid"]), 0)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return told


def login_at(host: str, port: int, login: MqttSettings | UplinkSettings, *, v5: bool) -> str:
    """What the broker there says to a login; raises ``OSError`` or ``ValueError``."""
    from edge.mqtt.connection import MqttAddress

    file = login.password_file
    password = read_secret(file) if file and file.is_file() else ""
    address = MqttAddress(host=host, port=port, username=login.username, password=password, tls=tls_files(login))
    return _answer(address, v5=v5)


def _answer(address: MqttAddress, *, v5: bool) -> str:
    """With a client id of its own, so that no session is disturbed."""
    from edge.mqtt.connection import new_client

    client = new_client(address, f"hothouse-doctor-{os.getpid()}", v5=v5)
    client.connect_timeout = TIMEOUT_S
    answers: list[str] = []
    client.on_connect = lambda _client, _data, _flags, reason, _properties: answers.append(str(reason))
    client.connect(address.host, address.port)
    for _ in range(round(TIMEOUT_S * 10)):
        if answers or client.loop(0.1) != 0:
            break
    client.disconnect()
    return answers[0] if answers else SILENT
