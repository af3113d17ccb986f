"""The system under chaos as real processes: its broker, Kafka or log file, gateway, shards and InfluxDB."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from edge.mqtt.broker import LocalBroker
from services.config import Settings, load_settings
from services.runtime.supervise import ChildProcess
from tests.chaos.servers import Servers
from tests.gateways import GATEWAY
from tests.patience import patience_s
from tests.patience import until as wait_until

__all__ = ["IDLE_S", "LATENESS_S", "STEP_S", "System", "WholeSystem", "wait_until"]

PARTITIONS = 4
STEP_S, LATENESS_S, IDLE_S = 10, 5, 20
HOTHOUSE = [sys.executable, "-c", "from services.cli import main; main()"]
FULL_S = 3.0


class System:
    """Everything between the devices and the history, in ``folder``. A context manager.

    Gateway and shards are processes, started again by what ``hothouse up`` starts its children with. ``log`` is
    ``sqlite`` or ``kafka``. Kafka and InfluxDB come from the script that ``HOTHOUSE_SERVERS`` names; without it the log
    has to be ``sqlite``, and there is no InfluxDB.
    """

    kinds: tuple[str, ...] = ("gateway", "broker", "shard", "gateway and broker", "disk of a shard full")
    """What can be done to it; some more, as the log and the servers are."""

    def __init__(self, folder: Path, log: str, shards: int) -> None:
        self.shards = shards
        self.settings: Settings
        self.broker = LocalBroker(folder / "broker", kind="mosquitto")
        self.kinds = (*self.kinds, "kafka" if log == "kafka" else "disk of the log full")
        self._servers: Servers | None = None
        self.influx: dict[str, str] = {}
        if os.environ.get("HOTHOUSE_SERVERS"):
            self._servers = Servers(folder / "servers", "influxdb", *(["kafka"] if log == "kafka" else []))
            named = self._servers.environment
            self.influx = {n: named[f"HOTHOUSE_TEST_INFLUXDB_{n.upper()}"] for n in ("url", "token", "org", "bucket")}
            self.kinds = (*self.kinds, "InfluxDB and shard")
        self._folder, self._log = folder, log
        self._config = folder / "hothouse.toml"
        self._processes: list[ChildProcess] = []

    def __enter__(self) -> System:
        try:
            self.broker.start()
            if self.influx:
                os.environ["HOTHOUSE_INFLUX__TOKEN"] = self.influx["token"]
            self._config.write_text(self._configuration())
            self.settings = load_settings(self._config)
            self.settings.data_dir.mkdir()
            self._start()
            # A broker keeps messages for a session, which is there once the gateway was: devices must not speak before.
            wait_until(lambda: bool(self.gateway_status().get("connected")), "the gateway is connected")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self.broker.stop()
            if self._servers is not None:
                self._servers.clean()

    def stop(self) -> None:
        """Stop gateway and shards in good order; broker and Kafka go on."""
        for process in reversed(self._processes):
            process.stop(patience_s(30))
        self._processes = []

    def harm(self, kind: str, rng: random.Random) -> None:
        """Do one of :attr:`kinds`; returns when what nobody else starts again was started."""
        pause_s = rng.uniform(0.0, 3.0)
        if kind in ("gateway", "gateway and broker"):
            _kill(self._pid("gateway", rng))
        if kind in ("broker", "gateway and broker"):
            self.broker.kill()
            time.sleep(pause_s)
            self.broker.start()
        if kind in ("kafka", "InfluxDB and shard") and self._servers is not None:
            name = "kafka" if kind == "kafka" else "influxdb"
            self._servers.kill(name)
            # A row closes while InfluxDB is away: the shard that is killed then has its points in memory only.
            time.sleep(pause_s if kind == "kafka" else pause_s + STEP_S)
            if name == "influxdb":
                _kill(self._pid("shard", rng))
            self._servers.start(name)
        if kind in ("shard", "forecaster"):
            _kill(self._pid(kind, rng))
        if kind.startswith("disk of"):
            _fill_disk(self._pid("shard" if kind == "disk of a shard full" else "gateway", rng), FULL_S + pause_s)

    def restart_shards(self, number: int) -> None:
        """Stop all shards in good order; start another number of them."""
        gateway, *shards = self._processes
        for shard in shards:
            shard.stop(patience_s(30))
        self._processes, self.shards = [gateway], number
        self._start_shards()

    def offsets(self) -> dict[int, int]:
        """Partition -> log offset that the newest snapshot stands for."""
        files = (self.settings.storage_folder / "snapshots").glob("p*-*.snapshot")
        found: dict[int, int] = {}
        for partition, offset in (path.stem[1:].split("-") for path in files):
            found[int(partition)] = max(found.get(int(partition), 0), int(offset))
        return found

    def gateway_status(self) -> dict[str, Any]:
        """What the gateway said last; empty before it said something."""
        try:
            status: dict[str, Any] = json.loads((self.settings.data_dir / "gateway-status.json").read_text())
        except (OSError, ValueError):
            return {}
        return status

    def moves(self, timeout_s: float = 120.0) -> None:
        """Wait until new samples are durable in the log and, on every partition that holds any, in a snapshot."""
        since_ms = time.time() * 1000
        wait_until(lambda: self.gateway_status().get("updated_ms", 0) > since_ms, "the gateway lives", timeout_s)
        mark, offsets = self.gateway_status(), self.offsets()

        def samples_come() -> bool:
            now = self.gateway_status()
            base = mark if now.get("pid") == mark["pid"] else {"samples": 0, "records": 0}
            more = all(now.get(name, 0) > base[name] for name in ("samples", "records"))
            return more and bool(now["connected"]) and not now["last_error"]

        def snapshots_move() -> bool:
            now = self.offsets()
            return bool(now) and all(offset > offsets.get(partition, 0) for partition, offset in now.items())

        wait_until(samples_come, "samples come into the log", timeout_s)
        wait_until(snapshots_move, "every shard saves", timeout_s)

    def _configuration(self) -> str:
        kafka = ""
        if self._log == "kafka" and self._servers is not None:
            kafka = f'[kafka]\nservers = ["{self._servers.kafka}"]\n'
        influx = "".join(f'{name} = "{value}"\n' for name, value in self.influx.items() if name != "token")
        return (
            f'data_dir = "{self._folder / "data"}"\n'
            f'[mqtt]\nhost = "{self.broker.host}"\nport = {self.broker.port}\nusername = "{self.broker.username}"\n'
            f'password_file = "{self.broker.password_file}"\n'
            f'[gateway]\nstatus_file = "{self._folder / "data" / "gateway-status.json"}"\n'
            f'[log]\nkind = "{self._log}"\npartitions = {PARTITIONS}\n{kafka}'
            f"[stream]\nstep_s = {STEP_S}\nlateness_s = {LATENESS_S}\nidle_s = {IDLE_S}\nsnapshot_s = 1\n"
            f"ring_hours = 26\nshards = {self.shards}\n[forecast]\nlookback_hours = 1\nhorizons_min = [5]\n"
            f"[learn]\nretrain_every_s = 0\n[api]\nport = 0\n[influx]\n{influx}"
        )

    def _start(self) -> None:
        self._process("gateway", *GATEWAY, "--config", self._config)
        self._start_shards()

    def _start_shards(self) -> None:
        for index in range(self.shards):
            arguments = (self._config, index, self.shards)
            self._process(f"shard-{index}", sys.executable, "-m", "tests.chaos.shard_process", *arguments)

    def _process(self, name: str, *command: Any) -> None:
        process = ChildProcess(name, [str(word) for word in command], self._folder / f"{name}.log")
        process.start()
        self._processes.append(process)

    def _pid(self, kind: str, rng: random.Random) -> int:
        """The process of a part, one of several by chance; waits for one that is just being started again."""
        gateway, *shards = self._processes
        process = gateway if kind == "gateway" else rng.choice(shards)
        pid: int = wait_until(lambda: process.pid, f"{process.name} runs")
        return pid


class WholeSystem(System):
    """The same as ``hothouse up``: the shards are actors on Ray, and forecasts come from the Forecaster on Serve."""

    kinds = (*System.kinds, "forecaster")

    def restart_shards(self, number: int) -> None:
        """Stop everything in good order; start it with another number of shards."""
        self.stop()
        self.shards = number
        self._config.write_text(self._configuration())
        self._start()

    def _start(self) -> None:
        self._process("up", *HOTHOUSE, "--config", self._config, "up")

    def _pid(self, kind: str, rng: random.Random) -> int:
        sign = {"gateway": "-m edge.gateway", "shard": "ray::ShardActor"}.get(
            kind, "ray::ServeReplica:hothouse:Forecaster"
        )
        found: list[int] = []

        def seen() -> bool:
            found[:] = [pid for pid, line in self._running() if sign in line]
            return bool(found)

        wait_until(seen, f"the {kind} runs")
        return rng.choice(sorted(found))

    def _running(self) -> list[tuple[int, str]]:
        running = []
        for process in psutil.Process(self._processes[0].pid).children(recursive=True):
            try:
                running.append((process.pid, " ".join(process.cmdline())))
            except psutil.Error:
                continue
        return running


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # it has ended by itself
        os.kill(pid, signal.SIGKILL)


def _fill_disk(pid: int, seconds: float) -> None:
    """Let no file that the process writes grow beyond a page, for so long: what it sees is a full disk."""
    seen = psutil.Process(pid)
    _, hard = seen.rlimit(psutil.RLIMIT_FSIZE)
    seen.rlimit(psutil.RLIMIT_FSIZE, (4096, hard))
    time.sleep(seconds)
    with suppress(psutil.NoSuchProcess):  # the full disk has ended it
        seen.rlimit(psutil.RLIMIT_FSIZE, (hard, hard))
