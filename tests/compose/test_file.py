"""The compose file: valid for every profile, its containers may do little, one port is published."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require_program

pytestmark = pytest.mark.compose

FILE = Path(__file__).parents[2] / "deploy" / "compose.yaml"
FULL = {
    "simulator", "mosquitto-volume", "mosquitto", "gateway", "kafka", "influxdb", "influxdb-setup", "mlflow",
    "prometheus", "alertmanager", "storage-volume", "storage", "ray-head", "ray-worker", "front", "service",
}  # fmt: skip
MINIMAL = {"simulator", "mosquitto-volume", "mosquitto", "gateway-to-file", "standalone"}


def configuration(profile: str, *more: Path, **variables: str) -> dict[str, Any]:
    """What Compose makes of the file, and of ``more`` over it, without the folder's `.env`."""
    profiles = [f"--profile={one}" for one in profile.split(",")]
    files = [word for file in (FILE, *more) for word in ("-f", str(file))]
    command = [require_program("docker"), "compose", *files, "--env-file", "/dev/null", *profiles]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", **variables}
    done = subprocess.run([*command, "config", "--format", "json"], capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("profile", "services"), [("full", FULL), ("minimal", MINIMAL)])
def test_a_profile_is_valid_and_has_its_services(profile: str, services: set[str]) -> None:
    """Each profile has exactly the containers that docs/containers.md lists."""
    assert set(configuration(profile)["services"]) == services


def test_grafana_is_added_to_the_full_profile() -> None:
    """It sees its dashboards and sources, reads its secrets from files, and is on loopback."""
    services = configuration("full,grafana", GRAFANA_PORT="3999")["services"]
    assert set(services) == {*FULL, "grafana"}
    grafana = services["grafana"]
    folder = FILE.parent / "grafana"
    assert {Path(volume["source"]) for volume in grafana["volumes"]} == {folder / "dashboards", folder / "provisioning"}
    assert {secret["source"] for secret in grafana["secrets"]} == {"grafana_password", "influx_token"}
    assert [(port["host_ip"], port["published"]) for port in grafana["ports"]] == [("127.0.0.1", "3999")]
    provider = (folder / "provisioning/dashboards/hothouse.yml").read_text()
    assert {volume["target"] for volume in grafana["volumes"]} >= {re.findall(r"path: ([\w/-]+)", provider)[0]}


def test_a_gpu_is_added_to_the_full_profile() -> None:
    """A Ray worker that reserves and offers one, of an image of its own, which the front finds among the workers."""
    services = configuration("full,gpu")["services"]
    assert set(services) == {*FULL, "ray-gpu"}
    gpu, worker = services["ray-gpu"], services["ray-worker"]
    (device,) = gpu["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", 1, ["gpu"])
    assert "--num-gpus=1" in gpu["command"]
    assert gpu["build"]["args"]["ACCELERATOR"] == "cuda"
    assert worker["build"]["args"]["ACCELERATOR"] == "cpu"
    assert gpu["image"] != worker["image"]
    assert gpu["networks"]["core"]["aliases"] == ["ray-worker"]
    same = ("environment", "secrets", "healthcheck", "depends_on", "read_only", "cap_drop", "user")
    assert {name: gpu[name] for name in same} == {name: worker[name] for name in same}


@pytest.mark.parametrize("profile", ["full", "minimal"])
def test_one_port_on_loopback(profile: str) -> None:
    """Only the API is published, on 127.0.0.1, where HOTHOUSE_PORT says."""
    services = configuration(profile, HOTHOUSE_PORT="9999")["services"].values()
    ports = [port for service in services for port in service.get("ports", [])]
    assert [(port["host_ip"], port["published"], port["target"]) for port in ports] == [("127.0.0.1", "9999", 8000)]


def test_https_is_published_where_it_is_asked_for() -> None:
    """HTTP stays on loopback."""
    found = configuration("full", FILE.with_name("compose.tls.yaml"), HOTHOUSE_TLS_FOLDER="/somewhere")["services"]
    ports = [port for service in found.values() for port in service.get("ports", [])]
    said = [(port.get("host_ip"), port["published"], port["target"]) for port in ports]
    assert said == [("127.0.0.1", "8000", 8000), ("0.0.0.0", "8443", 8443)]
    (folder,) = [one for one in found["front"]["volumes"] if one["source"] == "/somewhere"]
    assert folder["read_only"]
    assert found["front"]["environment"]["FRONT_TLS_FOLDER"] == folder["target"]


@pytest.mark.parametrize("profile", ["full", "minimal"])
def test_devices_reach_the_broker_where_it_is_asked_for(profile: str) -> None:
    """No greenhouse is simulated then, time is the wall clock's, and sites are where the variable says."""
    sites = '[{"name": "farm"}]'
    services = configuration(profile, FILE.with_name("compose.devices.yaml"), HOTHOUSE_SITES=sites)["services"]
    (port,) = services["mosquitto"]["ports"]
    assert (port["host_ip"], port["published"], port["target"]) == ("0.0.0.0", "1883", 1883)
    assert set(services["mosquitto"]["networks"]) == {"field", "devices"}
    assert services["simulator"]["scale"] == 0
    (system,) = [one for name, one in services.items() if name in ("service", "standalone")]
    (gateway,) = [one for name, one in services.items() if name in ("gateway", "gateway-to-file")]
    clocks = {one["environment"]["HOTHOUSE_GATEWAY__CLOCK"] for one in (system, gateway)}
    assert (clocks, system["environment"]["HOTHOUSE_SITES"]) == ({"wall"}, sites)


def test_what_the_page_writes_into_env_holds_for_every_later_command(tmp_path: Path) -> None:
    """Without it an `up` after a backup would start the simulator again, beside the devices."""
    page = (FILE.parents[1] / "docs/containers.md").read_text()
    devices, tls = re.findall(r"cat >>\.env <<'END'\n(.+?)END\n", page, re.DOTALL)
    for text, service in ((devices, "mosquitto"), (tls, "front")):
        (tmp_path / "env").write_text(text)
        command = [
            require_program("docker"),
            "compose",
            "--env-file",
            str(tmp_path / "env"),
            "--profile=full",
            "config",
        ]
        done = subprocess.run([*command, "--format", "json"], cwd=FILE.parent, capture_output=True, check=True)
        services = json.loads(done.stdout)["services"]
        assert "0.0.0.0" in {port.get("host_ip") for port in services[service]["ports"]}
        assert services["simulator"].get("scale", 1) == (0 if text is devices else 1)


@pytest.mark.parametrize("profile", ["full,gpu", "minimal"])
def test_our_containers_may_do_little(profile: str) -> None:
    """What is built here runs read-only, without capabilities, and as a user that is not root."""
    ours = [service for service in configuration(profile)["services"].values() if "build" in service]
    assert ours
    for service in ours:
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["user"].split(":")[0] not in ("", "0", "root")


@pytest.mark.parametrize(("profile", "name"), [("full", "gateway"), ("minimal", "gateway-to-file")])
def test_no_device_guesses_the_gateways_client_id(profile: str, name: str) -> None:
    """The broker would give it what it keeps for the gateway. The id is made with a secret of the gateway alone."""
    services = configuration(profile)["services"]
    gateway = services[name]
    (target,) = [one["target"] for one in gateway["secrets"] if one["source"] == "gateway_session"]
    assert gateway["environment"]["HOTHOUSE_MQTT__SESSION_SECRET_FILE"] == f"/run/secrets/{Path(target).name}"
    having = [each for each in services if "gateway_session" in str(services[each].get("secrets"))]
    assert having == [name]


@pytest.mark.parametrize("profile", ["full", "minimal"])
def test_no_device_guesses_the_systems_client_id(profile: str) -> None:
    """It could cut Home Assistant's link off. All that publish for the system have the secret, and nobody else."""
    services = configuration(profile)["services"]

    def has(name: str, secret: str) -> bool:
        return any(one["source"] == secret for one in services[name].get("secrets", ()))

    publishing = [name for name in services if has(name, "mqtt_system")]
    assert publishing
    assert publishing == [name for name in services if has(name, "system_session")]
    setting = "HOTHOUSE_MQTT__SESSION_SECRET_FILE"
    said = {services[name]["environment"].get(setting) for name in publishing if name in ("service", "standalone")}
    assert said == {"/run/secrets/system_session"}


def test_one_worker_or_the_head_may_be_lost() -> None:
    """A replica of each kind on each of two workers, a front before them, and a head that finds its state again."""
    services = configuration("full")["services"]
    settings = services["service"]["environment"]
    workers = services["ray-worker"]["scale"]
    replicas = settings["HOTHOUSE_API__REPLICAS"], settings["HOTHOUSE_RAY__FORECASTER_REPLICAS"]
    assert (workers, replicas, settings["HOTHOUSE_RAY__REPLICAS_PER_NODE"]) == (2, ("2", "2"), "1")
    assert [name for name, service in services.items() if service.get("ports")] == ["front"]
    head = services["ray-head"]
    kept = [
        volume["target"]
        for volume in head["volumes"]
        if head["environment"]["RAY_gcs_storage_path"].startswith(volume["target"])
    ]
    assert kept == ["/var/lib/hothouse"]
    for node in ("ray-head", "ray-worker", "service"):
        assert int(services[node]["environment"]["RAY_gcs_rpc_server_reconnect_timeout_s"]) >= 300


def test_the_head_takes_no_work_and_all_nodes_want_the_token() -> None:
    """As on Kubernetes: --num-cpus=0 on the head, RAY_AUTH_MODE=token on every node."""
    services = configuration("full")["services"]
    assert "--num-cpus=0" in services["ray-head"]["command"]
    for node in ("ray-head", "ray-worker", "service"):
        assert services[node]["environment"]["RAY_AUTH_MODE"] == "token"


@pytest.mark.parametrize("profile", ["full", "minimal"])
def test_no_disk_is_shared_but_for_a_log_in_a_file(profile: str) -> None:
    """A node of the cluster may be lost with its disk, and be on another machine than the others."""
    services = configuration(profile)["services"]
    writers: dict[str, set[str]] = {}
    for name, service in services.items():
        for volume in service.get("volumes", []):
            if volume["type"] == "volume" and volume.get("source"):
                writers.setdefault(volume["source"], set()).add(name.removesuffix("-volume"))
    shared = {volume: names for volume, names in writers.items() if len(names) > 1}
    assert shared == ({"hothouse": {"gateway-to-file", "standalone"}} if profile == "minimal" else {})
    if profile == "full":
        for node in ("ray-head", "ray-worker", "service"):
            mounted = [volume for volume in services[node]["volumes"] if volume["target"] == "/var/lib/hothouse"]
            assert len(mounted) == 1
            assert "storage_credentials" in {secret["source"] for secret in services[node]["secrets"]}


def test_images_can_be_others() -> None:
    """Every image is overridden by its variable."""
    parts = (
        "HOTHOUSE_CLUSTER",
        "HOTHOUSE_EDGE",
        "KAFKA",
        "INFLUXDB",
        "MOSQUITTO",
        "PROMETHEUS",
        "ALERTMANAGER",
        "VERSITYGW",
    )
    names = [f"{part}_IMAGE" for part in parts]
    services = configuration("full", **{name: f"mine/{name.lower()}" for name in names})["services"]
    assert all(service["image"].startswith("mine/") for service in services.values())


def test_the_docs_back_up_every_volume() -> None:
    """Both loops of docs/containers.md name each volume of the profile full, but for those that they say are left out;
    what is copied in a container goes to its volume, not to its memory.
    """
    text = (FILE.parents[1] / "docs" / "containers.md").read_text()
    section = text.partition("\n## Back up\n")[2].partition("\n## ")[0]
    said = [set(names.split()) for names in re.findall(r"for volume in (.+); do", section)]
    left_out = set(re.findall(r"`(\w+)`", section.partition("Left out are ")[2].partition(".")[0]))
    volumes = configuration("full")["volumes"]
    assert said == [set(volumes) - left_out] * 2
    assert {volume["name"] for volume in volumes.values()} == {f"hothouse_{name}" for name in volumes}
    assert re.findall(r"-v \"(\S+)\$volume:", section) == ["${project}_"] * 2
    minimal = configuration("minimal")
    targets = {volume["source"]: volume["target"] for volume in minimal["services"]["standalone"]["volumes"]}
    assert targets == {"hothouse": "/var/lib/hothouse"}
    assert minimal["volumes"]["hothouse"]["name"] == "hothouse_hothouse"


def test_the_docs_know_a_project_of_another_name() -> None:
    """A volume that is not there Docker makes, and the file of a backup would be empty."""
    text = (FILE.parents[1] / "docs" / "containers.md").read_text()
    asked = set(re.findall(r"^project=.*$", text, re.M))
    assert len(asked) == 1
    script = f"{asked.pop()}; echo $project"
    require_program("docker")
    for more in ({}, {"COMPOSE_PROJECT_NAME": "mine"}):
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", **more}
        said = subprocess.run(["sh", "-c", script], cwd=FILE.parent, capture_output=True, env=environment, check=True)
        assert said.stdout.decode().strip() == (more.get("COMPOSE_PROJECT_NAME") or configuration("full")["name"])
