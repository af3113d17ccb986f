"""Step 1 of the way of a reading, for what the system itself publishes: the broker that the settings name.

What changes rows or plans goes into the log as devices' messages do, through the broker and the gateway, whoever says
it: an operator's command, the API, or the system.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge.mqtt.connection import MqttAddress
from edge.mqtt.publish import PublishError, publish_once
from edge.secret_file import read_secret
from edge.tls_files import TlsFiles
from services.config import Settings
from services.errors import ConfigError, HothouseError

__all__ = ["address_of", "broker_address", "publish"]


def address_of(mqtt: Mapping[str, Any]) -> MqttAddress:
    """Where settings ``mqtt.*`` lead, or what a running system wrote down of them; the password is read now, and again
    at each connection.

    Raises :class:`ConfigError` where it cannot be.
    """
    ca, cert, key = (Path(of) if (of := mqtt.get(f"tls_{name}_file")) else None for name in ("ca", "cert", "key"))
    secrets = {"password_file": "", "session_secret_file": ""}
    for name in secrets:
        try:
            secrets[name] = read_secret(Path(file)) if (file := mqtt.get(name)) else ""
        except OSError as error:
            of = name.removesuffix("_file").replace("_", " ")
            raise ConfigError(
                f"the {of} of the broker at {mqtt['host']}:{mqtt['port']} cannot be read: {error}",
                f"Check mqtt.{name}, and who may read it.",
            ) from error
    return MqttAddress(
        host=mqtt["host"], port=int(mqtt["port"]), username=mqtt.get("username") or "",
        password=secrets["password_file"], password_file=Path(file) if (file := mqtt.get("password_file")) else None,
        session_secret=secrets["session_secret_file"],
        tls=TlsFiles(ca, cert, key) if ca else None, v5=mqtt.get("version", "5") == "5",
    )  # fmt: skip


def broker_address(settings: Settings) -> MqttAddress:
    """The configured broker, else that of the system which runs on the data folder; raises :class:`ConfigError`."""
    mqtt: dict[str, Any] = settings.mqtt.model_dump()
    try:
        if not settings.mqtt.host:
            mqtt = json.loads((settings.data_dir / "run.json").read_text())["mqtt"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "no broker is configured, and nothing runs on this data folder",
            "Set mqtt.host, or start Hothouse with `hothouse up`.",
        ) from error
    return address_of(mqtt)


def publish(settings: Settings, name: str, topic: str, payload: bytes) -> None:
    """Publish one message and wait until the broker has it; ``name`` begins the client's id.

    Raises :class:`HothouseError` where it did not take it, :class:`ConfigError` where there is none.
    """
    try:
        publish_once(broker_address(settings), name, topic, payload)
    except PublishError as error:
        raise HothouseError(
            str(error), "Is it running, and are mqtt.username and mqtt.password_file its login?"
        ) from error
