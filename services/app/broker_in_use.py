"""The broker that devices publish to, and the system with them: the one that the settings name, or its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge.mqtt.broker import LocalBroker
from edge.mqtt.connection import MqttAddress
from edge.mqtt.publish import PublishError, publish_all, publish_once
from services.config import Settings
from services.errors import ConfigError, HothouseError
from services.message_broker import address_of

__all__ = ["BrokerInUse"]


@dataclass(frozen=True, kw_only=True)
class BrokerInUse:
    """Where it is and how to log in; no ``host`` is no broker.

    The embedded broker speaks 3.1.1 only: asking it for ``v5`` first costs seconds. Passwords are read when they are
    used, so that a new one needs no restart.
    """

    host: str
    port: int
    username: str
    password_file: Path | None
    session_secret_file: Path | None
    tls_ca_file: Path | None
    tls_cert_file: Path | None
    tls_key_file: Path | None
    v5: bool

    @classmethod
    def named(cls, settings: Settings) -> BrokerInUse:
        """That of the settings."""
        mqtt = settings.mqtt
        return cls(
            host=mqtt.host, port=mqtt.port, username=mqtt.username, password_file=mqtt.password_file,
            session_secret_file=mqtt.session_secret_file, tls_ca_file=mqtt.tls_ca_file,
            tls_cert_file=mqtt.tls_cert_file, tls_key_file=mqtt.tls_key_file, v5=mqtt.version == "5",
        )  # fmt: skip

    @classmethod
    def own(cls, broker: LocalBroker) -> BrokerInUse:
        """One that the system started for itself, on this machine."""
        return cls(
            host=broker.host, port=broker.port, username=broker.username, password_file=broker.password_file,
            session_secret_file=broker.session_secret_file, tls_ca_file=None, tls_cert_file=None, tls_key_file=None,
            v5=broker.address.v5,
        )  # fmt: skip

    def address(self) -> MqttAddress:
        """For a client; raises :class:`ConfigError` where the password cannot be read."""
        return address_of(self.settings())

    def publish(self, topic: str, payload: bytes) -> None:
        """Publish one message of the system; raises :class:`PublishError`."""
        publish_once(self._address(), "hothouse-system", topic, payload)

    def publish_rules(self, topic: str, payload: bytes) -> None:
        """Publish a change of rules; raises :class:`HothouseError`."""
        try:
            self.publish(topic, payload)
        except PublishError as error:
            raise HothouseError(f"rules cannot be changed: {error}") from error

    def publish_alerts(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Publish retained (topic, payload); raises :class:`HothouseError`."""
        try:
            publish_all(self._address(), "hothouse-alerts", messages, retain=True)
        except PublishError as error:
            raise HothouseError(str(error)) from error

    def settings(self) -> dict[str, Any]:
        """The settings ``mqtt.*`` that lead there."""
        return {
            "host": self.host, "port": self.port, "username": self.username, "password_file": self.password_file,
            "session_secret_file": self.session_secret_file, "tls_ca_file": self.tls_ca_file,
            "tls_cert_file": self.tls_cert_file, "tls_key_file": self.tls_key_file,
            "version": "5" if self.v5 else "3.1.1",
        }  # fmt: skip

    def written(self) -> dict[str, Any]:
        """For other commands on this machine (:func:`services.message_broker.broker_address`), as JSON."""
        own = self.settings()
        return {**own, **{name: str(value or "") for name, value in own.items() if name.endswith("_file")}}

    def _address(self) -> MqttAddress:
        if not self.host:
            raise PublishError("no broker is configured: set mqtt.host")
        try:
            return self.address()
        except ConfigError as error:
            raise PublishError(error.message) from error
