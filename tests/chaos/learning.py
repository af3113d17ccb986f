"""The learning loop as it runs: Ray Serve, model pointer, retrainer, an MLflow server, and requests that never stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import ray
from typer.testing import CliRunner

from models import artefact
from models.features.inputs import build_inputs
from models.network.quantile import QuantileNetwork
from models.spec import ForecastSpec, Place
from services.cli import app
from services.config import Settings
from services.demo.probe import Probe
from services.forecast_spec import forecast_spec
from services.installation import namespace_of
from services.learn.loop.retrainer_actor import start_retrainer
from services.messages import MODEL_POINTER_ACTOR, RETRAINER_ACTOR, shard_actor
from services.runtime.ports import free_port
from services.runtime.ray_runtime import RayRuntime
from services.serve.deployment import start_actors, start_serving
from tests.patience import patience_s
from tests.ray.learning_shard import LearningShard
from tests.ray.runtime import processes
from tests.services.learn.synthetic import START_MS, write_history
from tests.services.serve.fakes import zone_forecast

__all__ = ["Answers", "Loop", "MlflowServer"]

POST_HZ = 5.0
ROWS = [{"end_ms": START_MS, "values": {"air_temp_c": 20.0, "vent_lee_pct": 30.0}}]
"""A request that only a Forecaster can answer; GET is answered from memory."""


class MlflowServer:
    """A tracking server as a process, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port("127.0.0.1")
        self.uri = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; who needs it waits for it."""
        self._folder.mkdir(exist_ok=True)
        command = [
            sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self._port),
            "--workers", "1", "--backend-store-uri", f"sqlite:///{self._folder / 'mlflow.sqlite'}",
            "--artifacts-destination", str(self._folder / "artifacts"),
        ]  # fmt: skip
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """SIGKILL for the server and its workers."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@dataclass(frozen=True, slots=True)
class Answers:
    """Failures by reason, answers by the version that they name."""

    failures: Counter[str]
    versions: Counter[str]


class Loop:
    """Everything but the stream: history is written by :meth:`rows`, drifts are told by :meth:`drift`."""

    def __init__(self, settings: Settings, mlflow: MlflowServer) -> None:
        self.settings, self.spec, self.mlflow = settings, forecast_spec(settings), mlflow
        self.days = 0.0
        self._parts = ExitStack()

    def __enter__(self) -> Loop:
        with self._parts:  # what was begun ends where the rest cannot begin
            self._start()
            self._parts = self._parts.pop_all()
        return self

    def _start(self) -> None:
        self._parts.callback(self.mlflow.kill)
        self.mlflow.start()
        self.rows(8)
        self._parts.enter_context(RayRuntime(self.settings))
        self._actors = start_actors(self.settings)
        self._namespace = namespace_of(self.settings)
        kind = ray.remote(LearningShard).options(name=shard_actor(0), namespace=self._namespace, num_cpus=0)
        self._shard = kind.remote(self.settings)
        self.url = start_serving(self.settings)
        ray.get(self._actors.live_states[0].publish.remote([zone_forecast()]), timeout=patience_s(30))
        (self.settings.data_dir / "run.json").write_text(json.dumps({"url": self.url, "pid": os.getpid()}))
        self._retrainer = start_retrainer(self.settings)
        ray.get(self._retrainer.status.remote(), timeout=patience_s(120))
        self.until(self._lists, "MLflow answers", 240)
        zones = [("demo", "north-1")]
        self.probes = {"GET": Probe(self.url, zones), "POST": Probe(self.url, zones, POST_HZ, ROWS)}
        for probe in self.probes.values():
            self._parts.callback(probe.stop)
            probe.start()

    def __exit__(self, *_: object) -> None:
        self._parts.close()

    def _lists(self) -> bool:
        try:
            ray.get(self._retrainer.models.remote(), timeout=patience_s(30))
        except ray.exceptions.RayError:
            return False
        return True

    def answers(self) -> dict[str, Answers]:
        """What the probes have got so far, ``GET`` and ``POST``."""
        return {
            name: Answers(Counter(probe.result()["failures"]), Counter(probe.versions))
            for name, probe in self.probes.items()
        }

    def rows(self, days: float, changed_days: float = 1000.0) -> None:
        """Write rows up to so many days."""
        write_history(self.settings, days, after_days=self.days, changed_days=changed_days)
        self.days = days

    def drift(self, words: str) -> None:
        """Have the shard tell of a drift at the newest row."""
        at_ms = START_MS + round(self.days * 86_400_000)
        ray.get(self._shard.drift.remote(at_ms, words), timeout=patience_s(60))

    def retrain(self) -> dict[str, Any]:
        """One training to its end: what the retrainer says of it."""
        before = (self.status()["last_run"] or {}).get("started_ms")
        ray.get(self._retrainer.trigger.remote("test"), timeout=patience_s(30))
        self.until(lambda: (self.status()["last_run"] or {}).get("started_ms") != before, "the training ends", 900)
        return dict(self.status()["last_run"])

    def status(self) -> dict[str, Any]:
        """The retrainer's, also while it is being restarted."""
        deadline_s = time.monotonic() + patience_s(60)
        while True:
            try:
                retrainer = ray.get_actor(RETRAINER_ACTOR, self._namespace)
                return dict(ray.get(retrainer.status.remote(), timeout=patience_s(30)))
            except (ray.exceptions.RayError, ValueError):
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.2)

    def champion(self) -> str:
        """What the model pointer names."""
        pointer = ray.get_actor(MODEL_POINTER_ACTOR, self._namespace)
        return str(ray.get(pointer.get.remote(), timeout=patience_s(30))["version"])

    def replicas(self) -> dict[str, dict[str, Any]]:
        """What the Forecaster's replicas report, also one that was killed within the last minute."""
        pointer = ray.get_actor(MODEL_POINTER_ACTOR, self._namespace)
        return dict(ray.get(pointer.status.remote(), timeout=patience_s(30))["replicas"])

    def model(self, version: str) -> dict[str, Any]:
        """A model as ``GET /models`` shows it; empty where it does not."""
        rows = self.cli_json("models", "list", "--json")["models"]
        return next((dict(row) for row in rows if row["version"] == version), {})

    def await_stage(self, version: str, *stages: str, limit_s: float = 90) -> None:
        """Wait until ``GET /models`` shows a model there: what the retrainer says reaches it a moment later."""
        self.until(lambda: self.model(version).get("stage") in stages, f"{version} is {' or '.join(stages)}", limit_s)

    def await_text(self, text: str, *command: str) -> None:
        """Wait until a person reads it at ``hothouse models list``, or at another command."""
        command = command or ("models", "list")
        self.until(lambda: text in " ".join(self.cli(*command).output.split()), f"{' '.join(command)} says {text!r}")

    def cli(self, *arguments: str) -> Any:
        """A command of a second terminal."""
        return CliRunner().invoke(app, ["--data-dir", str(self.settings.data_dir), *arguments])

    def cli_json(self, *arguments: str) -> Any:
        """A command's JSON, at another try where the machine was too busy to answer."""
        found = self.until(lambda: (run := self.cli(*arguments)).exit_code == 0 and run, f"{arguments} succeeds")
        return json.loads(found.stdout)

    def kill(self, title: str) -> None:
        """SIGKILL for our process of that title."""
        self.until(lambda: bool(processes(title)), f"{title} runs")
        for process in processes(title):
            with suppress(psutil.NoSuchProcess):  # it has ended by itself
                process.kill()

    def until(self, claim: Callable[[], Any], what: str, limit_s: float = 90) -> Any:
        """Wait until ``claim`` holds; what it gave."""
        deadline_s = time.monotonic() + patience_s(limit_s)
        while time.monotonic() < deadline_s:
            found = claim()
            if found:
                return found
            time.sleep(0.1)
        raise AssertionError(f"not within {limit_s:g} s: {what}; {self.status()}")


def save_network(folder: Path, network: QuantileNetwork, spec: ForecastSpec, to_ms: int) -> Path:
    """An artefact as another team's pipeline would make it."""
    values = np.full((2, spec.lookback_steps, len(spec.channels)), 20, np.float32)
    baseline = np.full((2, len(spec.horizons_min), len(spec.targets), 3), 20, np.float32)
    golden = build_inputs(values, np.full(2, START_MS, np.int64), [Place()] * 2, baseline, spec)
    artefact.save(folder, network, golden, trained_on={"to_ms": to_ms}, seed=0, metrics={"held_back_mae": 0.001})
    return folder
