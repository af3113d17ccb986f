"""The containers under test, from outside: `docker compose`, and HTTP on the one published port.

Standard library only: `make e2e` needs no more than Docker and Python.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.patience import patience_s

__all__ = ["INSIDE", "ROOT", "ZONES", "Stack", "StackError"]

ROOT = Path(__file__).parents[2]
PROJECT = "hothouse-e2e"
INSIDE = ROOT / "tests" / "compose" / "inside"

ZONES = ("cucumber-1", "lettuce-1", "tomato-1")
"""Those of the simulated greenhouse."""
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class StackError(Exception):
    """A command failed; the message ends with what it said."""


class Stack:
    """One compose project of the whole system. ``environment`` is what its file is filled in with."""

    def __init__(self, port: int, environment: Mapping[str, str]) -> None:
        self.port = port
        self._environment = {**os.environ, **environment, "COMPOSE_PROFILES": "full", "HOTHOUSE_PORT": str(port)}

    def compose(self, *arguments: str, timeout_s: float = 120.0) -> str:
        """Run `docker compose`; its standard output."""
        files = ["-f", str(ROOT / "deploy/compose.yaml"), "-f", str(ROOT / "tests/compose/e2e.yaml")]
        return self._run("docker", "compose", *files, "--ansi", "never", *arguments, timeout_s=timeout_s)

    def docker(self, *arguments: str, timeout_s: float = 120.0) -> str:
        """Run `docker`; its standard output."""
        return self._run("docker", *arguments, timeout_s=timeout_s)

    def pipe(self, command: Sequence[str], text: str, timeout_s: float = 120.0) -> str:
        """Run any command with ``text`` as its standard input."""
        return self._run(*command, timeout_s=timeout_s, text=text)

    def inspect(self, service: str, number: int = 1) -> dict[str, Any]:
        """What the engine knows of a service's container."""
        found: dict[str, Any] = json.loads(self.docker("inspect", self.container(service, number)))[0]
        return found

    def container(self, service: str, number: int = 1) -> str:
        """The name of a service's container; of those that have several, the first."""
        return f"{PROJECT}-{service}-{number}"

    def containers(self) -> dict[str, str]:
        """Each container that runs and its service, also where a service has several."""
        label = "com.docker.compose"
        told = self.docker(
            "ps", "--filter", f"label={label}.project={PROJECT}", "--filter", f"label={label}.oneoff=False",
            "--format", f'{{{{.Names}}}} {{{{.Label "{label}.service"}}}}',
        )  # fmt: skip
        return dict(line.split() for line in told.splitlines())

    def services(self) -> list[str]:
        """Services that have a container which runs."""
        return self.compose("ps", "--services", "--status", "running").split()

    def kill(self, *parts: tuple[str, int]) -> None:
        """SIGKILL to the first processes of containers, each named by its service and number, at once; `docker kill`
        would keep them from being started again. Raises :class:`StackError` where one does not run.
        """
        pids = [self.inspect(*part)["State"]["Pid"] for part in parts]
        if not all(pids):
            raise StackError(f"of {parts} one does not run: the process numbers are {pids}")
        try:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        except PermissionError:  # not root: the engine is
            image, all_of_them = self.inspect("gateway")["Config"]["Image"], " ".join(map(str, pids))
            self.docker(
                "run", "--rm", "--pid=host", "--user=0", "--entrypoint=sh", image, "-c", f"kill -9 {all_of_them}"
            )

    def destroy(self, service: str, number: int = 1) -> None:
        """Remove a container at once, together with the disk that is its own. Raises :class:`StackError` where it has
        none, for then nothing would be lost with it.
        """
        name = self.container(service, number)
        mounts = self.inspect(service, number)["Mounts"]
        own = [one["Name"] for one in mounts if one["Destination"] == "/var/lib/hothouse"]
        self.docker("rm", "--force", "--volumes", name)
        left = self.docker("volume", "ls", "--quiet").split()
        if not own or set(own) & set(left):
            raise StackError(f"{name} had no disk of its own that went with it: {own}")

    def cut(self, service: str, network: str) -> None:
        """Take a container off a network."""
        self.docker("network", "disconnect", f"{PROJECT}_{network}", self.container(service))

    def mend(self, service: str, network: str) -> None:
        """Put it back under its name."""
        self.docker("network", "connect", "--alias", service, f"{PROJECT}_{network}", self.container(service))

    def ask(self, path: str) -> Any:
        """The JSON answer of the API; raises ``OSError``, also for a problem answer."""
        with _NO_PROXY.open(f"http://127.0.0.1:{self.port}{path}", timeout=patience_s(5)) as answer:
            return json.loads(answer.read())

    def origins(self) -> dict[str, int]:
        """Zone -> origin of the forecast that /predict answers with; empty while it does not answer for every zone."""
        try:
            return {zone: self.ask(f"/predict?zone={zone}")["origin_ms"] for zone in ZONES}
        except (OSError, ValueError, KeyError):
            return {}

    def fetch(self, url: str) -> str:
        """What a server inside answers to the service's container."""
        code = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=10).read().decode())"
        return self.compose("exec", "-T", "service", "python3", "-c", code, url)

    def newest_point(self) -> int:
        """The time in ms up to which InfluxDB has rows of every zone, asked in Flux."""
        script = (INSIDE / "newest_point.py").read_text()
        return int(self.compose("exec", "-T", "service", "python3", "-c", script))

    def order(self, zone: str) -> dict[str, bool]:
        """Whether an operator's order by the API reaches the zone, and alerts reach the broker."""
        script = (INSIDE / "order.py").read_text()
        said = self.compose("exec", "-T", "service", "python3", "-c", script, "http://front:8000", zone)
        found: dict[str, bool] = json.loads(said)
        return found

    def workers_that_answer(self) -> int:
        """How many Ray workers lead to an API replica with forecasts; 0 where the service cannot ask."""
        script = (INSIDE / "replicas.py").read_text()
        return int(self.compose("exec", "-T", "service", "python3", "-c", script, "ray-worker"))

    def replicas_that_run(self, wanted: int, within_s: float) -> int:
        """How many API replicas run, once as many as wanted do or the time is over; 0 where the service cannot ask."""
        script, command = (INSIDE / "await_replicas.py").read_text(), ["exec", "-T", "service", "python3", "-c"]
        return int(self.compose(*command, script, str(wanted), str(within_s), timeout_s=within_s + 60).split()[-1])

    def measured(self, metric: str) -> float:
        """The sum of a metric in Prometheus; 0 where it has none."""
        found = json.loads(self.fetch(f"http://prometheus:9090/api/v1/query?query=sum({metric})"))["data"]["result"]
        return float(found[0]["value"][1]) if found else 0.0

    def stop_simulator(self) -> int:
        """Stop the greenhouse in good order; the event time that it reached."""
        self.compose("stop", "simulator", timeout_s=60)
        status = self.compose("run", "--rm", "--no-deps", "-T", "simulator", "cat", "/var/lib/hothouse/status.json")
        return int(json.loads(status)["now_ms"])

    def simulate(self, start_ms: int, until_ms: int) -> None:
        """Publish some more of the greenhouse at once, of which nothing is written down."""
        times = ["--speed", "max", "--start-ms", str(start_ms), "--until-ms", str(until_ms)]
        command = ["hothouse", "simulate", "--clock", *times]
        self.compose("run", "--rm", "--no-deps", "-T", "simulator", *command)

    def run_inside(
        self,
        service: str,
        script: str,
        *arguments: str,
        mount: Mapping[Path, str] | None = None,
        timeout_s: float = 180.0,
    ) -> Any:
        """Run one of the scripts in `inside/` in a container of its own, made as a service's is; its answer as JSON."""
        volumes = [f"--volume={host}:{inside}:ro" for host, inside in {INSIDE: "/inside", **(mount or {})}.items()]
        command = ["python3", f"/inside/{script}", *arguments]
        said = self.compose("run", "--rm", "--no-deps", "-T", *volumes, service, *command, timeout_s=timeout_s)
        return json.loads(said.strip().splitlines()[-1])

    def published(self, folder: Path) -> Path:
        """Copy what the simulator wrote down into ``folder``: one file with every message."""
        target = folder / "messages.tsv"
        target.write_text(
            self.compose(
                "run", "--rm", "--no-deps", "-T", "simulator", "sh", "-c", "cat /var/lib/hothouse/published-*.tsv"
            )
        )
        target.chmod(0o644)
        return target

    def keep_logs(self, folder: Path) -> None:
        """Write each container's log to a file, and the state of all."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ps.txt").write_text(self.compose("ps", "-a"))
        for service in self.compose("ps", "-a", "--services").split():
            log = self.compose("logs", "--no-color", "--timestamps", service)
            (folder / f"{service}.log").write_text(log)

    def _run(self, *command: str, timeout_s: float, text: str = "") -> str:
        shown = " ".join(command[:12])
        try:
            done = subprocess.run(
                command,
                env=self._environment,
                input=text,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise StackError(f"{shown} took longer than {timeout_s:g} s") from error
        if done.returncode:
            raise StackError(f"{shown} ended with {done.returncode}:\n{(done.stdout + done.stderr).strip()[-800:]}")
        return done.stdout
