"""deploy/front/haproxy.cfg, run by HAProxy itself before two small servers that can be harmed."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.runtime.ingress import probe_ingress
from services.runtime.ports import free_port
from tests.certificates import make_certificate
from tests.patience import patience_s, until

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "front" / "haproxy.cfg"

pytestmark = pytest.mark.skipif(probe_ingress().kind != "haproxy", reason="no HAProxy for this machine")


class Worker:
    """Stands for HTTP of a worker that is ``ready`` by its health check, or ``breaks`` connections off unanswered."""

    def __init__(self) -> None:
        self.ready, self.breaks = True, False
        self.asked: Counter[str] = Counter()
        self.forwarded: list[str | None] = []
        worker = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                if self.path != "/health/ready":
                    worker.asked[self.command] += 1
                    worker.forwarded.append(self.headers["X-Forwarded-For"])
                    if worker.breaks:
                        self.close_connection = True
                        self.connection.shutdown(socket.SHUT_RDWR)
                        return
                body = json.dumps(worker.port).encode()
                self.send_response(200 if worker.ready or self.path != "/health/ready" else 503)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = _answer  # noqa: N815 - names of the library

            def log_message(self, format: str, *arguments: object) -> None:
                """Nobody reads it."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections from now on."""
        self._server.shutdown()
        self._server.server_close()


class Front:
    """HAProxy, to be asked."""

    def __init__(self, port: int, tls_port: int) -> None:
        self.port, self.tls_port = port, tls_port

    def ask(self, method: str = "GET", **headers: str) -> tuple[int, str, bytes]:
        """Status, content type and body; each time on a new connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience_s(5))
        try:
            connection.request(method, "/predict?zone=a", headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers.get("Content-Type", ""), answer.read()
        finally:
            connection.close()

    def answers_from(self, asked: int = 20) -> Counter[object]:
        """Who answers how often; what is no good answer counts under its status."""
        found = [self.ask() for _ in range(asked)]
        return Counter(json.loads(body) if status == 200 else f"status {status}" for status, _, body in found)


@contextmanager
def running(folder: Path, *workers: Worker, tls: dict[str, str] | None = None) -> Iterator[Front]:
    """The configuration as it is, but for its ports and where the workers are."""
    port, numbers = free_port(), iter(range(100))
    servers = "\n".join(f"    server worker{{}} 127.0.0.1:{worker.port}" for worker in workers)
    text = CONFIGURATION.read_text().replace("bind :8000", f"bind 127.0.0.1:{port}")
    tls_port = free_port()
    text = text.replace("bind :8443", f"bind 127.0.0.1:{tls_port}")
    text, changed = re.subn(
        r"^    server-template worker 8 ray-worker:8000$",
        lambda _: re.sub(r"\{\}", lambda _: str(next(numbers)), servers), text, flags=re.MULTILINE,
    )  # fmt: skip
    assert changed == 2
    (folder / "haproxy.cfg").write_text(text)
    with (folder / "haproxy.log").open("wb") as log:
        process = subprocess.Popen(
            [probe_ingress().binary, "-db", "-f", str(folder / "haproxy.cfg")],
            stdout=log,
            stderr=log,
            env=os.environ | (tls or {}),
        )
        try:
            front = Front(port, tls_port)
            until(lambda: _listens(port), "HAProxy listens")
            yield front
        finally:
            process.terminate()
            process.wait(10)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    """Two of them, stopped in the end."""
    both = [Worker(), Worker()]
    yield both
    for worker in both:
        worker.stop()


def test_a_worker_that_dies_costs_no_request(tmp_path: Path, workers: list[Worker]) -> None:
    """Neither what is on its way nor what comes: another worker is asked instead."""
    gone, left = workers
    with running(tmp_path, *workers) as front:
        until(lambda: len(front.answers_from()) == 2, "both answer")
        gone.breaks = True
        assert front.answers_from(40) == {left.port: 40}
        assert gone.asked["GET"] >= 2
        gone.stop()
        assert front.answers_from(40) == {left.port: 40}


@pytest.mark.thorough
def test_a_replica_without_forecasts_is_not_asked(tmp_path: Path, workers: list[Worker]) -> None:
    """One that has just started would say that there is no such zone; where no other is, it is asked, and says so."""
    new, old = workers
    new.ready = False
    with running(tmp_path, *workers) as front:
        until(lambda: front.answers_from() == {old.port: 20}, "the new one is left out")
        new.ready = True
        until(lambda: len(front.answers_from()) == 2, "both answer")
        new.ready = old.ready = False
        time.sleep(2)
        assert set(front.answers_from()) == {new.port, old.port}


def test_an_order_is_not_given_twice(tmp_path: Path, workers: list[Worker]) -> None:
    """Whether it was carried out nobody knows where the answer is missing: its sender is told."""
    with running(tmp_path, *workers) as front:
        until(lambda: len(front.answers_from()) == 2, "both answer")
        for worker in workers:
            worker.breaks = True
        status, kind, body = front.ask("POST")
        assert (status, kind) == (502, "application/problem+json")
        assert json.loads(body)["status"] == 502
        assert sum(worker.asked["POST"] for worker in workers) == 1


def test_no_worker_is_a_problem_like_all_others(tmp_path: Path, workers: list[Worker]) -> None:
    """With a sentence, as the API's own."""
    for worker in workers:
        worker.stop()
    with running(tmp_path, *workers) as front:
        status, kind, body = front.ask()
    assert (status, kind) == (503, "application/problem+json")
    assert json.loads(body)["detail"] == "no API replica answers now"


def test_who_asks_is_said_by_the_front_alone(tmp_path: Path, workers: list[Worker]) -> None:
    """The limits go by it: a client that names another address must not be believed."""
    with running(tmp_path, *workers) as front:
        front.ask(**{"X-Forwarded-For": "10.9.9.9"})
    said = [address for worker in workers for address in worker.forwarded]
    assert said == ["127.0.0.1"]


@pytest.mark.thorough
def test_https_with_a_certificate_that_is_renewed(tmp_path: Path) -> None:
    """As front.sh starts it: beside HTTP it speaks HTTPS, and a new certificate is shown without a restart. Without a
    certificate nothing listens there.
    """
    worker, given = Worker(), tmp_path / "tls"
    given.mkdir()
    with running(tmp_path, worker) as front, pytest.raises(ConnectionRefusedError):
        ssl.get_server_certificate(("127.0.0.1", front.tls_port))
    cert_file, _ = make_certificate(given)
    places = {"FRONT_PEM": str(tmp_path / "front.pem"), "FRONT_SOCKET": str(tmp_path / "s")}
    follow = [sys.executable, "-m", "services.runtime.certificate", str(given), *places.values()]
    subprocess.run([*follow, "--once"], check=True)
    with running(tmp_path, worker, tls=places) as front:
        follower = subprocess.Popen(follow)
        try:
            trusted = ssl.create_default_context(cafile=str(cert_file))
            connection = http.client.HTTPSConnection(
                "localhost", front.tls_port, timeout=patience_s(5), context=trusted
            )
            until(lambda: front.ask()[0] == 200, "the worker is found")
            connection.request("GET", "/predict?zone=a")
            assert connection.getresponse().status == 200
            make_certificate(given)
            until(
                lambda: ssl.get_server_certificate(("127.0.0.1", front.tls_port)) == cert_file.read_text(),
                "the renewed one is shown",
            )
        finally:
            follower.kill()
            follower.wait()
    worker.stop()


def test_a_certificate_that_cannot_be_used_stops_the_front_with_a_sentence(tmp_path: Path) -> None:
    """Not HAProxy with an error of its own."""
    command = [sys.executable, "-m", "services.runtime.certificate", str(tmp_path), str(tmp_path / "p"), "s", "--once"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "cannot be used: [Errno 2] No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr
