"""The Ray runtime: everything that must hold before, while and after Ray runs.

Ray reads most of its ``RAY_*`` switches once, when a process starts, so :class:`RayRuntime` sets them first, starts
a private local runtime on loopback (or joins ``ray.address``), and leaves nothing behind: no process, no port, no
temporary folder. What a killed run left (Serve's HAProxy outlives its parents) is ended at the next start.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from services.config import Settings
from services.errors import StartError
from services.installation import app_name_of, namespace_of
from services.key_file import write_secret
from services.runtime.certificate import Certificate
from services.runtime.ingress import Ingress, certificate_of, probe_ingress, serve_environment
from services.runtime.interrupts import deferred_interrupts, ignored_interrupts
from services.runtime.joined import check_nodes, end_earlier_run
from services.runtime.leftovers import RECORD, end_left_over, end_processes_using, no_room, short_folder
from services.runtime.ray_logs import prune_logs
from services.runtime.threads.in_time import in_time

__all__ = ["RayRuntime"]

_log = logging.getLogger(__name__)
SERVE_STOP_S = 5.0
"""Serve asks for so long, too, whether its controller lives."""
RAY_STOP_S = 8.0
"""A start that was interrupted can leave either waiting for a part that never came up: Serve by itself for 30 s."""
GIVES_BACK = {
    "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2",
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0",
}  # fmt: skip
"""Arrow, the C library and the tables' Rust each keep what threads have freed. A shard's many threads made that most of
its memory; with these they give it back. The images have the same."""
GIVES_UP = {"RAY_task_oom_retries": "2"}
"""Ray would run a task that it ended for want of memory again without end, and end others of the machine, too: so often
as one whose process is lost (``services.learn.training.task.RETRIES``). The images have the same."""
NOT_IN_TIME = "timed out during startup"


class RayRuntime:
    """Context manager around one Ray runtime; enter it before any other part of Ray is used in the process.

    The caller holds the data folder's lock: what a previous run on it left is ended. With ``beside`` it holds none of
    the state, whose owner may run on the cluster that is joined: nothing there is ended, nor its application removed.
    Raises :class:`StartError` when Ray does not start or when ``ray.address`` cannot be joined.
    """

    def __init__(self, settings: Settings, *, beside: bool = False) -> None:
        self._settings, self._beside = settings, beside
        self._data_dir = settings.data_dir.absolute()
        self._folder: Path | None = None
        self._abandoned = False
        self._environment_before: dict[str, str | None] = {}
        self.certificate: Certificate | None = None  # HAProxy's, while it runs
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
                why, advice = no_room()
                if why:
                    raise StartError(why, advice)
                self._folder = short_folder()
                self._write_record()
            wanted = self._environment()
            self._environment_before = {name: os.environ.get(name) for name in wanted}
            os.environ.update(wanted)
            self._init()
            if self.joins:
                check_nodes(self._settings)
                if not self._beside:
                    end_earlier_run(namespace_of(self._settings))
        except BaseException:
            with ignored_interrupts():
                self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop Serve (if this runtime is ours), then Ray, then what they forgot."""
        with ignored_interrupts():
            self._leave()

    def _environment(self) -> dict[str, str]:
        common = {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "RAY_TRAIN_V2_ENABLED": "1",
            "RAY_AIR_NEW_OUTPUT": "0",
            "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            **GIVES_BACK,
            **GIVES_UP,
        }
        if self._folder is None:
            return common
        write_secret(self._data_dir / "ray.token")
        api = self._settings.api
        serve = serve_environment(self.ingress, self._folder, api)
        self.certificate = certificate_of(api, self._folder)
        compiled = {"TORCHINDUCTOR_CACHE_DIR": str(self._folder / "t")}  # torch makes one, and never removes it
        return common | compiled | _private_environment(self._data_dir / "ray.token") | serve

    def _init(self) -> None:
        with deferred_interrupts():
            import ray

        quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": namespace_of(self._settings)}
        wanted = self._settings.ray
        try:
            with _signals_left_to_us():
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
                    end_processes_using(self._folder)
                if last:
                    raise RuntimeError(
                        "its node did not come up within 30 s, twice; the machine is too busy"
                    ) from error

    def _leave(self) -> None:
        import ray

        if ray.is_initialized():
            if self.joins:
                _within(SERVE_STOP_S, self._delete_application)
            else:
                _within(2 * SERVE_STOP_S + 1, _shutdown_serve)
            _within(RAY_STOP_S, ray.shutdown)
        if self._folder is not None:
            end_processes_using(self._folder)
            shutil.rmtree(self._folder, ignore_errors=True)
            (self._data_dir / RECORD).unlink(missing_ok=True)
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

    def prune_logs(self) -> None:
        """Remove the logs of workers that ended long ago; those of a cluster are its own."""
        if self._folder is not None:
            prune_logs(self._folder / "r")

    def _delete_application(self) -> None:
        """Serve itself belongs to the cluster, the application on it is ours, or that of who comes after us."""
        if self._beside or self._abandoned or self._settings.ray.keep_serving:
            return
        if serve := sys.modules.get("ray.serve"):
            serve.delete(app_name_of(self._settings))

    def _write_record(self) -> None:
        record = {"pid": os.getpid(), "folder": str(self._folder)}
        (self._data_dir / RECORD).write_text(json.dumps(record))


def _private_environment(token: Path) -> dict[str, str]:
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        # Ray's default lets every worker give way to any other process, the replicas too; ours gives way in training.
        "RAY_worker_niceness": "0",
        # Nobody looks at the list of past tasks, in which each request is one: Ray would keep 100,000.
        "RAY_task_events_report_interval_ms": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # a one-machine runtime: node address 127.0.0.1
    }


@contextmanager
def _signals_left_to_us() -> Iterator[None]:
    """While Ray starts, it would set handlers of SIGTERM that end the process at once, with the exit code 15 or 1; that
    of its C++ dumps its stack and aborts. An exception while it connects would throw away its half-made C++ worker,
    which ends the process, too: it waits.
    """
    from ray._private import ray_constants, utils, worker

    theirs, connect = utils.set_sigterm_handler, worker.connect
    dumps_no_stack = ray_constants.RAY_DISABLE_FAILURE_SIGNAL_HANDLER
    utils.set_sigterm_handler = lambda _: None
    worker.connect = deferred_interrupts()(connect)
    # Not by the variable of this name: workers would inherit it, and say less of a crash.
    ray_constants.RAY_DISABLE_FAILURE_SIGNAL_HANDLER = True
    try:
        yield
    finally:
        utils.set_sigterm_handler, worker.connect = theirs, connect
        ray_constants.RAY_DISABLE_FAILURE_SIGNAL_HANDLER = dumps_no_stack


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
        from ray.serve._private.client import ServeControllerClient

        logging.getLogger("ray.serve").setLevel(logging.ERROR)  # what does not end by itself is ended next
        # Its own 30 s would outlast our patience: a thread of Ray's that Ray is shut down under ends the process.
        shutdown: Any = ServeControllerClient.shutdown
        shutdown.__defaults__ = (SERVE_STOP_S,)
        serve.shutdown()


def _within(patience_s: float, action: Callable[[], Any]) -> None:
    """Wait for ``action`` no longer than this; what comes after it ends what it has left."""
    try:
        in_time(patience_s, partial(_quietly, action), "clean-up")
    except TimeoutError:
        _log.warning("a clean-up step took longer than %g s; going on without it", patience_s)


def _quietly(action: Callable[[], Any]) -> None:
    try:
        action()
    except Exception:  # the rest of the clean-up must still happen
        _log.warning("clean-up step failed", exc_info=True)
