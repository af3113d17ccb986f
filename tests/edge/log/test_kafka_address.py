"""Where Kafka is, and how clients log in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka.net.sasl import get_sasl_mechanism

from edge.log.kafka.address import KafkaAddress, kafka_address
from edge.tls_files import TlsFiles


def test_an_address_names_servers_and_topic() -> None:
    """The address of a log is one URL; what is not one is refused, a password in it above all."""
    assert kafka_address("kafka://a:1,b:2/greenhouses", username="u").servers == ("a:1", "b:2")
    for wrong in ("kafka://a:1", "kafka:///t", "http://a:1/t", "kafka://a:1/t/u", "kafka://u:p@a:1/t", "log.sqlite"):
        with pytest.raises(ValueError, match="is not kafka://"):
            kafka_address(wrong)


@pytest.mark.parametrize(
    ("given", "protocol"),
    [
        ({}, "PLAINTEXT"),
        ({"tls": TlsFiles(Path("ca.pem"))}, "SSL"),
        ({"username": "u", "password_file": Path("p")}, "SASL_PLAINTEXT"),
        ({"username": "u", "password_file": Path("p"), "tls": TlsFiles(Path("ca.pem"))}, "SASL_SSL"),
    ],
)
def test_login_and_encryption_reach_every_client(given: dict[str, Any], protocol: str) -> None:
    """User name and CA choose the protocol; each client is given the password's file."""
    address = KafkaAddress(servers=("a:1",), topic="t", **given)
    options = address.options()
    assert options["security_protocol"] == protocol
    assert options.get("sasl_plain_password") == given.get("password_file")
    assert options.get("ssl_cafile") == (str(given["tls"].ca) if "tls" in given else None)
    assert "ssl_certfile" not in options


def test_the_password_is_read_at_each_connection(tmp_path: Path) -> None:
    """A file that was corrected counts at the next one, of a client that is there already, too."""
    file = tmp_path / "password"
    options = KafkaAddress(servers=("a:1",), topic="t", username="u", password_file=file, mechanism="PLAIN").options()
    for password in ("of before", "corrected"):
        file.write_text(f"{password}\n")
        assert get_sasl_mechanism("PLAIN")(**options).auth_bytes() == f"u\0u\0{password}".encode()
    file.write_bytes(b"\xff")
    with pytest.raises(OSError, match="password is no text"):
        get_sasl_mechanism("PLAIN")(**options)
