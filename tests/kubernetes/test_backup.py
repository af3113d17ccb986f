"""`backup.sh`, with a `kubectl` that stands in for a cluster: an earlier backup stays until a new one is whole."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy/kubernetes/backup.sh"

KUBECTL = """#!/bin/sh
case "$*" in
*" get service "*) printf hothouse-a ;;
*" cat /tmp/hothouse.tar") printf new ;;
*" cat /tmp/mlflow.tar") printf ne; {end} ;;
*sha256sum*) printf new | sha256sum ;;
esac
"""


@pytest.mark.parametrize(
    ("end", "says", "holds"),
    [
        ("printf w", "", "new"),
        ("exit 0", "mlflow.tar came in part only", "old"),
        ("exit 1", "mlflow.tar did not come", "old"),
    ],
)
def test_an_earlier_backup_stays_until_a_new_one_is_whole(tmp_path: Path, end: str, says: str, holds: str) -> None:
    """Both files of it, which belong together; nothing else is left in the folder."""
    kubectl, folder = tmp_path / "kubectl", tmp_path / "monday"
    kubectl.write_text(KUBECTL.replace("{end}", end))
    kubectl.chmod(0o700)
    folder.mkdir()
    for name in ("hothouse.tar", "mlflow.tar"):
        (folder / name).write_text("old")
    done = subprocess.run(
        [SCRIPT, folder], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0, says in done.stderr) == (holds == "new", True)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"hothouse.tar": holds, "mlflow.tar": holds}
