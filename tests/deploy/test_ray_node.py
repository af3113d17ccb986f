"""deploy/images/ray-node.sh: what a head keeps, and from whom. ``ray`` and ``hostname`` are faked here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "images" / "ray-node.sh"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder of programs: ``ray`` says where it would keep the cluster, and with which arguments it was started."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {
        "hostname": '[ "${1:-}" = -i ] && echo 172.18.0.3 10.0.0.3 || echo "${CONTAINER}"',
        "ray": 'echo "${RAY_gcs_storage_path:-nowhere} $*"',
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


def start(programs: Path, role: str, container: str = "a1", **variables: str) -> list[str]:
    """Where the node keeps the cluster, and the arguments of ``ray``."""
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "CONTAINER": container, **variables}
    done = subprocess.run(
        ["sh", SCRIPT, role, "--num-cpus=0"], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_a_head_that_is_started_again_finds_its_cluster_and_a_new_one_does_not(programs: Path, tmp_path: Path) -> None:
    """Compose gives a container that it makes anew the nameless volumes of the one before."""
    disk = tmp_path / "disk"
    keeps = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(disk)}
    first = Path(start(programs, "head", **keeps)[0])
    (first / "CURRENT").write_text("what is known")
    assert Path(start(programs, "head", **keeps)[0]) == first
    assert (first / "CURRENT").exists()
    other = Path(start(programs, "head", container="b2", **keeps)[0])
    assert list(disk.iterdir()) == [other]
    assert list(other.iterdir()) == []


def test_workers_and_a_head_without_a_disk_keep_nothing(programs: Path) -> None:
    """As on Kubernetes, where Redis keeps it, or nobody."""
    where, *arguments = start(programs, "head")
    assert where == "nowhere"
    assert {"--head", "--port=6379", "--num-cpus=0", "--node-ip-address=172.18.0.3"} <= set(arguments)
    where, *arguments = start(programs, "worker", HOTHOUSE_RAY__ADDRESS="ray-head:6379")
    assert where == "nowhere"
    assert "--address=ray-head:6379" in arguments
