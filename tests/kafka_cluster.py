"""Three Kafka brokers of a test's own, each a controller, too: stopped, killed and started one by one."""

from __future__ import annotations

import base64
import ctypes
import itertools
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from edge.log.kafka.topics import topic_partitions
from services.runtime.ports import free_port
from tests.chaos.servers import Servers
from tests.patience import patience_s, until

__all__ = ["KafkaCluster"]

NODES = (1, 2, 3)
JAVA = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Little memory, and little work at a start: each broker starts twice within minutes."""
FORMATTED = ("meta.properties", "bootstrap.checkpoint")
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class KafkaCluster:
    """Nodes 1, 2 and 3 on loopback, each with its port and data for as long as this is open.

    How a Kafka is started on this machine is read from one that the script in ``HOTHOUSE_SERVERS`` starts, which is
    then stopped. ``properties`` are of all nodes.
    """

    def __init__(self, folder: Path, properties: Mapping[str, Any] | None = None) -> None:
        self._folder = folder
        self._ports = {node: (free_port(), free_port()) for node in NODES}
        self._properties = properties or {}
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._command: list[str] = []

    def __enter__(self) -> Self:
        self._command = _learn(self._folder)
        try:
            for node in NODES:
                _format(self._folder, self._data(node), node)
                self._file(node).write_text(self._configuration(node))
                self.start(node)
            for node in NODES:
                self.await_answer(node)
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill_all()

    @property
    def servers(self) -> tuple[str, ...]:
        """All bootstrap servers."""
        return tuple(self.server(node) for node in NODES)

    def server(self, node: int) -> str:
        """Where a node answers."""
        return f"127.0.0.1:{self._ports[node][0]}"

    def start(self, node: int) -> None:
        """Start a node that does not run; returns at once."""

        def die_with_us() -> None:
            if sys.platform == "linux":
                _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

        with self._log(node).open("ab") as log:
            self._running[node] = subprocess.Popen(
                [*self._command, "kafka.Kafka", str(self._file(node))],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_us,
            )  # fmt: skip

    def await_answer(self, node: int) -> None:
        """Return once a node that was started takes part in the cluster."""

        def answers() -> bool:
            ended = self._running[node].poll()
            assert ended is None, f"Kafka {node} ended with {ended}: {self._log(node).read_text()[-2000:]}"
            return node in self._members(node)

        until(answers, f"Kafka {node} answers", 240)

    def stop(self, node: int) -> None:
        """As an upgrade does: the node hands over what it leads, and ends."""
        process = self._running.pop(node)
        process.terminate()
        try:
            process.wait(patience_s(120))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def kill(self, node: int) -> None:
        """SIGKILL."""
        process = self._running.pop(node)
        process.kill()
        process.wait()

    def signal(self, node: int, number: int) -> None:
        """Send a signal, such as SIGSTOP."""
        self._running[node].send_signal(number)

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        """A topic's partitions as the cluster sees them: ``partition_index``, ``leader_id``, ``isr_nodes``, ..."""
        with self._admin() as admin:
            return topic_partitions(admin, topic)

    def leaders(self, topic: str) -> list[int]:
        """The node that leads each partition."""
        return [int(each["leader_id"]) for each in self.partitions(topic)]

    def await_in_sync(self, *topics: str) -> None:
        """Return once every partition of these topics has a leader and all its replicas."""
        from kafka.errors import KafkaError

        def in_sync() -> bool:
            with suppress(KafkaError, OSError):
                found = [topic_partitions(admin, topic) for topic in topics]
                return all(found) and all(
                    each["leader_id"] >= 0 and set(each["isr_nodes"]) == set(each["replica_nodes"])
                    for each in itertools.chain(*found)
                )
            return False

        with self._admin() as admin:
            until(in_sync, f"all replicas of {', '.join(topics)} are in sync", 120)

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        from kafka import KafkaAdminClient

        running = [self.server(node) for node in self._running]
        admin = KafkaAdminClient(bootstrap_servers=running, bootstrap_timeout_ms=round(patience_s(30) * 1000))
        try:
            yield admin
        finally:
            admin.close()

    def _members(self, node: int) -> set[int]:
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError

        with suppress(KafkaError, OSError):
            admin = KafkaAdminClient(
                bootstrap_servers=self.server(node), bootstrap_timeout_ms=round(patience_s(5) * 1000)
            )
            try:
                members = admin.describe_cluster()["brokers"]
                return {int(broker["broker_id"]) for broker in members if not broker.get("is_fenced")}
            finally:
                admin.close()
        return set()

    def _configuration(self, node: int) -> str:
        port, controller = self._ports[node]
        settings: dict[str, Any] = {
            "process.roles": "broker,controller",
            "node.id": node,
            "controller.quorum.voters": ",".join(f"{each}@127.0.0.1:{self._ports[each][1]}" for each in NODES),
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self._data(node),
            "log.cleaner.dedupe.buffer.size": 4 * 2**20,  # of 128 MiB else
            "offsets.topic.num.partitions": 4,
            "auto.create.topics.enable": "false",
            **self._properties,
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _data(self, node: int) -> Path:
        return self._folder / f"data-{node}"

    def _file(self, node: int) -> Path:
        return self._folder / f"kafka-{node}.properties"

    def _log(self, node: int) -> Path:
        return self._folder / f"kafka-{node}.log"

    def _kill_all(self) -> None:
        for node in list(self._running):
            self.kill(node)


def _learn(folder: Path) -> list[str]:
    """What starts Java with Kafka's classes here, with options of our own; the class and its arguments are to follow.

    ``folder`` gets the files that make an empty folder a node's: to make them takes a Java for each node.
    """
    where = folder / "one"
    one = Servers(where, "kafka")
    try:
        words = psutil.Process(int((where / "kafka.pid").read_text())).cmdline()
        (data,) = re.findall(r"^log\.dirs=(.+)$", (where / "kafka.properties").read_text(), re.MULTILINE)
        for name in FORMATTED:
            shutil.copy(Path(data) / name, folder / name)
    finally:
        one.clean()
    before = [word for word in words[: words.index("kafka.Kafka")] if not word.startswith(("-Xms", "-Xmx", "-XX:"))]
    return [before[0], *JAVA, *before[1:]]


def _format(folder: Path, data: Path, node: int) -> None:
    """Make a node's data folder: of the same cluster as the others', with an id of its own."""
    data.mkdir()
    for name in FORMATTED:
        shutil.copy(folder / name, data / name)
    own = base64.urlsafe_b64encode(b"k" + uuid.uuid4().bytes[1:]).decode().rstrip("=")  # does not begin with a dash
    text = re.sub(r"(?m)^node\.id=.*$", f"node.id={node}", (data / "meta.properties").read_text())
    (data / "meta.properties").write_text(re.sub(r"(?m)^directory\.id=.*$", f"directory.id={own}", text))
