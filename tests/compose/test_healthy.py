"""What says that a container is healthy, beside a server that stands for the API."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.certificates import make_certificate

SCRIPT = Path(__file__).parents[2] / "deploy" / "images" / "api-healthy.sh"


@pytest.fixture
def address() -> Iterator[str]:
    """An API that is ready on two routes and starts on another."""

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """404 on all other routes."""
            statuses = {
                "/north/health/ready": 200, "/starting/health/ready": 503, "/starting/health/live": 200,
                "/health/ready": 200,
            }  # fmt: skip
            self.send_response(statuses.get(self.path, 404))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal."""

    with HTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("route", "is_healthy"), [("", True), ("/north", True), ("/starting", False), ("/x", False)])
def test_readiness_is_asked_for_where_the_api_answers(
    tmp_path: Path, address: str, route: str, is_healthy: bool
) -> None:
    """Also on a route of its own (`api.route`), as installations on one cluster need it."""
    (tmp_path / "run.json").write_text(json.dumps({"url": f"http://{address}{route}", "pid": 1, "mqtt": {}}))
    done = subprocess.run(["bash", SCRIPT], env={"HOTHOUSE_DATA_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
                          capture_output=True, check=False)  # fmt: skip
    assert (done.returncode == 0) == is_healthy, done.stderr


def test_it_is_asked_by_tls_and_by_ipv6(tmp_path: Path) -> None:
    """`api.url` may name a balancer with HTTPS, `api.host` an address of IPv6."""

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health/ready" else 503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal."""

    class OnSix(HTTPServer):
        address_family = socket.AF_INET6

    def codes(url: str) -> list[int]:
        (tmp_path / "run.json").write_text(json.dumps({"url": url, "pid": 1, "mqtt": {}}))
        environment = {**os.environ, "HOTHOUSE_DATA_DIR": str(tmp_path), "https_proxy": "http://127.0.0.1:1"}
        return [subprocess.run(["bash", SCRIPT, *asked], env=environment, capture_output=True, check=False).returncode
                for asked in ([], ["live"])]  # fmt: skip

    encrypted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    encrypted.load_cert_chain(*make_certificate(tmp_path))
    with HTTPServer(("127.0.0.1", 0), Api) as four, OnSix(("::1", 0), Api) as six:
        four.socket = encrypted.wrap_socket(four.socket, server_side=True)
        for server in (four, six):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        found = codes(f"https://127.0.0.1:{four.server_port}"), codes(f"http://[::1]:{six.server_port}")
        for server in (four, six):
            server.shutdown()
    assert found == ([0, 1], [0, 1])


def test_a_system_without_a_forecast_is_alive(tmp_path: Path, address: str) -> None:
    """It waits for devices: whoever asks for its life alone does not start it again and again."""
    (tmp_path / "run.json").write_text(json.dumps({"url": f"http://{address}/starting", "pid": 1, "mqtt": {}}))
    done = [
        subprocess.run(["bash", SCRIPT, *asked], env={"HOTHOUSE_DATA_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
                       capture_output=True, check=False).returncode == 0
        for asked in ([], ["ready"], ["live"])
    ]  # fmt: skip
    assert done == [False, False, True]
