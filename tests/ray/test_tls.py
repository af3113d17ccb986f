"""The API by HTTPS."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import httpx
import pytest

from services.app import System
from services.cli.running.client import Client
from services.config import load_settings
from services.runtime.ingress import probe_ingress
from services.runtime.ports import free_port
from tests.certificates import make_certificate
from tests.patience import patience_s, until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.mark.thorough
def test_https_with_a_certificate_that_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who trusts it gets answers, old versions of TLS and plain HTTP get none; a renewed one is shown soon, and an open
    connection goes on. Programs of this machine ask at loopback without it.
    """
    if probe_ingress().kind != "haproxy":
        pytest.skip(f"TLS needs HAProxy: {probe_ingress().reason}")
    cert_file, key_file = make_certificate(tmp_path)
    port = free_port()
    settings = load_settings(
        data_dir=tmp_path / "data", learn={"retrain_every_s": 0},
        api={"port": port, "tls_cert_file": str(cert_file), "tls_key_file": str(key_file)},
    )  # fmt: skip

    def trusting() -> httpx.Client:
        trusted, address = ssl.create_default_context(cafile=str(cert_file)), f"https://localhost:{port}"
        stay = httpx.Limits(keepalive_expiry=None)
        return httpx.Client(base_url=address, verify=trusted, limits=stay, timeout=patience_s(20), trust_env=False)

    def shown() -> str:
        return ssl.get_server_certificate(("127.0.0.1", port))

    def renewed_beside_an_open_connection() -> bool:
        with trusting() as client:
            assert client.get("/health/live").status_code == 200
            before = shown()
            make_certificate(tmp_path)
            until(lambda: shown() == cert_file.read_text() != before, "the renewed one is shown")
            try:
                return client.get("/health/live").status_code == 200
            except httpx.ConnectError:  # Ray Serve had HAProxy read its settings anew, which ends what is idle
                return False

    with System(settings) as system, trusting() as client:
        assert system.shown_url == f"https://127.0.0.1:{port}"
        assert client.get("/health/live").json() == {"status": "live"}
        assert system.url.startswith("http://127.0.0.1:")
        assert httpx.get(f"{system.url}/health/live", timeout=patience_s(20), trust_env=False).status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"http://127.0.0.1:{port}/health/live", timeout=patience_s(20), trust_env=False)
        old = ssl.create_default_context(cafile=str(cert_file))
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        with socket.create_connection(("127.0.0.1", port)) as plain, pytest.raises(ssl.SSLError):
            old.wrap_socket(plain, server_hostname="localhost")
        monkeypatch.setenv("SSL_CERT_FILE", str(cert_file))
        assert Client(f"https://localhost:{port}").get("/health/live") == {"status": "live"}, "as commands ask"
        until(renewed_beside_an_open_connection, "a certificate is renewed and an open connection goes on")
        with trusting() as another:
            assert another.get("/health/live").status_code == 200
