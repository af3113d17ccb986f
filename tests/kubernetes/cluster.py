"""The cluster under test, from outside: `kubectl`, and HTTP at the addresses of its services.

Standard library only: `make e2e-kubernetes` needs no more than Python, Docker and a cluster that this machine reaches.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.compose.stack import INSIDE, ROOT, ZONES, StackError
from tests.compose.waiting import until
from tests.patience import patience_s

__all__ = [
    "APPLY", "BACKUP", "CHANGED", "GREENHOUSE", "NAMESPACE", "SERVERS", "SERVERS_NAMESPACE", "SYSTEM", "Cluster",
    "ClusterError", "kubeconfig", "run", "secret",
]  # fmt: skip

NAMESPACE, SERVERS_NAMESPACE = "hothouse", "servers"
APPLY = ROOT / "deploy/kubernetes/apply.sh"
BACKUP = ROOT / "deploy/kubernetes/backup.sh"
SYSTEM = ROOT / "tests/kubernetes/system"
CHANGED = ROOT / "tests/kubernetes/changed"
SERVERS = ROOT / "tests/kubernetes/servers"
GREENHOUSE = ROOT / "tests/kubernetes/greenhouse"
INNER_LOGS = {
    "hothouse": "/var/lib/hothouse/logs/main.log",
    "ray-head": "/tmp/ray/session_latest/logs/serve/controller*.log",
    "ray-api": "/var/lib/hothouse/logs/api-*.log",
}
"""Component -> what it writes into files of its pod alone."""
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ClusterError(StackError):
    """A command failed; the message ends with what it said."""


def run(*command: str, text: str = "", timeout_s: float = 120.0) -> str:
    """Run a command; its standard output. Raises :class:`ClusterError`."""
    shown = " ".join(command[:10])
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=patience_s(timeout_s), check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{shown} took too long") from error
    if done.returncode:
        raise ClusterError(f"{shown} ended with {done.returncode}:\n{(done.stdout + done.stderr).strip()[-800:]}")
    return done.stdout


class _Unix(http.client.HTTPConnection):
    """HTTP by a socket in the file system, which nobody else may open."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=patience_s(30))
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Cluster:
    """One installation in the namespace ``hothouse``, and its servers in ``servers``.

    What is asked again and again goes through one `kubectl proxy`: a start of `kubectl` takes a quarter of a second of
    a processor, from which the parts of the system are to answer.
    """

    def __init__(self) -> None:
        self._addresses: dict[tuple[str, str], str] = {}
        self._folder = tempfile.TemporaryDirectory()
        self._socket = Path(self._folder.name, "api")
        command = ["kubectl", "proxy", f"--unix-socket={self._socket}"]
        self._proxy = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self._socket.exists, "kubectl proxy listens", 30)

    def close(self) -> None:
        """End what this object has started."""
        self._proxy.terminate()
        self._proxy.wait()
        self._folder.cleanup()

    def get(self, path: str) -> Any:
        """What the API server shows there; raises :class:`ClusterError`, also where it does not answer."""
        return self._ask("GET", path, None)

    def post(self, path: str, made: Any) -> Any:
        """Have the API server make an object; its answer. Raises as :meth:`get` does."""
        return self._ask("POST", path, json.dumps(made))

    def _ask(self, method: str, path: str, body: str | None) -> Any:
        connection = _Unix(self._socket)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise ClusterError(f"{path}: {error}") from error
        finally:
            connection.close()
        if answer.status not in (http.HTTPStatus.OK, http.HTTPStatus.CREATED):
            raise ClusterError(f"{path} is answered by {answer.status}: {said[-800:]}")
        return json.loads(said)

    @property
    def name(self) -> str:
        """That of the Ray cluster and of the deployment that runs `hothouse up`; another after each upgrade."""
        return str(self._service(NAMESPACE, "hothouse-api")["selector"]["app.kubernetes.io/instance"])

    def kubectl(self, *arguments: str, text: str = "", timeout_s: float = 120.0) -> str:
        """Run `kubectl`; its standard output."""
        return run("kubectl", *arguments, text=text, timeout_s=timeout_s)

    def exec(self, pod: str, *command: str, text: str = "", timeout_s: float = 120.0, of: str = NAMESPACE) -> str:
        """Run a command in a pod, or in one of `deployment/NAME`; its standard output."""
        return self.kubectl("-n", of, "exec", "-i", pod, "--", *command, text=text, timeout_s=timeout_s)

    def hothouse(self, *command: str) -> str:
        """The command line, where `hothouse up` runs."""
        return self.exec(f"deployment/{self.name}", "hothouse", *command)

    def apply(self, folder: Path, replace: Mapping[str, str] | None = None) -> None:
        """What a folder of kustomize says, every field of it known; ``replace`` are words of it."""
        text = self.kubectl("kustomize", str(folder))
        for old, new in (replace or {}).items():
            text = text.replace(old, new)
        self.kubectl("apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", "-", text=text)

    def pods(self, selector: str = "", of: str = NAMESPACE) -> list[dict[str, Any]]:
        """The pods that a selector names, as the API server shows them; not those that end."""
        return [pod for pod in self.all_pods(selector, of) if "deletionTimestamp" not in pod["metadata"]]

    def all_pods(self, selector: str = "", of: str = NAMESPACE) -> list[dict[str, Any]]:
        """The same, with those that end."""
        named = urllib.parse.quote(selector)
        found: list[dict[str, Any]] = self.get(f"/api/v1/namespaces/{of}/pods?labelSelector={named}")["items"]
        return found

    def address(self, service: str, of: str = NAMESPACE) -> str:
        """The cluster's address of a service."""
        if (of, service) not in self._addresses:
            self._addresses[of, service] = str(self._service(of, service)["clusterIP"])
        return self._addresses[of, service]

    def forget_addresses(self) -> None:
        """All services are made anew."""
        self._addresses.clear()

    def check_volumes(self, least: int) -> None:
        """Raise :class:`ClusterError` where nothing makes volumes, and those that wait for a claim are too few."""
        classes = self.get("/apis/storage.k8s.io/v1/storageclasses")["items"]
        marked = "storageclass.kubernetes.io/is-default-class"
        default = [one for one in classes if one["metadata"].get("annotations", {}).get(marked) == "true"]
        if [one["provisioner"] for one in default] != ["kubernetes.io/no-provisioner"]:
            return
        states = [one["status"]["phase"] for one in self.get("/api/v1/persistentvolumes")["items"]]
        if states.count("Available") < least:
            raise ClusterError(
                f"{least} volumes are needed, and of {len(states)} only {states.count('Available')} wait for a claim: "
                "empty those that are Released, and take away their spec.claimRef"
            )

    def _service(self, of: str, name: str) -> Any:
        return self.get(f"/api/v1/namespaces/{of}/services/{name}")["spec"]

    def fetch(self, url: str) -> str:
        """What is answered there; raises ``OSError``, also for a problem answer."""
        with _NO_PROXY.open(url, timeout=patience_s(5)) as answer:
            found: bytes = answer.read()
        return found.decode()

    def told_without_tls(self, service: str, port: int, words: bytes) -> bytes:
        """What a port that wants TLS answers to who speaks without; nothing where it hangs up."""
        with socket.create_connection((self.address(service), port), timeout=patience_s(5)) as connection:
            try:
                connection.sendall(words)
                return connection.recv(1024)
            except ConnectionError:
                return b""

    def ask(self, path: str) -> Any:
        """The JSON answer of the API."""
        return json.loads(self.fetch(f"http://{self.address('hothouse-api')}{path}"))

    def takes_pages_of(self, origin: str) -> bool:
        """Whether the API lets pages of that origin ask it, as `api.cors_origins` says."""
        asked = urllib.request.Request(f"http://{self.address('hothouse-api')}/health/live", headers={"Origin": origin})
        with _NO_PROXY.open(asked, timeout=patience_s(5)) as answer:
            return bool(answer.headers["Access-Control-Allow-Origin"] == origin)

    def origins(self) -> dict[str, int]:
        """Zone -> origin of the forecast that /predict answers with; empty while it does not answer for every zone."""
        try:
            return {zone: self.ask(f"/predict?zone={zone}")["origin_ms"] for zone in ZONES}
        except (OSError, ValueError, KeyError):
            return {}

    def newest_point(self) -> int:
        """The time in ms up to which InfluxDB has rows of every zone, asked in Flux."""
        return int(self.run_inside("newest_point.py"))

    def measured(self, metric: str) -> float:
        """The sum of a metric in Prometheus; 0 where it has none."""
        url = f"http://{self.address('prometheus', SERVERS_NAMESPACE)}:9090/api/v1/query?query=sum({metric})"
        found = json.loads(self.fetch(url))["data"]["result"]
        return float(found[0]["value"][1]) if found else 0.0

    def run_inside(self, script: str, *arguments: str, timeout_s: float = 180.0) -> Any:
        """Run one of the scripts of tests/compose/inside where `hothouse up` runs; its answer as JSON."""
        text = (INSIDE / script).read_text()
        said = self.exec(f"deployment/{self.name}", "python3", "-", *arguments, text=text, timeout_s=timeout_s)
        return json.loads(said.strip().splitlines()[-1])

    def write(self, path: str, text: str) -> None:
        """A file where `hothouse up` runs."""
        self.exec(f"deployment/{self.name}", "sh", "-c", f"cat >{path}", text=text)

    def stop_simulator(self) -> int:
        """Stop the greenhouse in good order; the event time that it reached."""
        self._greenhouse("sh", "-c", "kill -TERM $(cat pid); while kill -0 $(cat pid) 2>/dev/null; do sleep .2; done")
        return int(json.loads(self._greenhouse("cat", "status.json"))["now_ms"])

    def simulate(self, start_ms: int, until_ms: int) -> None:
        """Publish some more of the greenhouse at once, of which nothing is written down."""
        times = ["--speed", "max", "--start-ms", str(start_ms), "--until-ms", str(until_ms)]
        self._greenhouse("hothouse", "simulate", "--clock", "--zones", "3", "--site", "demo", *times)

    def published(self) -> str:
        """What the simulator wrote down: every message."""
        return self._greenhouse("sh", "-c", "cat published-*.tsv")

    def keep_logs(self, folder: Path) -> None:
        """Write each pod's log to a file, and the state of all."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pods.txt").write_text(self.kubectl("get", "pods", "-A", "-o", "wide"))
        (folder / "events.txt").write_text(self.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp"))
        for of in (NAMESPACE, SERVERS_NAMESPACE):
            for pod in self.pods(of=of):
                name = pod["metadata"]["name"]
                for more in ([], ["--previous"]):
                    try:
                        log = self.kubectl("-n", of, "logs", "--all-containers", name, *more)
                    except ClusterError:
                        continue  # it has not started, or has no earlier one
                    (folder / f"{name}{''.join(more)}.log").write_text(log)
        for component, files in INNER_LOGS.items():
            for pod in self.pods(f"app.kubernetes.io/component={component}"):
                name = pod["metadata"]["name"]
                with suppress(ClusterError):
                    (folder / f"{name}-inner.log").write_text(self.exec(name, "sh", "-c", f"tail -n 500 {files}"))

    def _greenhouse(self, *command: str) -> str:
        return self.exec("simulator", *command, of=SERVERS_NAMESPACE, timeout_s=180)


def secret(of: str, name: str, files: Mapping[str, Path]) -> Sequence[str]:
    """The arguments of `kubectl` that make a secret of files."""
    return [
        "-n", of, "create", "secret", "generic", name, *(f"--from-file={key}={path}" for key, path in files.items())
    ]  # fmt: skip


def kubeconfig() -> str:
    """Why no cluster can be asked; empty where one can."""
    if not os.environ.get("KUBECONFIG"):
        return "KUBECONFIG names no cluster"
    try:
        run("kubectl", "version", "--request-timeout=5s")
    except (OSError, ClusterError) as error:
        return f"no cluster answers: {str(error).splitlines()[0]}"
    return ""
