"""A log on a Kafka that wants TLS and a login, as production does."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge.log import LogError, NewRecord
from edge.log.kafka.address import KafkaAddress
from edge.log.kafka.kafka_log import KafkaLog
from edge.log.kafka.login import Mechanism
from edge.tls_files import TlsFiles
from services.runtime.ports import free_port
from tests.chaos.servers import Servers
from tests.conftest import require_program
from tests.patience import budget_s, until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

USER, PASSWORD = "hothouse", "only-for-this-test"
MECHANISMS: tuple[Mechanism, ...] = ("PLAIN", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Servers, KafkaAddress]]:
    """A Kafka of our own with two more listeners by TLS under a CA made here: SASL by PLAIN or SCRAM; a certificate."""
    folder = tmp_path_factory.mktemp("kafka")
    _make_certificates(folder)
    (folder / "password").write_text(PASSWORD)
    kafka = Servers(folder / "servers", "kafka")
    try:
        port, mutual = free_port(), free_port()  # they are free until Kafka starts again
        _add_scram_user(kafka.kafka)
        kafka.kill("kafka")
        properties = folder / "servers" / "kafka.properties"
        properties.write_text(_with_listeners(properties.read_text(), port, mutual, folder))
        kafka.start("kafka")
        yield kafka, KafkaAddress(
            servers=(f"127.0.0.1:{port}",), topic="secure", username=USER, password_file=folder / "password",
            mechanism="PLAIN", tls=TlsFiles(folder / "ca.pem"), timeout_s=8.0,
        )  # fmt: skip
    finally:
        kafka.clean()


@pytest.fixture
def secure(kafka: tuple[Servers, KafkaAddress]) -> KafkaAddress:
    """How that is reached."""
    return kafka[1]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_records_go_through_tls_and_a_login(secure: KafkaAddress, mechanism: Mechanism) -> None:
    """What was appended is read back, with the password checked in either way."""
    topic = f"secure-{mechanism.lower()}"
    log = KafkaLog(replace(secure, mechanism=mechanism, topic=topic, timeout_s=budget_s(60)), 1)
    places = log.append([NewRecord("north", "samples", 1000, b"payload")])
    assert places == [(0, 0)]
    assert [record.payload for record in log.read(0, 0, 10)] == [b"payload"]
    log.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told(secure: KafkaAddress, mechanism: Mechanism, tmp_path: Path) -> None:
    """The error is the log's own, says that the login is refused, and never shows the password."""
    (tmp_path / "wrong").write_text("wrong-password")
    with pytest.raises(LogError, match="while it logged in: are user name, password and mechanism right") as error:
        KafkaLog(replace(secure, mechanism=mechanism, password_file=tmp_path / "wrong"), 1)
    assert "wrong-password" not in str(error.value)


def test_a_certificate_is_a_login(kafka: tuple[Servers, KafkaAddress]) -> None:
    """A server that wants one from its clients lets us in with it, and not without."""
    address = kafka[1]
    assert address.tls is not None
    folder = address.tls.ca.parent
    port = re.findall(r"MUTUAL://127\.0\.0\.1:([0-9]+)", (folder / "servers" / "kafka.properties").read_text())[0]
    shown = replace(address.tls, cert=folder / "server.crt", key=folder / "server.key")
    mutual = replace(
        address, servers=(f"127.0.0.1:{port}",), topic="mutual", username="", password_file=None, tls=shown,
        timeout_s=budget_s(60),
    )  # fmt: skip
    log = KafkaLog(mutual, 1)
    log.append([NewRecord("north", "samples", 1000, b"payload")])
    assert [record.payload for record in log.read(0, 0, 10)] == [b"payload"]
    log.close()
    with pytest.raises(LogError):
        KafkaLog(replace(mutual, tls=address.tls, timeout_s=8.0), 1)


def test_a_server_of_another_ca_is_refused(secure: KafkaAddress, tmp_path: Path) -> None:
    """A certificate that our CA has not signed ends the connection before the login, and that is told."""
    _make_certificates(tmp_path)
    with pytest.raises(LogError, match="CERTIFICATE_VERIFY_FAILED"):
        KafkaLog(replace(secure, tls=TlsFiles(tmp_path / "ca.pem")), 1)


def test_a_renewed_ca_is_used_at_the_next_connection(kafka: tuple[Servers, KafkaAddress], tmp_path: Path) -> None:
    """Kafka gets a certificate of another CA, whose file takes the place of the one before: the log that is open goes
    on, without a restart of ours. The file may be away for a moment.
    """
    server, address = kafka
    assert address.tls is not None
    shutil.copy(address.tls.ca, ca := tmp_path / "ca.pem")
    log = KafkaLog(replace(address, topic="renewed", tls=TlsFiles(ca)), 1)
    log.append([NewRecord("north", "samples", 1000, b"before")])
    server.kill("kafka")
    _make_certificates(address.tls.ca.parent)
    ca.unlink()
    server.start("kafka")
    after = [NewRecord("north", "samples", 2000, b"after")]
    with pytest.raises(LogError):
        log.append(after)
    shutil.copy(address.tls.ca, ca)
    assert until(lambda: _tried(lambda: log.append(after)), "the log goes on") == [(0, 1)]
    assert [record.payload for record in until(lambda: _tried(lambda: log.read(0, 0, 10)))] == [b"before", b"after"]
    log.close()


def test_a_corrected_password_needs_no_restart(kafka: tuple[Servers, KafkaAddress], tmp_path: Path) -> None:
    """Kafka wants another password and ends its connections: nothing is taken until the file holds that one, and from
    then on the log that is open takes and gives records. It may be away for a moment.
    """
    server, address = kafka
    file = tmp_path / "password"
    file.write_text("of before")
    _add_scram_user(server.kafka, "changing", "of before")
    log = KafkaLog(
        replace(address, mechanism="SCRAM-SHA-512", topic="corrected", username="changing", password_file=file), 1
    )
    log.append([NewRecord("north", "samples", 1000, b"before")])
    assert [record.payload for record in log.read(0, 0, 10)] == [b"before"]
    _add_scram_user(server.kafka, "changing", "another")
    server.kill("kafka")
    server.start("kafka")
    after = [NewRecord("north", "samples", 2000, b"after")]
    with pytest.raises(LogError):
        log.append(after)
    file.unlink()
    with pytest.raises(LogError):
        log.append(after)
    file.write_text("another\n")
    assert until(lambda: _tried(lambda: log.append(after)), "Kafka lets us in") == [(0, 1)]
    assert [record.payload for record in until(lambda: _tried(lambda: log.read(0, 1, 10)))] == [b"after"]
    log.close()


def _tried(call: Callable[[], list[Any]]) -> list[Any]:
    with suppress(LogError):
        return call()
    return []


def _make_certificates(folder: Path) -> None:
    """A CA in ``ca.pem``; a key and certificate for 127.0.0.1 in ``server.pem``."""
    openssl = require_program("openssl")

    def run(*words: str) -> None:
        subprocess.run([openssl, *words], cwd=folder, check=True, capture_output=True)

    run("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test-ca",
        "-keyout", "ca.key", "-out", "ca.pem")  # fmt: skip
    run("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-keyout", "server.key", "-out", "server.csr")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    run("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", "names", "-out", "server.crt")  # fmt: skip
    (folder / "server.pem").write_text((folder / "server.key").read_text() + (folder / "server.crt").read_text())


def _add_scram_user(server: str, name: str = USER, password: str = PASSWORD) -> None:
    from kafka import KafkaAdminClient
    from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

    admin = KafkaAdminClient(bootstrap_servers=server)
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion(name, ScramMechanism.SCRAM_SHA_512, password)])
    admin.close()


def _with_listeners(properties: str, port: int, mutual: int, folder: Path) -> str:
    lines = []
    for line in properties.splitlines():
        if line.startswith(("listeners=", "advertised.listeners=")):
            line += f",SECURE://127.0.0.1:{port},MUTUAL://127.0.0.1:{mutual}"
        lines.append(line)
    login = "org.apache.kafka.common.security"
    return "\n".join([
        *lines,
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL,MUTUAL:SSL",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
        f"listener.name.secure.ssl.keystore.location={folder / 'server.pem'}",
        "listener.name.secure.ssl.keystore.type=PEM",
        f"listener.name.mutual.ssl.keystore.location={folder / 'server.pem'}",
        "listener.name.mutual.ssl.keystore.type=PEM",
        f"listener.name.mutual.ssl.truststore.location={folder / 'ca.pem'}",
        "listener.name.mutual.ssl.truststore.type=PEM",
        "listener.name.mutual.ssl.client.auth=required",
        f"listener.name.secure.plain.sasl.jaas.config={login}.plain.PlainLoginModule required"
        f' user_{USER}="{PASSWORD}";',
        f"listener.name.secure.scram-sha-512.sasl.jaas.config={login}.scram.ScramLoginModule required;",
        "",
    ])  # fmt: skip
