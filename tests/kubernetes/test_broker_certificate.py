"""`make kubernetes-secrets`, without a cluster: the broker's certificate has the names that were asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy/kubernetes/secrets.sh"

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., tuple[bytes, bytes]]:
    """Runs the script for these names of the broker, and returns the certificates of broker and Redis."""
    for folder in ("deploy/kubernetes", "deploy/secrets", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "deploy/kubernetes")
    kubectl = tmp_path / "bin/kubectl"
    kubectl.write_text("#!/bin/sh\n")
    kubectl.chmod(0o700)

    said = tmp_path / "said"

    def made(*names: str) -> tuple[bytes, bytes]:
        environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
        script = tmp_path / "deploy/kubernetes/secrets.sh"
        done = subprocess.run([script, "hothouse", *names], check=True, env=environment, capture_output=True)
        said.write_bytes(done.stdout)
        tls = tmp_path / "deploy/secrets/tls"
        return (tls / "tls.crt").read_bytes(), (tls / "redis.crt").read_bytes()

    return made


def shown(certificate: bytes, *options: str) -> str:
    """What openssl says of it."""
    command = ["openssl", "x509", "-noout", *options]
    return subprocess.run(command, input=certificate, check=True, capture_output=True).stdout.decode()


def test_a_name_that_is_added_later_is_in_a_new_certificate(made: Callable[..., tuple[bytes, bytes]]) -> None:
    """The same names again change nothing; nothing about Redis changes either."""
    first = made("broker.example")
    assert made("broker.example") == made() == first
    second = made("broker.new")
    assert (second[0] != first[0], second[1]) == (True, first[1])
    text = shown(second[0], "-text")
    assert "DNS:mosquitto.hothouse.svc" in text
    assert "DNS:broker.new" in text


def test_it_says_until_when_certificates_are_good(made: Callable[..., tuple[bytes, bytes]], tmp_path: Path) -> None:
    """Devices, gateways and Redis' clients stop at that moment; nothing else in the cluster looks at it."""
    said = [f"until {shown(certificate, '-enddate').strip().partition('=')[2]}" for certificate in made()]
    assert all(words in (tmp_path / "said").read_text() for words in said)


def test_devices_may_reach_the_broker_by_its_address(made: Callable[..., tuple[bytes, bytes]]) -> None:
    """A client that was given an address looks for it among a certificate's addresses, not among its names."""
    addresses = ("192.0.2.7", "2001:db8::7")
    first, _ = made("broker.example", *addresses)
    for address in addresses:
        assert f"IP {address} does match certificate" in shown(first, "-checkip", address)
    assert made("broker.example", *addresses)[0] == first


@pytest.mark.parametrize("wrong", ["broker.example:8883", "192.0.2.7:8883", "300.1.1.1", "2001:db8::zz", "a b", ""])
def test_what_is_neither_name_nor_address_is_refused(wrong: str, made: Callable[..., tuple[bytes, bytes]]) -> None:
    """To openssl any certificate is one of such an address, and a new one cannot be made for it."""
    first = made("broker.example")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        made("broker.example", "broker.new", wrong)
    assert refused.value.stderr.decode().startswith(f"'{wrong}' is neither a name nor an address: ")
    assert made("broker.example") == first


@pytest.mark.parametrize("name", ["192.0.2.7.nip.io", "broker", "0.example"])
def test_a_name_may_begin_with_digits(name: str, made: Callable[..., tuple[bytes, bytes]]) -> None:
    """What has a letter, and is no address, is a name."""
    assert f"DNS:{name}" in shown(made(name)[0], "-text")
