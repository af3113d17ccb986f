"""`make kubernetes-secrets`, without a cluster: the broker's certificate has the names that were asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy/kubernetes/secrets.sh"

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def test_a_name_that_is_added_later_is_in_a_new_certificate(tmp_path: Path) -> None:
    """The same names again change nothing; nothing about Redis changes either."""
    for folder in ("deploy/kubernetes", "deploy/secrets", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "deploy/kubernetes")
    kubectl = tmp_path / "bin/kubectl"
    kubectl.write_text("#!/bin/sh\n")
    kubectl.chmod(0o700)

    def made(*names: str) -> tuple[bytes, bytes]:
        environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
        script = tmp_path / "deploy/kubernetes/secrets.sh"
        subprocess.run([script, "hothouse", *names], check=True, env=environment, capture_output=True)
        tls = tmp_path / "deploy/secrets/tls"
        return (tls / "tls.crt").read_bytes(), (tls / "redis.crt").read_bytes()

    first = made("broker.example")
    assert made("broker.example") == made() == first
    second = made("broker.new")
    assert (second[0] != first[0], second[1]) == (True, first[1])
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-text"], input=second[0], check=True, capture_output=True
    ).stdout.decode()
    assert "DNS:mosquitto.hothouse.svc" in shown
    assert "DNS:broker.new" in shown
