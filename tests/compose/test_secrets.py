"""`make secrets`, without a Docker: who may read its files, what its rules allow, and that it keeps what is there."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def deploy(tmp_path: Path) -> Path:
    """The folder with the script and a list of logins; `docker`, which hashes passwords, only writes its arguments."""
    folder = tmp_path / "deploy"
    (folder / "mosquitto").mkdir(parents=True)
    shutil.copy(ROOT / "deploy/secrets.sh", folder)
    (folder / "mosquitto/logins").write_text(
        "# comment\nporch demo/z1/porch\nhouse demo/_site/weather demo/z1/climate clock\n"
    )
    fake = tmp_path / "bin" / "docker"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/docker.log\n')
    fake.chmod(0o700)
    return folder


def make(deploy: Path) -> None:
    """Run it."""
    path = f"{deploy.parent}/bin:{os.environ['PATH']}"
    subprocess.run([deploy / "secrets.sh"], check=True, env={"PATH": path}, capture_output=True)


def test_files_are_their_owners_alone(deploy: Path) -> None:
    """Every secret has mode 0600, in a folder of mode 0700, and is long."""
    make(deploy)
    files = list((deploy / "secrets").iterdir())
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE((deploy / "secrets").stat().st_mode) == 0o700
    names = {file.name for file in files}
    assert names >= {
        "ray_token",
        "influx_token",
        "storage_credentials",
        "mqtt_gateway",
        "gateway_session",
        "system_session",
        "mqtt_porch",
        "mqtt_house",
        "mosquitto_acl",
    }
    assert len((deploy / "secrets/ray_token").read_text()) == 64


def test_what_is_there_stays(deploy: Path) -> None:
    """A second run changes no secret; one that was deleted is made anew, another than before."""
    make(deploy)
    before = {file.name: file.read_text() for file in (deploy / "secrets").iterdir()}
    (deploy / "secrets/mqtt_porch").unlink()
    make(deploy)
    after = {file.name: file.read_text() for file in (deploy / "secrets").iterdir()}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"mqtt_porch", "mosquitto_passwords"}


def test_gateways_of_before_keep_their_sessions(deploy: Path) -> None:
    """Where gateways have a login already, no secret goes into their client ids until somebody writes one."""
    make(deploy)
    secret = deploy / "secrets/gateway_session"
    assert len(secret.read_text()) == 64
    secret.unlink()
    for _ in range(2):
        make(deploy)
        assert secret.read_text() == ""


def test_a_login_writes_for_its_devices_and_reads_nothing(deploy: Path) -> None:
    """The rules of a login name its own devices' topics one by one; the gateway alone reads."""
    make(deploy)
    rules = (deploy / "secrets/mosquitto_acl").read_text()
    by_login = {
        part.splitlines()[0]: part.splitlines()[1:] for part in rules.strip().removeprefix("user ").split("\n\nuser ")
    }
    assert by_login["porch"] == [
        f"topic write hothouse/v1/demo/z1/porch/{kind}" for kind in ("sample", "plan", "event")
    ]
    assert "topic write hothouse/v1/_clock" in by_login["house"]
    assert [login for login, lines in by_login.items() if any(" read " in line for line in lines)] == ["gateway"]
    assert "topic read hothouse/#" in by_login["gateway"]
    assert not any("#" in line or "+" in line for login in ("porch", "house") for line in by_login[login])
    assert by_login["system"] == [
        f"topic write hothouse/v1/+/+/{what}" for what in ("+/event", "+/plan", "alert/+")
    ]  # no sample


def test_the_uplink_of_a_site_writes_its_records_alone(deploy: Path) -> None:
    """Also those on topics that name no site: refused, they would hold up all that come after them."""
    (deploy / "mosquitto/logins").write_text("north-uplink north/_uplink\n")
    make(deploy)
    rules = (deploy / "secrets/mosquitto_acl").read_text()
    assert rules.endswith(
        "\nuser north-uplink\n"
        "topic write hothouse/v1/north/_uplink/+/record\n"
        "topic write hothouse/v1/_unknown/_uplink/+/record\n"
    )


def test_the_last_login_counts_without_the_end_of_its_line(deploy: Path) -> None:
    """Editors that end no last line would take the login away, and its device could not log in."""
    (deploy / "mosquitto/logins").write_text("porch demo/z1/porch\nshed demo/z1/shed")
    make(deploy)
    assert "topic write hothouse/v1/demo/z1/shed/sample" in (deploy / "secrets/mosquitto_acl").read_text().splitlines()
    assert (deploy / "secrets/mqtt_shed").is_file()


def test_home_assistant_reads_what_the_system_writes_for_it(deploy: Path) -> None:
    """And announces that it has started, which the system reads; no other login writes or reads any of it."""
    (deploy / "mosquitto/logins").write_text("ha homeassistant\nporch demo/z1/porch\n")
    make(deploy)
    rules = (deploy / "secrets/mosquitto_acl").read_text()
    of = {part.split("\n")[0]: set(part.split("\n")[1:]) for part in rules.strip().split("user ")[1:]}
    assert of["ha"] >= {
        "topic readwrite homeassistant/#", "topic read hothouse/state/#", "topic read hothouse/presence/#",
    }  # fmt: skip
    assert of["system"] >= {
        "topic write homeassistant/device/+/config", "topic write hothouse/state/#",
        "topic write hothouse/presence/+", "topic read homeassistant/status",
    }  # fmt: skip
    assert not [rule for rule in of["porch"] if "homeassistant" in rule or "state" in rule]


def test_no_secret_is_an_argument(deploy: Path) -> None:
    """What hashes the passwords is told a file, not them."""
    make(deploy)
    said = (deploy.parent / "docker.log").read_text()
    passwords = [file.read_text() for file in (deploy / "secrets").glob("mqtt_*")]
    assert "mosquitto_passwd" in said
    assert not any(password in said for password in passwords)


def test_nobody_has_a_login_of_ours(deploy: Path) -> None:
    """Its rules would be added to those of the gateway, or of the system."""
    (deploy / "mosquitto/logins").write_text("system demo/z1/porch\n")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        make(deploy)
    assert b"system is a login of our own" in refused.value.stderr


def test_the_profile_is_written_beside_other_settings(deploy: Path) -> None:
    """Somebody may have put a port there before; what they chose themselves stays."""
    (deploy / ".env").write_text("HOTHOUSE_PORT=8123\n")
    make(deploy)
    assert (deploy / ".env").read_text().splitlines()[:2] == ["HOTHOUSE_PORT=8123", "COMPOSE_PROFILES=full"]


@pytest.mark.parametrize(
    "device", ["demo/porch", "demo/z+1/porch", "demo/z1/porch#", "demo/z1/a/b", "demo/*/porch", "de+mo/_uplink"]
)
def test_a_device_that_is_none_is_refused(deploy: Path, device: str) -> None:
    """A line that names no site/zone/device stops it; the broker could not read its whole file of rules."""
    (deploy / "mosquitto/logins").write_text(f"porch {device}\n")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        make(deploy)
    said = f"{device} is no site/zone/device, site/_uplink, clock or homeassistant"
    assert said in refused.value.stderr.decode()


def test_a_login_that_is_none_is_refused(deploy: Path) -> None:
    """With a colon in it, the broker's file of passwords would name another login."""
    (deploy / "mosquitto/logins").write_text("a:b demo/z1/porch\n")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        make(deploy)
    assert "a:b is no login" in refused.value.stderr.decode()


def test_lines_may_end_as_windows_ends_them(deploy: Path) -> None:
    """The broker's rules have no carriage return, and a + that stands alone is any zone."""
    (deploy / "mosquitto/logins").write_bytes(b"porch demo/z1/porch\r\nshed demo/+/shed\r\n")
    make(deploy)
    rules = (deploy / "secrets/mosquitto_acl").read_text()
    assert "topic write hothouse/v1/demo/z1/porch/sample\n" in rules
    assert "topic write hothouse/v1/demo/+/shed/plan\n" in rules
    assert "\r" not in rules + (deploy / "secrets/mosquitto_passwords").read_text()
    assert not (deploy / "secrets/logins").exists()


def test_a_run_that_ends_early_leaves_the_brokers_files_as_they_are(deploy: Path) -> None:
    """A broker that starts again meanwhile would know a part of its logins, or passwords that are no hashes."""
    make(deploy)
    secrets = deploy / "secrets"
    before = {file.name: file.read_text() for file in secrets.iterdir()}
    logins = deploy / "mosquitto/logins"
    listed = logins.read_text()

    logins.write_text("porch demo/porch\n" + listed)  # a mistake in the first line
    with pytest.raises(subprocess.CalledProcessError):
        make(deploy)
    assert {file.name: file.read_text() for file in secrets.iterdir()} == before

    logins.write_text(listed)
    (deploy.parent / "bin/docker").write_text("#!/bin/sh\nexit 125\n")  # as where its engine does not run
    with pytest.raises(subprocess.CalledProcessError):
        make(deploy)
    assert {file.name: file.read_text() for file in secrets.iterdir()} == before


def test_root_gives_the_files_to_the_user_that_containers_run_as(deploy: Path) -> None:
    """Who ran it first: with `sudo` in an upgrade, the user in .env could no longer read the secrets."""
    (deploy / ".env").write_text("HOTHOUSE_UID=1234\n")
    for name, text in {"id": "echo 0", "chown": f'echo "$@" >{deploy.parent}/chown.log'}.items():
        (deploy.parent / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (deploy.parent / "bin" / name).chmod(0o700)
    make(deploy)
    assert (deploy.parent / "chown.log").read_text() == "-R 1234:1234 secrets\n"
    assert (deploy / ".env").read_text().count("HOTHOUSE_UID=") == 1


def test_another_user_than_that_of_the_containers_is_refused(deploy: Path) -> None:
    """As where the folder was brought to another machine: containers could not read what is made now."""
    (deploy / ".env").write_text("HOTHOUSE_UID=1234\n")
    fake = deploy.parent / "bin/id"
    fake.write_text("#!/bin/sh\necho 1000\n")
    fake.chmod(0o700)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        make(deploy)
    assert b"containers run as user 1234" in refused.value.stderr
    assert not (deploy / "secrets").exists()


@pytest.mark.parametrize("uid", ["alice", "1000:1000", "0", "-1"])
def test_a_user_that_is_no_number_is_refused_before_anything_is_made(deploy: Path, uid: str) -> None:
    """`chown` would say so at the end, when all files are root's; and a 0 would run containers as root."""
    (deploy / ".env").write_text(f"HOTHOUSE_UID={uid}\n")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        make(deploy)
    assert f"is '{uid}': it is the number of a user" in refused.value.stderr.decode()
    assert not (deploy / "secrets").exists()


def test_an_empty_user_is_filled_in(deploy: Path) -> None:
    """Compose would else take 10001, who cannot read what another user made."""
    (deploy / ".env").write_text("HOTHOUSE_UID=\n")
    fake = deploy.parent / "bin/id"
    fake.write_text("#!/bin/sh\necho 1000\n")
    fake.chmod(0o700)
    make(deploy)
    assert (deploy / ".env").read_text().splitlines() == ["HOTHOUSE_UID=", "COMPOSE_PROFILES=full", "HOTHOUSE_UID=1000"]


def test_the_image_that_env_names_hashes_the_passwords(deploy: Path) -> None:
    """Where no public registry can be reached, it is the only one there."""
    (deploy / ".env").write_text("MOSQUITTO_IMAGE=registry.example/mosquitto:2.0.22\n")
    make(deploy)
    assert "mosquitto_passwd registry.example/mosquitto:2.0.22 -U" in (deploy.parent / "docker.log").read_text()


def test_settings_without_the_end_of_their_last_line_stay(deploy: Path) -> None:
    """What is written behind it is a line of its own."""
    (deploy / ".env").write_text("HOTHOUSE_PORT=8123")
    make(deploy)
    assert (deploy / ".env").read_text().splitlines()[:2] == ["HOTHOUSE_PORT=8123", "COMPOSE_PROFILES=full"]


def test_containers_read_their_settings_whoever_cloned_them(deploy: Path) -> None:
    """With umask 077 what is mounted was its owner's alone, who is neither Prometheus nor, for root, any container."""
    served = deploy / "grafana/dashboards/site.json"
    served.parent.mkdir(parents=True)
    served.write_text("{}")
    for path in (deploy / "grafana", served.parent):
        path.chmod(0o700)
    served.chmod(0o600)
    make(deploy)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (deploy / "grafana", served.parent)} == {0o755}
    assert stat.S_IMODE(served.stat().st_mode) == 0o644
