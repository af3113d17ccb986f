"""The API's certificate: what cannot be used is told, and what HAProxy is asked."""

from __future__ import annotations

import logging
import socket
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from services.cli.setup.check import CheckState
from services.cli.setup.doctor import _certificate
from services.config import load_settings
from services.errors import ConfigError, StartError
from services.runtime.certificate import Certificate, checked
from services.runtime.ingress import Ingress, serve_environment
from tests.certificates import make_certificate


class HAProxy:
    """Its admin socket: keeps what it is asked, and answers as told."""

    def __init__(self, folder: Path, answers: list[bytes]) -> None:
        self.asked: list[bytes] = []
        self._answers = answers
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(folder / "s"))
        self._socket.listen()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for answer in self._answers:
            connection, _ = self._socket.accept()
            with connection:
                asked = b""
                while not asked.endswith(b"\n\n" if b"<<" in asked else b"\n"):
                    asked += connection.recv(65_536)
                self.asked.append(asked)
                connection.sendall(answer)


def certificate(folder: Path) -> Certificate:
    return Certificate(*make_certificate(folder), folder / "tls.pem", lambda: str(folder / "s"))


def test_the_copy_is_its_owners_alone(tmp_path: Path) -> None:
    """It has the key."""
    certificate(tmp_path)
    assert stat.S_IMODE((tmp_path / "tls.pem").stat().st_mode) == 0o600
    text = (tmp_path / "tls.pem").read_text()
    assert "BEGIN CERTIFICATE" in text
    assert "PRIVATE KEY" in text
    assert "\n\n" not in text


@pytest.mark.parametrize("wrong", ["no file", "junk", "another key", "passphrase"])
def test_what_cannot_be_used_is_told_with_its_files(tmp_path: Path, wrong: str) -> None:
    """At the start; nobody is asked for a passphrase."""
    cert_file, key_file = make_certificate(tmp_path, passphrase=b"secret" if wrong == "passphrase" else None)
    if wrong == "no file":
        key_file.unlink()
    elif wrong == "junk":
        cert_file.write_text("junk")
    elif wrong == "another key":
        (tmp_path / "other").mkdir()
        key_file = make_certificate(tmp_path / "other")[1]
    with pytest.raises(StartError, match=f"the certificate {cert_file} and its key {key_file} cannot be used") as error:
        checked(cert_file, key_file)
    assert "without a passphrase" in error.value.hint


def test_a_renewed_one_is_given_to_haproxy(tmp_path: Path) -> None:
    """Once, in a text without empty lines, which would end it."""
    kept, haproxy = certificate(tmp_path), HAProxy(tmp_path, [b"Transaction created\n", b"Committing. Success!\n"])
    kept.renew()
    assert haproxy.asked == []
    files = make_certificate(tmp_path)
    kept.renew()
    kept.renew()
    first, second = haproxy.asked
    pem = str(tmp_path / "tls.pem").encode()
    assert first == b"set ssl cert %s <<\n%s\n" % (pem, checked(*files))
    assert second == b"commit ssl cert %s\n" % pem
    assert (tmp_path / "tls.pem").read_bytes() == checked(*files)


def test_one_that_cannot_be_used_or_is_not_taken_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And tried again: half a renewal may be on the disk for a moment."""
    caplog.set_level(logging.WARNING)
    kept = certificate(tmp_path)
    before = (tmp_path / "tls.pem").read_bytes()
    (tmp_path / "cert.pem").write_text("half")
    kept.renew()
    kept.renew()
    assert len(caplog.messages) == 1
    assert "cannot be used" in caplog.messages[0]
    assert (tmp_path / "tls.pem").read_bytes() == before
    make_certificate(tmp_path)
    haproxy = HAProxy(tmp_path, [b"unable\n", b"Transaction created\n", b"Success!\n"])
    kept.renew()
    assert "HAProxy did not take the renewed certificate, and is asked again: unable" in caplog.messages[1]
    kept.renew()
    assert len(haproxy.asked) == 3
    assert len(caplog.messages) == 2


def test_it_says_until_when_the_one_that_is_used_is_good(tmp_path: Path) -> None:
    """Not the one in the files, which may be one that cannot be used, or that HAProxy has not taken."""
    kept, now_s = certificate(tmp_path), time.time()

    def days_left() -> float:
        assert kept.ends_ms is not None
        return (kept.ends_ms / 1000 - now_s) / 86_400

    assert 29.9 < days_left() < 30.1
    make_certificate(tmp_path, 90)
    kept.renew()  # nobody listens at HAProxy's socket
    assert 29.9 < days_left() < 30.1
    HAProxy(tmp_path, [b"Transaction created\n", b"Success!\n"])
    kept.renew()
    assert 89.9 < days_left() < 90.1


def test_one_whose_form_is_none_has_no_end(tmp_path: Path) -> None:
    """OpenSSL takes it, with what it says of trust behind it, and nothing of the system's figures is lost."""
    cert_file, _ = make_certificate(tmp_path)
    trusted = ["openssl", "x509", "-in", str(cert_file), "-trustout", "-addtrust", "serverAuth", "-out", str(cert_file)]
    subprocess.run(trusted, check=True)
    made = Certificate(cert_file, tmp_path / "key.pem", tmp_path / "tls.pem", lambda: "")
    assert made.ends_ms is None
    api = {"tls_cert_file": str(cert_file), "tls_key_file": str(tmp_path / "key.pem")}
    found = _certificate(load_settings(api=api))
    assert found is not None
    assert (found.state, "does not tell when it ends" in found.found) == (CheckState.WARN, True)


def test_settings_that_do_not_fit_are_told(tmp_path: Path) -> None:
    """A certificate without its key, without a port, without HAProxy."""
    cert_file, key_file = map(str, make_certificate(tmp_path))
    with pytest.raises(ConfigError, match="belong together"):
        load_settings(api={"tls_cert_file": cert_file})
    with pytest.raises(ConfigError, match="port must be named"):
        load_settings(api={"tls_cert_file": cert_file, "tls_key_file": key_file, "port": 0})
    settings = load_settings(api={"tls_cert_file": cert_file, "tls_key_file": key_file})
    with pytest.raises(StartError, match="TLS needs HAProxy: not on this system"):
        serve_environment(Ingress("proxy", "not on this system"), tmp_path, settings.api)


@pytest.mark.parametrize(
    ("days", "state"), [(30, CheckState.OK), (13, CheckState.WARN), (-1, CheckState.FAIL), (None, CheckState.FAIL)]
)
def test_the_doctor_says_until_when_it_is_valid(tmp_path: Path, days: int | None, state: CheckState) -> None:
    """And warns in time."""
    cert_file, key_file = make_certificate(tmp_path, days or 0)
    if days is None:
        key_file.write_text("junk")
    found = _certificate(load_settings(api={"tls_cert_file": str(cert_file), "tls_key_file": str(key_file)}))
    assert found is not None
    assert found.state == state
    assert ("ends on" in found.found) == (days is not None)
    assert _certificate(load_settings()) is None
