"""Publishing once: why it failed."""

from __future__ import annotations

import socket
import threading

import pytest

from edge.mqtt.connection import MqttAddress
from edge.mqtt.publish import PublishError, publish_once

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
            publish_once(address, "test", "t", b"", wait_s=0.5)
        thread.join()
