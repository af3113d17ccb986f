"""Publishing once: why it failed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from edge.mqtt.connection import MqttAddress
from edge.mqtt.publish import PublishError, publish_once
from edge.tls_files import TlsFiles
from tests.certificates import make_certificate

CLOSED = MqttAddress(host="127.0.0.1", port=1)
CONNECTED, NOT_AUTHORIZED = b"\x20\x03\x00\x00\x00", b"\x20\x03\x00\x87\x00"
NO_VERSION_5, NOT_AUTHORIZED_3 = b"\x20\x02\x00\x01", b"\x20\x02\x00\x05"


def answering(*connections: Sequence[bytes]) -> MqttAddress:
    """A broker that answers the packets of each connection, one after the other, with these."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server:
            for answers in connections:
                connection, _ = server.accept()
                with connection:
                    for answer in answers:
                        connection.recv(1024)
                        connection.sendall(answer)
                    connection.recv(1024)

    threading.Thread(target=serve, daemon=True).start()
    return MqttAddress(host="127.0.0.1", port=server.getsockname()[1], username="u", password="wrong")


@pytest.mark.parametrize(
    "connections",
    [[[NOT_AUTHORIZED]], [[NO_VERSION_5], [NOT_AUTHORIZED_3]], [[], [NOT_AUTHORIZED_3]]],
    ids=["5", "3.1.1", "3.1.1, and it hangs up on MQTT 5"],
)
def test_a_broker_that_refuses_the_login_is_told(connections: list[list[bytes]]) -> None:
    """A wrong password is none of a broker that does not run; one that speaks 3.1.1 alone is asked in that."""
    with pytest.raises(PublishError, match="refuses us: Not authorized"):
        publish_once(answering(*connections), "test", "t", b"")


def test_a_message_that_the_broker_refuses_is_not_published() -> None:
    """Its rules do not let this login write that topic: an acknowledgement that says so is none."""
    refused = b"\x40\x03\x00\x01\x87"
    with pytest.raises(PublishError, match="refuses it: Not authorized"):
        publish_once(answering([CONNECTED, refused]), "test", "t", b"")
    publish_once(answering([CONNECTED, b"\x40\x02\x00\x01"]), "test", "t", b"")


def test_a_file_that_is_no_certificate_is_told(tmp_path: Path) -> None:
    """A wrong CA file is a mistake of the settings, which is named."""
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(PublishError, match=r"cannot be asked: .*ca\.pem"):
        publish_once(replace(CLOSED, tls=TlsFiles(tmp_path / "ca.pem")), "test", "t", b"")
    with pytest.raises(OSError, match=r"ca\.pem holds no CA certificate in PEM"):
        TlsFiles(tmp_path / "ca.pem").check()
    TlsFiles(make_certificate(tmp_path)[0]).check()
