"""Ray's logs of processes that have ended do not pile up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from services.runtime.ray_logs import prune_logs

WORKER = "5c1282354319517b42cfbc018b99bb5877c7f58a8e4414a729949acc"


def files_of(logs: Path, pid: int, age_s: float) -> list[Path]:
    """The files of a worker, as Ray names them."""
    names = (f"worker-{WORKER}-01000000-{pid}.out", f"worker-{WORKER}-01000000-{pid}.err",
             f"python-core-worker-{WORKER}_{pid}.log", f"events/event_CORE_WORKER_{pid}.log",
             f"export_events/event_EXPORT_TASK_{pid}.log")  # fmt: skip
    for name in names:
        (logs / name).parent.mkdir(exist_ok=True)
        (logs / name).write_text("said\n")
        os.utime(logs / name, (1e9 - age_s, 1e9 - age_s))
    return [logs / name for name in names]


def ended_pids(count: int) -> list[int]:
    """Numbers of processes that have ended."""
    processes = [subprocess.Popen([sys.executable, "-c", ""]) for _ in range(count)]
    for process in processes:
        process.wait()
    return [process.pid for process in processes]


def test_the_newest_that_have_ended_and_all_that_run_are_kept(tmp_path: Path) -> None:
    """Of four workers the oldest runs, and of the three that have ended the oldest goes; Ray's own files stay."""
    logs = tmp_path / "session_2026-01-01_00-00-00_000000_1" / "logs"
    (logs / "old").mkdir(parents=True)
    first, second, third = ended_pids(3)
    runs = files_of(logs, os.getpid(), 400)
    goes = files_of(logs / "old", first, 300)
    stay = files_of(logs, second, 200) + files_of(logs, third, 100)
    own = [logs / name for name in ("raylet.out", "gcs_server.err", "dashboard_agent.log")]
    for path in own:
        path.write_text("said\n")
    assert prune_logs(tmp_path, kept=2) == 5
    assert [path for path in (*runs, *stay, *own) if not path.exists()] == []
    assert [path for path in goes if path.exists()] == []
    assert prune_logs(tmp_path, kept=2) == 0


def test_names_are_those_that_ray_gives(tmp_path: Path) -> None:
    """A driver's log, and what is no log of a worker, is never removed."""
    logs = tmp_path / "session_x" / "logs"
    logs.mkdir(parents=True)
    (pid,) = ended_pids(1)
    for name in (f"python-core-driver-{WORKER}_{pid}.log", f"worker-{WORKER}-{pid}.txt", "worker-notes.log"):
        (logs / name).write_text("said\n")
    assert prune_logs(tmp_path, kept=0) == 0


def test_of_data_sets_that_were_read_the_newest_logs_are_kept(tmp_path: Path) -> None:
    """Each training reads one; the log of all of them stays."""
    logs = tmp_path / "session_x" / "logs" / "ray-data"
    logs.mkdir(parents=True)
    for age_s in range(4):
        path = logs / f"ray-data-dataset_{age_s}Hd_0.log"
        path.write_text("said\n")
        os.utime(path, (1e9 - age_s, 1e9 - age_s))
    (logs / "ray-data.log").write_text("said\n")
    assert prune_logs(tmp_path, kept=3) == 1
    left = ["ray-data-dataset_0Hd_0.log", "ray-data-dataset_1Hd_0.log", "ray-data-dataset_2Hd_0.log", "ray-data.log"]
    assert sorted(path.name for path in logs.iterdir()) == left
