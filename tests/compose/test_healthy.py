"""What says that a container is healthy, beside a server that stands for the API."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

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


def test_a_system_without_a_forecast_is_alive(tmp_path: Path, address: str) -> None:
    """It waits for devices: whoever asks for its life alone does not start it again and again."""
    (tmp_path / "run.json").write_text(json.dumps({"url": f"http://{address}/starting", "pid": 1, "mqtt": {}}))
    done = [
        subprocess.run(["bash", SCRIPT, *asked], env={"HOTHOUSE_DATA_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
                       capture_output=True, check=False).returncode == 0
        for asked in ([], ["ready"], ["live"])
    ]  # fmt: skip
    assert done == [False, False, True]
