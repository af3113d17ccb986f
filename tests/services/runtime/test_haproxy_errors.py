"""What HAProxy answers for a replica on one machine, run with our stand-in for its binary: problems like all others."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.config import ApiSettings
from services.runtime import ingress
from services.runtime.ingress import PROBLEMS, probe_ingress
from services.runtime.ports import free_port
from tests.patience import patience_s, until

FRONT = Path(__file__).parents[3] / "deploy" / "front" / "haproxy.cfg"

pytestmark = pytest.mark.skipif(probe_ingress().kind != "haproxy", reason="no HAProxy for this machine")

# As Serve 2.60 writes it, in short: one 500 for all that goes wrong between HAProxy and a replica.
CONFIGURATION = """global
    stats socket {folder}/a level admin
defaults
    mode http
    timeout connect 1s
    timeout client 60s
    timeout server {server}
    errorfile 502 {folder}/500.http
    errorfile 503 {folder}/500.http
    errorfile 504 {folder}/500.http
frontend http_frontend
    bind 127.0.0.1:{port}
    default_backend api
backend api
    server replica 127.0.0.1:{replica}
"""


@pytest.fixture
def replica() -> Iterator[socket.socket]:
    """A server that takes connections; a test says what becomes of them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(patience_s(30))
        yield listener


def answered(
    folder: Path, replica_port: int, order: str, server: str = "60s"
) -> tuple[int, list[str], dict[str, object]]:
    """Status, head and body of what HAProxy answers to an order."""
    port, config = free_port(), folder / "haproxy.cfg"
    (folder / "500.http").write_bytes(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno")
    config.write_text(CONFIGURATION.format(folder=folder, port=port, replica=replica_port, server=server))
    wrapper = ingress._wrapper(folder, probe_ingress().binary, free_port(), free_port(), ApiSettings())
    process = subprocess.Popen([wrapper, "-db", "-f", config], stderr=subprocess.DEVNULL)
    try:
        until(lambda: _listens(port), "HAProxy listens")
        with socket.create_connection(("127.0.0.1", port), timeout=patience_s(30)) as connection:
            sent = f"POST {order} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            connection.sendall(sent.encode())
            came = b""
            while piece := connection.recv(65_536):
                came += piece
    finally:
        process.terminate()
        process.wait(10)
    text, _, body = came.decode().partition("\r\n\r\n")
    status, *head = text.lower().split("\r\n")
    assert "content-type: application/problem+json" in head, came
    assert f"content-length: {len(body)}" in head
    return int(status.split()[1]), head, json.loads(body)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_an_order_whose_answer_was_broken_off_is_not_told_as_one_that_nobody_took(
    tmp_path: Path, replica: socket.socket
) -> None:
    """It may have been carried out: as the front of a cluster says it."""

    def break_off() -> None:
        while True:
            try:
                connection, _ = replica.accept()
            except OSError:
                return
            with connection:
                connection.recv(65_536)

    threading.Thread(target=break_off, daemon=True).start()
    status, _, body = answered(tmp_path, replica.getsockname()[1], "/models/retrain")
    assert (status, body["status"], body["detail"]) == (502, 502, PROBLEMS[502])


def test_an_order_that_is_not_answered_in_time_is_told_so(tmp_path: Path, replica: socket.socket) -> None:
    """The connection was taken."""
    status, _, body = answered(tmp_path, replica.getsockname()[1], "/models/retrain", "500ms")
    assert (status, body["status"], body["detail"]) == (504, 504, PROBLEMS[504])


def test_no_replica_is_a_problem_that_says_when_to_ask_again(tmp_path: Path) -> None:
    """Nobody took it."""
    status, head, body = answered(tmp_path, free_port(), "/models/retrain")
    assert (status, body["status"], body["detail"]) == (503, 503, PROBLEMS[503])
    assert "retry-after: 1" in head


def test_the_front_of_a_cluster_says_the_same() -> None:
    """Clients need not know which of the two answers."""
    said = re.findall(
        r"http-error status (\d+) content-type application/problem\+json string '(.*)'", FRONT.read_text()
    )
    assert {status: json.loads(body)["detail"] for status, body in said}.items() >= {
        (str(status), detail) for status, detail in PROBLEMS.items()
    }
