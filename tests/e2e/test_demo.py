"""The commands that run the whole system, as a person starts and ends them: what they say and what they leave."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.ci.record import balance
from tests.e2e.command_run import Run
from tests.patience import budget_s, patience_s

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

STOP_S = 10.0

Start = Callable[..., Run]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a command; whatever is left of it is ended with the test."""
    temporary = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))  # Ray's socket paths bound its length
    runs: list[Run] = []

    def run(*arguments: str) -> Run:
        runs.append(Run(tmp_path, temporary, *arguments))
        return runs[-1]

    yield run
    for started in runs:
        started.end()
    shutil.rmtree(temporary, ignore_errors=True)


def test_a_demo_succeeds_and_leaves_nothing(start: Start, tmp_path: Path) -> None:
    """Every sample is accounted for, no request failed, and afterwards no process, port or file is left.

    A request fails after a second: so does one that another program on this machine has held up for so long.
    """
    file = tmp_path / "s.json"
    run = start(
        "demo", "--headless", "--minutes", "0.4", "--warm-days", "3", "--retrain-every", "0", "--summary", str(file)
    )
    run.wait_for(lambda: "samples/s" in run.output, "it shows what goes on")
    run.process.wait(patience_s(150))
    summary = json.loads(file.read_text())
    held_up = summary["probe"]["failures"].get("ReadTimeout", 0)
    assert run.process.returncode == bool(held_up), run.output
    outcomes = summary["accepted"] + summary["duplicates"] + summary["late"] + sum(summary["rejected"].values())
    with balance():
        assert summary["published"] == outcomes > 0
    assert summary["probe"]["sent"] > 300
    assert summary["probe"]["failed"] == held_up <= 2
    assert summary["first_forecast_s"] < min(budget_s(60), 100)
    assert summary["peak_memory_mb"] < 4000
    assert summary["forecasts"] > 0
    assert summary["errors"] == []
    for zone in ("cucumber-1", "lettuce-1", "tomato-1"):
        said = rf"{zone} (tonight|minimum not known: ).+; (today|tomorrow|maximum not known: )"
        assert re.search(said, run.output), run.output
    run.assert_quiet()
    run.assert_nothing_left()
    assert not run.data_dir.exists()


@pytest.mark.long
def test_ctrl_c_ends_a_demo_in_order(start: Start) -> None:
    """Ctrl-C in the middle ends everything within 10 s, with the summary of what was done so far."""
    run = start("demo", "--headless", "--minutes", "5", "--warm-days", "2", "--retrain-every", "0")
    run.wait_for(lambda: run.output.count("samples/s") >= 2, "it shows what goes on")
    took_s = run.stop(signal.SIGINT, group=True)
    assert took_s < budget_s(STOP_S)
    assert run.process.returncode == 0, run.output
    assert "stopping ..." in run.output
    assert "published =" in run.output
    run.assert_quiet()
    run.assert_nothing_left()
    assert not run.data_dir.exists()


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_a_demo_starts(start: Start, number: signal.Signals, code: int) -> None:
    """Before the first forecast it ends what was begun, and says so at once; the exit code tells which it was."""
    run = start("demo", "--headless", "--warm-days", "2")
    run.wait_for(lambda: "the API and the forecaster" in run.output, "Ray runs")
    took_s = run.stop(number, group=number is signal.SIGINT)
    assert took_s < budget_s(STOP_S)
    assert run.process.returncode == code, run.output
    assert run.output.endswith("stopping ...\nstopped before the first forecast\n")
    run.assert_quiet()
    run.assert_nothing_left()


@pytest.mark.long
def test_sigterm_ends_the_system_and_keeps_its_data(start: Start) -> None:
    """``hothouse up`` ends within 10 s of a SIGTERM with exit code 0; its log and history stay."""
    run = start("up", "--port", "0")
    run.wait_for(lambda: "Hothouse runs at" in run.output, "it is up")
    run.wait_for(lambda: (run.data_dir / "gateway-status.json").exists(), "the gateway runs")
    took_s = run.stop(signal.SIGTERM, group=False)
    assert took_s < budget_s(STOP_S)
    assert run.process.returncode == 0, run.output
    run.assert_quiet()
    run.assert_nothing_left()
    assert (run.data_dir / "log.sqlite").exists()
    assert not (run.data_dir / "run.json").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_while_the_system_starts(start: Start, number: signal.Signals, code: int) -> None:
    """``hothouse up`` that is ended while Ray starts, by someone who does not wait, leaves nothing."""
    run = start("up", "--port", "0")
    run.wait_for(lambda: run.has_process("raylet"), "Ray starts")
    with ThreadPoolExecutor() as pool:
        ended = pool.submit(run.stop, number, group=number is signal.SIGINT)
        while not ended.done():
            time.sleep(0.5)
            with contextlib.suppress(ProcessLookupError):
                os.kill(run.process.pid, number)
    ended.result()
    assert run.process.returncode in (code, -number), run.output  # the latter by one that came after all was done
    run.assert_quiet()
    run.assert_nothing_left()


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_ray_connects(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """It comes when Ray's worker is made and nobody holds it yet, which is when Ray's own handler is set, too."""
    script = tmp_path / "connect.py"
    script.write_text(f"""
import os, time
from ray import _raylet
made = _raylet.CoreWorker
def make(*arguments, **options):
    worker = made(*arguments, **options)
    os.kill(os.getpid(), {number:d})
    time.sleep(0.1)  # a handler of C runs now, one of Python's once this returns
    return worker
_raylet.CoreWorker = make
from services.config import load_settings
from services.runtime.interrupts import ended_by_signals
from services.runtime.ray_runtime import RayRuntime
with ended_by_signals():
    with RayRuntime(load_settings(data_dir="data")):
        print("it is up")
""")
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler), capture_output=True, text=True,
        timeout=patience_s(120), check=False,
    )  # fmt: skip
    assert done.returncode in (code, -number), done.stderr
    assert (done.stdout, "***" in done.stderr) == ("", False), done.stderr


@pytest.mark.thorough
def test_ray_is_not_shut_down_under_a_thread_that_stops_serve(tmp_path: Path) -> None:
    """A replica takes longer to end than anybody waits: what asked Serve has given up when Ray goes. Ray ends a process
    of which a thread still asks something then, in the middle of its clean-up.
    """
    script = tmp_path / "slow.py"
    script.write_text("""
import threading, time, ray
shutdown = ray.shutdown
def told(*arguments):
    print([one.name for one in threading.enumerate() if one.name == "clean-up"], flush=True)
    shutdown(*arguments)
ray.shutdown = told
from services.config import load_settings
from services.runtime.ray_runtime import RayRuntime
with RayRuntime(load_settings(data_dir="data")):
    from ray import serve
    @serve.deployment(graceful_shutdown_timeout_s=60, ray_actor_options={"num_cpus": 0})
    class Slow:
        def __del__(self):
            time.sleep(50)
    serve.start(http_options={"location": "NoServer"})
    serve.run(Slow.bind(), route_prefix=None)
""")
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=patience_s(180), check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "['clean-up']\n"), done.stderr


@pytest.mark.thorough
def test_sigterm_while_the_parts_start(start: Start) -> None:
    """It ends what waits for an answer of Ray as Ctrl-C does, and the exit code says that it was SIGTERM."""
    run = start("up", "--port", "0")
    run.wait_for(lambda: "the API and the forecaster" in run.output, "Ray runs")
    run.stop(signal.SIGTERM, group=False)
    assert run.process.returncode == 143, run.output
    assert "stopping ..." in run.output
    run.assert_quiet()
    run.assert_nothing_left()
