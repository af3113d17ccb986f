"""Brokers that speak TLS."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge.mqtt.connection import MqttAddress
from edge.tls_files import TlsFiles
from services.runtime.ports import free_port
from tests.certificates import make_certificate
from tests.conftest import require_program
from tests.patience import patience_s, until


@contextmanager
def tls_broker(
    folder: Path, host: str = "127.0.0.1", *settings: str, days: float = 30
) -> Iterator[tuple[MqttAddress, subprocess.Popen[bytes]]]:
    """A Mosquitto that speaks TLS only, with ``cert.pem`` and ``key.pem``, good for ``days``; its clients check by
    ``ca.pem``.
    """
    mosquitto, port = require_program("mosquitto"), free_port()
    make_certificate(folder, days)
    shutil.copy(folder / "cert.pem", folder / "ca.pem")
    lines = [
        f"listener {port} {host}", f"certfile {folder / 'cert.pem'}", f"keyfile {folder / 'key.pem'}",
        "tls_version tlsv1.2", "allow_anonymous true", *settings, *(["user root"] if os.getuid() == 0 else []),
    ]  # fmt: skip
    (folder / "mosquitto.conf").write_text("\n".join([*lines, ""]))
    with (folder / "mosquitto.log").open("wb") as log:
        process = subprocess.Popen([mosquitto, "-v", "-c", folder / "mosquitto.conf"], stderr=log)
    try:
        until(lambda: shown(host, port), "the broker listens")
        yield MqttAddress(host=host, port=port, tls=TlsFiles(folder / "ca.pem")), process
    finally:
        process.kill()
        process.wait(patience_s(10))


def shown(host: str, port: int) -> str:
    """The certificate that the broker shows; empty while it does not listen."""
    try:
        return ssl.get_server_certificate((host, port), timeout=patience_s(5))
    except OSError:
        return ""
