"""Steps 1 and 2 of the way of a reading: how an MQTT client of ours connects, shared by gateway and publisher.

A broker that speaks no MQTT 5 answers a connect with "unsupported protocol version", or, as amqtt, misreads it and
says nothing; the caller then asks again with ``v5=False``. A client is made for one connection and thrown away with
it: an acknowledgement can then never reach another connection, where its packet number may mean another message.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edge.mqtt.subscriber import Subscriber
from edge.secret_file import read_secret
from edge.tls_files import TlsFiles

__all__ = [
    "MAX_PACKET_BYTES", "MqttAddress", "is_refused_version", "new_client", "new_subscriber", "open_connection",
]  # fmt: skip

MAX_PACKET_BYTES = 10_000_000
"""No message of ours is this long; a broker of ours ends the connection of who sends one. MQTT allows 256 MB."""
_UNSUPPORTED_VERSION = 132
_Client = TypeVar("_Client", bound=paho.Client)


@dataclass(frozen=True, kw_only=True)
class MqttAddress:
    """Where a broker is and how to log in; ``tls`` says whether by TLS.

    ``v5`` says whether to try MQTT 5 first; ``False`` saves a broker without it some seconds. ``session_secret`` goes
    into the ids of our clients: brokers hand a session, and all that waits in it, to whoever has its client id.
    ``password_file`` stands in the place of ``password``, and is read at each connection: who corrects it need not
    restart anything.
    """

    host: str = "127.0.0.1"
    port: int = 1883
    username: str = ""
    password: str = field(default="", repr=False)
    tls: TlsFiles | None = None
    v5: bool = True
    session_secret: str = field(default="", repr=False)
    password_file: Path | None = None

    def read_password(self) -> str:
        """The password of this moment. Raises ``OSError`` where its file cannot be read."""
        return read_secret(self.password_file) if self.password_file else self.password

    def client_id(self, name: str) -> str:
        """The id of the client called ``name``; with a secret nobody can guess it who has the name alone."""
        if not self.session_secret:
            return name
        # A digest, because brokers write ids into their logs.
        return f"{name}-{hmac.digest(self.session_secret.encode(), name.encode(), 'sha256').hex()[:32]}"


def new_client(address: MqttAddress, name: str, *, v5: bool = True, persistent: bool = False) -> paho.Client:
    """A paho client, not yet connected, whose id is or begins with ``name``. ``persistent``: the broker keeps the
    session while the client is away, and messages are acknowledged by hand.
    """
    return _new(paho.Client, address, name, v5, persistent, None)


def new_subscriber(
    address: MqttAddress, name: str, *, v5: bool = True, will: tuple[str, bytes] | None = None
) -> Subscriber:
    """A persistent client like :func:`new_client`, for many messages. ``will``: what the broker publishes, retained,
    when the client is lost.
    """
    return _new(Subscriber, address, name, v5, True, will)


def _new(
    kind: type[_Client], address: MqttAddress, name: str, v5: bool, persistent: bool,
    will: tuple[str, bytes] | None,
) -> _Client:  # fmt: skip
    client = kind(
        CallbackAPIVersion.VERSION2,
        client_id=address.client_id(name),
        clean_session=None if v5 else not persistent,
        protocol=paho.MQTTv5 if v5 else paho.MQTTv311,
        reconnect_on_failure=False,
        manual_ack=persistent,
    )
    if address.username:
        client.username_pw_set(address.username, address.read_password())
    if will is not None:
        client.will_set(*will, qos=1, retain=True)
    if (tls := address.tls) is not None:
        certificate, key = (str(tls.cert), str(tls.key)) if tls.cert else (None, None)
        tls.check()  # it names the file
        client.tls_set(str(tls.ca), certificate, key, keyfile_password="")  # OpenSSL would ask at the terminal
    return client


def open_connection(
    client: paho.Client,
    address: MqttAddress,
    *,
    keepalive_s: int = 30,
    session_expiry_s: int = 0,
    receive_maximum: int = 65_535,
) -> None:
    """Connect a client of :func:`new_client` and start its network thread; the outcome comes to ``on_connect``.

    ``session_expiry_s`` 0 means a session that ends with its connection. ``receive_maximum`` bounds the messages
    sent to us that are not acknowledged yet. Both only exist in MQTT 5. Raises ``OSError`` when nobody answers.
    """
    if client.protocol == paho.MQTTv5:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.ReceiveMaximum = receive_maximum
        properties.SessionExpiryInterval = session_expiry_s
        client.connect(
            address.host, address.port, keepalive_s, clean_start=session_expiry_s == 0, properties=properties
        )
    else:
        client.connect(address.host, address.port, keepalive_s)
    client.loop_start()


def is_refused_version(reason: ReasonCode) -> bool:
    """Whether a connect failed because the broker does not speak MQTT 5."""
    return bool(reason.value == _UNSUPPORTED_VERSION)
