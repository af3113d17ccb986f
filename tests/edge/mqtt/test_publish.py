"""Publishing once: why it failed."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from edge.mqtt.connection import MqttAddress, check_ca
from edge.mqtt.publish import PublishError, publish_once
from tests.certificates import make_certificate

CLOSED = MqttAddress(host="127.0.0.1", port=1)
NOT_AUTHORIZED = b"\x20\x02\x00\x05"


def test_a_broker_that_refuses_the_login_is_told() -> None:
    """A wrong password is none of a broker that does not run."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(NOT_AUTHORIZED)

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        address = MqttAddress(host="127.0.0.1", port=server.getsockname()[1], username="u", password="wrong")
        with pytest.raises(PublishError, match="refuses us: Not authorized"):
            publish_once(address, "test", "t", b"")
        thread.join()


def test_a_file_that_is_no_certificate_is_told(tmp_path: Path) -> None:
    """A wrong CA file is a mistake of the settings, which is named."""
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(PublishError, match=r"cannot be asked by TLS: .*ca\.pem"):
        publish_once(replace(CLOSED, tls_ca=tmp_path / "ca.pem"), "test", "t", b"")
    with pytest.raises(OSError, match=r"ca\.pem holds no CA certificate in PEM"):
        check_ca(tmp_path / "ca.pem")
    check_ca(make_certificate(tmp_path)[0])
