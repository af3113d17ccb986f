"""The container entry point of the gateway, run as a container would run it, but without one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edge.log import partition_of
from edge.log.sqlite import SqliteLog
from edge.wire.samples import decode_samples
from tests.broker.conftest import ROOT, GatewayProcess, device, local_broker, until
from tests.patience import patience_s

pytestmark = pytest.mark.broker

SCRIPT = ROOT / "deploy" / "gateway-entrypoint.sh"


@contextmanager
def started(environment: dict[str, object], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The script, run with nothing but this environment; it is gone in the end."""
    given = {"PATH": os.environ["PATH"], "PYTHON": sys.executable, **{k: str(v) for k, v in environment.items()}}
    command = [str(SCRIPT), *arguments]
    with subprocess.Popen(command, env=given, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_environment_and_secret_files_become_a_running_gateway(tmp_path: Path) -> None:
    """It connects with the secret's password, appends what devices send, and SIGTERM reaches it: exit code 0, soon.
    What it writes is readable by its user only.
    """
    with local_broker(tmp_path / "broker", "mosquitto") as broker:
        data, secrets = tmp_path / "data", tmp_path / "secrets"
        data.mkdir()
        secrets.mkdir()
        (secrets / "password").write_text(broker.password + "\n")
        (secrets / "session-secret").write_text("random")
        environment: dict[str, object] = {
            "HOTHOUSE_DATA_DIR": data, "HOTHOUSE_MQTT__HOST": "127.0.0.1", "HOTHOUSE_MQTT__PORT": broker.port,
            "HOTHOUSE_MQTT__USERNAME": broker.username, "HOTHOUSE_MQTT__CLIENT_ID": "in a container",
            "GATEWAY_SECRETS_DIR": secrets,
        }  # fmt: skip
        with started(environment) as process:
            status = data / "gateway-status.json"
            until(lambda: status.exists() and json.loads(status.read_text())["connected"])
            publisher = GatewayProcess(broker.address, tmp_path)
            with device(broker.address) as publish:
                publish(publisher.messages(range(20)))
            until(lambda: json.loads(status.read_text())["samples"] == 20)
            process.send_signal(signal.SIGTERM)
            assert process.wait(patience_s(60)) == 0
    log = SqliteLog(data / "log.sqlite")
    records = log.read(partition_of(publisher.site, 4), 0, 1000)
    assert [s.seq for r in records if r.kind == "samples" for s in decode_samples(r.payload)] == list(range(20))
    log.close()
    assert {oct(path.stat().st_mode & 0o077) for path in data.iterdir()} == {"0o0"}


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"HOTHOUSE_MQTT__PASSWORD": "secret"}, "mqtt.password is not a setting"),
        ({"HOTHOUSE_UPLINK__PASSWORD": "secret"}, "uplink.password is not a setting"),
        ({"HOTHOUSE_MQTT__NONSENSE": "1"}, "mqtt.nonsense is not a setting"),
        ({"GATEWAY_OPTION_HOST": "broker"}, "--host is the setting mqtt.host now"),
        ({"GATEWAY_OPTION_PASSWORD": "secret"}, "--password"),
        ({"HOTHOUSE_DATA_DIR": "/proc/nowhere"}, "mount a volume"),
    ],
)
def test_a_wrong_environment_is_one_sentence_and_exit_code_2(
    tmp_path: Path, environment: dict[str, object], said: str
) -> None:
    """A secret in a variable, a setting that is none or was renamed, a folder that cannot be written: it is named."""
    with started({"HOTHOUSE_DATA_DIR": tmp_path, **environment}) as process:
        _, error = process.communicate(timeout=patience_s(30))
    assert process.returncode == 2
    assert said in error
    assert "secret" not in error
    assert "Traceback" not in error
