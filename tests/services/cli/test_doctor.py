"""The doctor: each check looks, says what it found, and what to do."""

from __future__ import annotations

import json
import os
import shutil
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from edge.wire.reading import Sample
from edge.wire.vocabulary import VOCABULARY
from services.app import System
from services.cli import app
from services.cli.setup import doctor, doctor_broker, doctor_servers
from services.cli.setup.check import Check, CheckState
from services.cli.setup.doctor import examine
from services.config import load_settings, named_files
from services.errors import ConfigError
from services.ingest.windows.partition_windows import PartitionWindows
from services.store.deadletters import DeadLetters
from tests.conftest import require_env
from tests.patience import patience_s
from tests.services.ingest.samples import STEP, T0, record, sample


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def check_of(name: str, **settings: object) -> Check:
    """The check of that name under these settings."""
    return next(check for check in examine(load_settings(**{"api": {"port": 0}, **settings})) if check.name == name)


def test_a_healthy_machine_has_nothing_failing() -> None:
    """With default settings and a free port no check that does not depend on the machine's load fails."""
    checks = examine(load_settings(api={"port": 0}))
    assert [
        check for check in checks if check.state is CheckState.FAIL and check.name not in ("memory", "data folder")
    ] == []
    assert {"configuration", "Python", "packages", "data folder", "clock", "ports", "MQTT broker"} <= {
        c.name for c in checks
    }


def test_what_is_not_configured_is_not_asked() -> None:
    """InfluxDB, MLflow and a cluster are only checked when they are configured."""
    names = {check.name for check in examine(load_settings(api={"port": 0}))}
    assert not names & {"InfluxDB", "MLflow", "Ray cluster"}


def test_a_port_in_use_is_found() -> None:
    """A port that somebody listens on fails, and the advice names the setting."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        check = check_of("ports", api={"port": server.getsockname()[1]})
    assert check.state is CheckState.FAIL
    assert "api.port" in check.advice


def test_a_port_of_devices_in_use_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the broker that Mosquitto's package starts; not so where it is ours. Without `mqtt.listen` any will do."""
    monkeypatch.chdir(tmp_path)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        mqtt = {"listen": "0.0.0.0", "port": server.getsockname()[1]}
        check = check_of("ports", mqtt=mqtt)
        assert check.state is CheckState.FAIL
        assert "systemctl disable --now mosquitto" in check.advice
        assert "mqtt.port" in check.advice
        (tmp_path / "hothouse-data").mkdir()
        (tmp_path / "hothouse-data" / "run.json").write_text(json.dumps({"pid": os.getpid()}))
        assert check_of("ports", mqtt=mqtt).state is CheckState.OK
        (tmp_path / "hothouse-data" / "run.json").unlink()
    assert check_of("ports", mqtt=mqtt).state is CheckState.OK
    nowhere = check_of("ports", mqtt={**mqtt, "listen": "192.0.2.1"})
    assert nowhere.state is CheckState.FAIL
    assert "mqtt.listen" in nowhere.advice


def test_a_port_of_two_settings_is_found() -> None:
    """Also while it is free."""
    check = check_of("ports", api={"port": 8123}, mqtt={"listen": "127.0.0.1", "port": 8123})
    assert check.state is CheckState.FAIL
    assert "api.port and mqtt.port are both 8123" in check.found


def test_a_broker_that_runs_already_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one is started beside it, which its devices do not reach; a port of another program is no broker."""
    monkeypatch.setattr(doctor_broker, "TIMEOUT_S", 0.3)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        mqtt = {"port": server.getsockname()[1]}
        assert "beside" not in check_of("MQTT broker", mqtt=mqtt).found
    with broker_that_refuses() as port:
        check = check_of("MQTT broker", mqtt={"port": port})
    assert check.state is CheckState.WARN
    assert f"on a free port, beside the broker that answers at port {port}" in check.found
    assert "mqtt.host" in check.advice


@contextmanager
def broker_that_refuses() -> Iterator[int]:
    """A broker on loopback that wants another login (a CONNACK of code 5); its port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1024)
            self.request.sendall(b"\x20\x02\x00\x05")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_no_broker_is_promised_that_is_not_started(tmp_path: Path) -> None:
    """That of a system that runs is named; where its port is taken that is said once; and with a gateway elsewhere
    there is none.
    """
    (tmp_path / "hothouse-data").mkdir()
    told = tmp_path / "hothouse-data" / "run.json"
    told.write_text(json.dumps({"pid": os.getpid(), "mqtt": {"host": "127.0.0.1", "port": 4711}}))
    assert check_of("MQTT broker").found == "the Hothouse that runs here has one at 127.0.0.1:4711"
    told.unlink()
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        mqtt = {"listen": "127.0.0.1", "port": server.getsockname()[1]}
        assert check_of("ports", mqtt=mqtt).state is CheckState.FAIL
        assert "MQTT broker" not in names_of(mqtt=mqtt)
    assert "MQTT broker" not in names_of(mqtt={"gateway": "elsewhere"})


def names_of(**settings: object) -> list[str]:
    """The checks that are made under these settings."""
    return [check.name for check in examine(load_settings(**{"api": {"port": 0}, **settings}))]


def test_a_missing_secret_file_is_found() -> None:
    """A setting that names a file which is not there fails by name."""
    check = check_of("files", mqtt={"password_file": "gone"}, sites=[{"name": "demo", "rules_file": "none"}])
    assert check.state is CheckState.FAIL
    assert "mqtt.password_file = gone, sites[0].rules_file = none" in check.found


def test_a_full_folder_for_temporary_files_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room there is nothing to say of it."""
    assert "temporary files" not in [check.name for check in examine(load_settings())]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
    assert check_of("temporary files").state is CheckState.FAIL


def test_a_secret_file_that_cannot_be_read_or_is_empty_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a broker only says that it does not know us. An installation of before has an empty session secret."""
    (secret := tmp_path / "secret").touch(mode=0o600)
    check = check_of("files", mqtt={"password_file": secret, "session_secret_file": secret})
    assert (check.state, check.found) == (CheckState.WARN, f"mqtt.password_file = {secret}: an empty file")
    secret.write_text("x")
    assert check_of("files", mqtt={"password_file": secret}).state is CheckState.OK
    monkeypatch.setattr(os, "access", lambda path, _: path != secret)
    check = check_of("files", mqtt={"password_file": secret})
    assert (check.state, check.found) == (CheckState.FAIL, f"mqtt.password_file = {secret}: cannot be read")


def test_every_setting_that_names_a_file_is_looked_at() -> None:
    """But for what is written."""
    said = {"password_file": "x", "tls_ca_file": "x"}
    settings = load_settings(
        mqtt=said, kafka=said, uplink=said, influx={"token_file": "x"}, storage={"credentials_file": "x"},
        api={"read_key_file": "x", "tls_cert_file": "x", "tls_key_file": "x"}, client={"key_file": "x"},
        alerts={"rules_file": "x", "webhook_secret_file": "x", "smtp_password_file": "x"},
        traces={"headers_file": "x"}, weather={"key_file": "x"}, sites=[{"name": "demo", "rules_file": "x"}],
        gateway={"status_file": "x"},
    )  # fmt: skip
    named = dict(named_files(settings))
    assert len(named) == 18
    assert "gateway.status_file" not in named


def test_rules_that_are_none_are_found(tmp_path: Path) -> None:
    """`hothouse up` would not start on them."""
    (tmp_path / "rules.toml").write_text("crop = 7\n")
    check = check_of("files", alerts={"rules_file": "rules.toml"})
    assert check.state is CheckState.FAIL
    assert "alerts.rules_file" in check.found


def test_a_secret_that_every_user_can_read_is_a_warning(tmp_path: Path) -> None:
    """A certificate may be read; who is in its group may read a secret, as a container is."""
    for name, mode in (("password", 0o644), ("group", 0o640), ("ca.crt", 0o644), ("operator.key", 0o644)):
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(mode)
    of = {"data_dir": tmp_path, "influx": {"token_file": "group"}}
    check = check_of("files", mqtt={"password_file": "password", "tls_ca_file": "ca.crt"}, **of)
    assert check.state is CheckState.WARN
    assert check.found == f"every user of this machine can read password, {tmp_path / 'operator.key'}"
    for name in ("password", "operator.key"):
        (tmp_path / name).chmod(0o600)
    assert check_of("files", mqtt={"password_file": "password"}, **of).state is CheckState.OK


def test_a_misspelt_variable_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is no setting does not stop the start, but is shown."""
    monkeypatch.setenv("HOTHOUSE_STREM__STEP_S", "60")
    check = check_of("configuration")
    assert check.state is CheckState.WARN
    assert "HOTHOUSE_STREM__STEP_S" in check.found


def test_a_decoder_that_is_not_installed_is_found(tmp_path: Path) -> None:
    """It fails here as at the start, which stops before anything runs; a gateway elsewhere has packages of its own."""
    check = check_of("decoders", gateway={"decoders": ["plant"]})
    assert check.state is CheckState.FAIL
    assert "'plant', which no installed package offers" in check.found
    settings = load_settings(data_dir=tmp_path / "data", gateway={"decoders": ["plant"]})
    with pytest.raises(ConfigError, match="'plant', which no installed package offers"), System(settings):
        pass
    assert list(tmp_path.iterdir()) == []
    elsewhere = load_settings(mqtt={"gateway": "elsewhere"}, gateway={"decoders": ["plant"]})
    assert doctor._decoders(elsewhere) is None


def test_a_data_folder_that_cannot_be_made_fails(tmp_path: Path) -> None:
    """A data folder below something that is no folder fails with the reason."""
    (tmp_path / "file").write_text("")
    check = check_of("data folder", data_dir=tmp_path / "file" / "data")
    assert check.state is CheckState.FAIL
    assert "data_dir" in check.advice


def test_a_sensor_of_another_unit_is_named_until_it_is_mended(tmp_path: Path) -> None:
    """From the newest dead letter about it, in any partition; a data folder without letters is not judged."""
    settings = load_settings(api={"port": 0})
    assert "units" not in {check.name for check in examine(settings)}
    rows = {zone: [wet(zone, n, 0.62) for n in range(20)] for zone in ("z1", "z2")}
    rows["z2"] += [wet("z2", n, 71.0) for n in range(20, 25)]
    for partition, samples in enumerate(rows.values()):
        windows = PartitionWindows(STEP, 0, 60_000, VOCABULARY)
        found = windows.feed([record(n, [each]) for n, each in enumerate(samples)])
        dead_letters = DeadLetters(settings.storage_folder, partition)
        dead_letters.put(found.dead_letters)
    check = check_of("units")
    assert check.state is CheckState.WARN
    assert check.found == "z1/climate rh_pct looks like a share (0.62 to 0.62): send percent"
    assert "hothouse change" in check.advice


def wet(zone: str, number: int, rh_pct: float) -> Sample:
    """One sample a row."""
    return sample(T0 + number * STEP, number, zone, rh_pct=rh_pct)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("MQTT broker", {"mqtt": {"host": "127.0.0.1", "port": 1}}),
        ("InfluxDB", {"influx": {"url": "http://127.0.0.1:1"}}),
        ("MLflow", {"learn": {"mlflow_uri": "http://127.0.0.1:1"}}),
        ("Ray cluster", {"ray": {"address": "127.0.0.1:1"}}),
    ],
)
def test_a_server_that_is_away_fails(name: str, settings: dict[str, object]) -> None:
    """A configured server that does not answer fails, with its address and the setting to look at."""
    check = check_of(name, **settings)
    assert check.state is CheckState.FAIL
    assert "127.0.0.1:1" in check.found
    assert check.advice.startswith("Check ")


def test_a_server_that_says_nothing_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that accepts and never answers fails after the time-out."""
    monkeypatch.setattr(doctor_broker, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(doctor_servers, "TIMEOUT_S", 0.3)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        for name, settings in (
            ("MQTT broker", {"mqtt": {"host": "127.0.0.1", "port": port}}),
            ("InfluxDB", {"influx": {"url": f"http://127.0.0.1:{port}"}}),
        ):
            check = check_of(name, **settings)
            assert check.state is CheckState.FAIL
            if name == "MQTT broker":
                assert check.advice == "Check mqtt.host, mqtt.port and mqtt.tls_ca_file."
    with broker_that_refuses() as port:
        assert "mqtt.password_file" in check_of("MQTT broker", mqtt={"host": "127.0.0.1", "port": port}).advice


def test_what_is_in_brackets_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of an extra is no markup: what to do is to be copied as it stands."""
    check = Check("cluster part", CheckState.WARN, "without ray", "pip install '.[cluster]' in Hothouse's folder")
    monkeypatch.setattr("services.cli.setup.commands.examine", lambda settings: [check])
    shown = CliRunner().invoke(app, ["doctor"]).output
    assert "[cluster]" in shown


def test_an_old_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version out of its range fails, naming package, version and range."""
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: ["numpy>=999", 'nosuchpackage>=1; extra == "cluster"'])
    check = check_of("packages")
    assert check.state is CheckState.FAIL
    assert "numpy" in check.found
    assert "999" in check.found
    assert "nosuchpackage" not in check.found


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real servers may be busy with other tests."""
    monkeypatch.setattr("services.cli.setup.doctor_servers.TIMEOUT_S", patience_s(30))


@pytest.mark.broker
def test_a_real_broker_answers(patient: None) -> None:
    """A Mosquitto that runs is found by the check."""
    host, _, port = require_env("HOTHOUSE_TEST_MQTT").rpartition(":")
    assert check_of("MQTT broker", mqtt={"host": host, "port": int(port)}).state is CheckState.OK


@pytest.mark.influx
def test_a_real_influxdb_answers_and_a_wrong_token_fails(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """InfluxDB passes with its token; with another one the check says to look at the token."""
    url = require_env("HOTHOUSE_TEST_INFLUXDB_URL")
    influx = {
        "url": url,
        "org": require_env("HOTHOUSE_TEST_INFLUXDB_ORG"),
        "bucket": require_env("HOTHOUSE_TEST_INFLUXDB_BUCKET"),
    }
    monkeypatch.setenv("HOTHOUSE_INFLUX__TOKEN", require_env("HOTHOUSE_TEST_INFLUXDB_TOKEN"))
    assert check_of("InfluxDB", influx=influx).state is CheckState.OK
    monkeypatch.setenv("HOTHOUSE_INFLUX__TOKEN", "somebody:else")
    wrong = check_of("InfluxDB", influx=influx)
    assert (wrong.state, "TOKEN" in wrong.advice) == (CheckState.FAIL, True)


@pytest.mark.parametrize(
    ("to", "advice"), [("mqtt://127.0.0.1:1", "uplink."), ("kafka://127.0.0.1:1/t", "uplink."), ("ftp://x", "uplink.")]
)
@pytest.mark.thorough
def test_an_uplink_that_does_not_answer_is_found(to: str, advice: str) -> None:
    """A central side that is away, or an address that is none, fails with the settings to look at."""
    check = check_of("uplink", uplink={"to": to})
    assert check.state is CheckState.FAIL
    assert to in check.found
    assert advice in check.advice


@pytest.mark.broker
def test_an_uplink_that_answers_is_fine(patient: None) -> None:
    """A central broker that lets us in passes."""
    check = check_of("uplink", uplink={"to": f"mqtt://{require_env('HOTHOUSE_TEST_MQTT')}"})
    assert check.state is CheckState.OK, check
