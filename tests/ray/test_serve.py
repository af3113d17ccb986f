"""Serving on Ray: swaps under load, bad artefacts, killed replicas; loopback only, and nothing left behind."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from models import artefact
from models.features.inputs import build_inputs
from models.network.quantile import QuantileNetwork
from models.spec import Place
from services.config import Settings, load_settings
from services.demo.probe import Probe
from services.forecast_spec import forecast_spec
from services.installation import app_name_of, namespace_of
from services.messages import FORECASTER_DEPLOYMENT, ForecastRequest, shard_actor
from services.runtime.ingress import probe_ingress
from services.runtime.ray_runtime import RayRuntime
from services.serve.deployment import ServingActors, start_actors, start_serving
from tests.patience import patience_s, until
from tests.ray.fake_shard import FakeShard
from tests.ray.runtime import processes
from tests.services.serve.fakes import ORIGIN_MS, zone_forecast

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


class Serving:
    """What the tests talk to."""

    def __init__(self, settings: Settings, url: str, actors: ServingActors, shard: Any) -> None:
        self.settings, self.url, self.actors, self.shard = settings, url, actors, shard
        self.http = httpx.Client(base_url=url, timeout=patience_s(30), trust_env=False)

    def champion(self, version: str, folder: Path) -> None:
        """Set the model pointer as the retrainer does."""
        import ray

        ray.get(self.actors.pointer.set.remote(version, str(folder)), timeout=patience_s(60))

    def swap_to(self, version: str, folder: Path) -> None:
        """Set the model pointer, and wait until the replica serves it."""
        self.champion(version, folder)
        # One that Serve has replaced is reported for a while yet.
        until(lambda: version in [replica["version"] for replica in self.replicas()], f"{version} serves")

    def replicas(self) -> list[dict[str, Any]]:
        """What the Forecaster replicas report."""
        import ray

        return list(ray.get(self.actors.pointer.status.remote(), timeout=patience_s(60))["replicas"].values())

    def forecast(self) -> str:
        """Run the model as a shard does; the version that answered."""
        from ray import serve

        spec = forecast_spec(self.settings)
        request = ForecastRequest(
            schema_hash=spec.hash, sites=["demo"], origin_ms=np.array([ORIGIN_MS], np.int64),
            values=np.full((1, spec.lookback_steps, len(spec.channels)), 20, np.float32),
            baseline=np.full((1, len(spec.horizons_min), len(spec.targets), 3), 20, np.float32),
        )  # fmt: skip
        handle = serve.get_deployment_handle(FORECASTER_DEPLOYMENT, app_name_of(self.settings))
        return str(handle.forecast.remote(request).result(timeout_s=patience_s(30))["version"])


def live(process: psutil.Process) -> bool:
    """Whether it still runs: one that has ended and was not waited for yet does not."""
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def save_model(settings: Settings, name: str) -> Path:
    """A real artefact with untrained weights."""
    spec = forecast_spec(settings)
    values = np.full((2, spec.lookback_steps, len(spec.channels)), 20, np.float32)
    baseline = np.full((2, len(spec.horizons_min), len(spec.targets), 3), 20, np.float32)
    golden = build_inputs(values, np.full(2, ORIGIN_MS, np.int64), [Place()] * 2, baseline, spec)
    folder = settings.storage_folder / "models" / name
    artefact.save(folder, QuantileNetwork(spec, hidden=8), golden, trained_on={}, seed=0, metrics={})
    return folder


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One zone on a live state, a Forecaster that follows the model pointer, the API; all ended afterwards."""
    before = set(psutil.Process().children(recursive=True))
    data_dir = tmp_path_factory.mktemp("data")
    settings = load_settings(
        data_dir=data_dir, api={"port": 0, "proxies": ["127.0.0.1", "10.0.0.7"], "rate_per_s": 1, "rate_burst": 20},
        ray={"num_cpus": 2, "object_store_mb": 100},
        forecast={"lookback_hours": 2},
    )  # fmt: skip
    with RayRuntime(settings):
        import ray

        actors = start_actors(settings)
        options = {"name": shard_actor(0), "namespace": namespace_of(settings), "num_cpus": 0}
        shard = ray.remote(FakeShard).options(**options).remote(settings)
        url = start_serving(settings)
        ray.get(actors.live_states[0].publish.remote([zone_forecast()]), timeout=patience_s(60))
        made = Serving(settings, url, actors, shard)
        until(lambda: made.http.get("/health/ready").status_code == 200, "the API is ready")
        yield made
        made.http.close()
    left = [process for process in psutil.Process().children(recursive=True) if process not in before]
    until(lambda: not any(map(live, left)), "no process was left behind")
    assert not (data_dir / "runtime.json").exists()


def test_everything_listens_on_loopback_only(serving: Serving) -> None:
    """No port of ours is open to other machines, but a replica's gRPC port, which the Ray token guards."""
    ours = [psutil.Process(), *psutil.Process().children(recursive=True)]
    open_ports = []
    for process in ours:
        try:
            found = [c for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN]
        except psutil.NoSuchProcess:
            continue
        open_ports += [(process.name(), c.laddr) for c in found if "127.0.0.1" not in c.laddr.ip]
    assert open_ports
    assert all(name.startswith("ray::Serve") and address.ip == "::" for name, address in open_ports), open_ports


def test_a_client_is_known_behind_the_ingress(serving: Serving) -> None:
    """Each replica sees the ingress's address alone; the limit is that of the address which a proxy before it saw."""
    asked = [
        serving.http.get("/zones", headers={"X-Forwarded-For": f"9.9.9.{n}, 10.0.0.8, 10.0.0.7"}).status_code
        for n in range(40)
    ]
    assert asked[:20] == [200] * 20
    assert 429 in asked[20:]
    assert {serving.http.get("/zones").status_code for _ in range(40)} == {200}  # this machine has no limit


@pytest.mark.thorough
def test_who_sends_headers_slowly_or_without_end_is_cut_off(serving: Serving) -> None:
    """By HAProxy, after ten seconds, or once they fill its buffer. Serve's own proxy has no such limits."""
    if probe_ingress().kind != "haproxy":
        pytest.skip("no HAProxy here")
    url = httpx.URL(serving.url)
    head = b"GET /zones HTTP/1.1\r\nHost: x\r\n"
    slow = [socket.create_connection((url.host, url.port or 80), timeout=patience_s(60)) for _ in range(100)]
    try:
        for connection in slow:
            connection.sendall(head)
        with socket.create_connection((url.host, url.port or 80), timeout=patience_s(60)) as endless:
            with suppress(OSError):
                endless.sendall(head + b"X-A: " + bytes([97]) * 1_000_000)
            with suppress(OSError):
                assert b" 400 " in endless.recv(64)
        assert serving.http.get("/zones").status_code == 200
        for connection in slow:
            assert b" 408 " in connection.recv(64)
    finally:
        for connection in slow:
            connection.close()


def test_secrets_are_the_owners_only(serving: Serving) -> None:
    """The Ray token and the operator's key can be read by their owner only."""
    for name in ("ray.token", "operator.key"):
        assert (serving.settings.data_dir / name).stat().st_mode & 0o777 == 0o600


def test_swaps_under_load_fail_no_request(serving: Serving) -> None:
    """While champions change, every /predict is answered, and each answer is of one version."""
    folders = {f"v{number}": save_model(serving.settings, f"v{number}") for number in (1, 2, 3)}
    stop, failures = threading.Event(), list[str]()
    versions = {name: Counter[str]() for name in ("predict", "rows", "forecast")}

    def ask(what: Callable[[], str], name: str) -> None:
        while not stop.wait(0.02):
            try:
                versions[name][what()] += 1
            except Exception as error:  # each kind counts as a failed request
                failures.append(f"{name}: {error!r}")

    def predict() -> str:
        answer = serving.http.get("/predict", params={"zone": "north-1"})
        answer.raise_for_status()
        return str(answer.json()["model_version"])

    def of_rows() -> str:
        body = {"zone": "north-1", "rows": [{"end_ms": ORIGIN_MS, "values": {"air_temp_c": 20, "vent_lee_pct": 50}}]}
        answer = serving.http.post("/predict", json=body)
        answer.raise_for_status()
        return str(answer.json()["model_version"])

    threads = [
        threading.Thread(target=ask, args=call)
        for call in ((predict, "predict"), (of_rows, "rows"), (serving.forecast, "forecast"))
    ]
    for thread in threads:
        thread.start()
    try:
        for version, folder in folders.items():
            serving.swap_to(version, folder)
            until(
                lambda version=version: versions["rows"][version] and versions["forecast"][version],
                f"{version} answers",
            )
        until(lambda: min(answers.total() for answers in versions.values()) > 10, "each has asked often")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures


def test_a_swap_has_the_last_step_computed_again(serving: Serving) -> None:
    """Shards are asked to refresh after a swap, and the live state shows it as an event."""
    import ray

    before = ray.get(serving.shard.count.remote(), timeout=patience_s(60))
    serving.champion("v10", save_model(serving.settings, "v10"))
    until(lambda: ray.get(serving.shard.count.remote(), timeout=patience_s(60)) > before, "the shard was refreshed")
    until(
        lambda: any(
            e["kind"] == "serving" and e["version"] == "v10" for e in serving.http.get("/status").json()["events"]
        ),
        "the swap is shown",
    )


def test_a_corrupt_champion_leaves_the_old_one(serving: Serving) -> None:
    """A champion whose weights were altered is not served; its reason is shown to operators."""
    good = save_model(serving.settings, "v20")
    serving.swap_to("v20", good)
    bad = save_model(serving.settings, "v21")
    weights = bad / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    serving.champion("v21", bad)
    until(lambda: any(r["error"] for r in serving.replicas()), "the reason is reported")
    assert serving.forecast() == "v20"
    report = next(iter(serving.http.get("/status").json()["slot"]["replicas"].values()))
    assert (report["version"], "altered" in report["error"]) == ("v20", True)
    until(lambda: serving.http.get("/health/ready").json()["degraded"] == ["forecaster"], "/health/ready names it", 30)
    until(lambda: "hothouse_forecaster_replicas_failing" in serving.http.get("/metrics").text, "it is a metric", 30)
    serving.swap_to("v22", save_model(serving.settings, "v22"))
    until(lambda: not serving.http.get("/health/ready").json()["degraded"], "nothing fails any more", 30)


def test_a_killed_controller_costs_no_request_and_stops_no_swap(serving: Serving) -> None:
    """After kill -9 of Serve's controller requests are answered on, by the replicas that were there; a champion that is
    set while it is away serves; and it comes back.
    """
    import ray
    from ray import serve

    def knows_the_application() -> bool:
        with suppress(ray.exceptions.RayError, KeyError):
            return serve.status().applications[app_name_of(serving.settings)].status == "RUNNING"
        return False

    serving.swap_to("v25", save_model(serving.settings, "v25"))
    next_one = save_model(serving.settings, "v26")
    zones = [("demo", "north-1")]
    probes = {
        "GET": Probe(serving.url, zones),
        "POST": Probe(serving.url, zones, 5.0, [{"end_ms": ORIGIN_MS, "values": {"air_temp_c": 20.0}}]),
    }
    replicas = {process.pid for process in processes("ray::ServeReplica:hothouse:")}
    for probe in probes.values():
        probe.start()
    try:
        until(lambda: probes["POST"].versions["v25"], "v25 answers")
        (killed,) = processes("ray::ServeController")
        killed.kill()
        until(lambda: not live(killed), "the controller is gone")
        serving.swap_to("v26", next_one)
        until(lambda: probes["POST"].versions["v26"], "v26 answers")
        until(lambda: processes("ray::ServeController"), "the controller is back")
        until(knows_the_application, "it knows the application again")
        asked = len(probes["GET"].latencies_ms)
        until(lambda: len(probes["GET"].latencies_ms) > asked + 100, "requests are answered on")
    finally:
        for probe in probes.values():
            probe.stop()
    # An answer that takes longer than a second says how busy the machine is, and is left out.
    failed = {name: {kind for kind in probe.result()["failures"] if "Timeout" not in kind}
              for name, probe in probes.items()}  # fmt: skip
    assert not any(failed.values()), failed
    assert {process.pid for process in processes("ray::ServeReplica:hothouse:")} == replicas


def test_a_killed_forecaster_comes_back_with_the_champion(serving: Serving) -> None:
    """After kill -9 of the replica, /predict answers on, and a new replica serves the model pointer's champion."""
    serving.swap_to("v30", save_model(serving.settings, "v30"))
    for process in processes("ray::ServeReplica:hothouse:Forecaster"):
        process.kill()
    assert serving.http.get("/predict", params={"zone": "north-1"}).status_code == 200

    def answers() -> bool:
        try:
            return serving.forecast() == "v30"
        except Exception:
            return False

    until(answers, "the new replica serves v30", 120)


def test_a_killed_live_state_is_found_again(serving: Serving) -> None:
    """After the live state was killed, replicas still answer, and hear of what is published to the new one."""
    import ray

    ray.kill(serving.actors.live_states[0], no_restart=False)
    assert serving.http.get("/predict", params={"zone": "north-1"}).status_code == 200

    def heard_of() -> bool:
        with suppress(ray.exceptions.RayError):  # also the live state that is being killed may take it
            ray.get(serving.actors.live_states[0].publish.remote([zone_forecast("after")]), timeout=patience_s(5))
        return serving.http.get("/predict?zone=after").status_code == 200

    until(heard_of, "the new live state takes forecasts, and the API hears of them")
