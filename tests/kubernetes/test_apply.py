"""`apply.sh`, with a `kubectl` that stands in for a cluster: what it asks of one that lacks something."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]

WITHOUT_KUBERAY = """#!/bin/sh
case "$*" in
*" get service "*) ;;
*raycluster*) echo "error: the server doesn't have a resource type \\"raycluster\\"" >&2; exit 1 ;;
kustomize*) echo "kind: DaemonSet" ;;
apply*) cat >"{folder}/applied" ;;
esac
"""


def test_a_site_needs_no_kuberay(tmp_path: Path) -> None:
    """Where nothing runs yet nobody is asked for a Ray cluster: a site with a gateway alone does not know the kind."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(WITHOUT_KUBERAY.replace("{folder}", str(tmp_path)))
    kubectl.chmod(0o700)
    path = f"{tmp_path}:{os.environ['PATH']}"
    script = ROOT / "deploy/kubernetes/apply.sh"
    subprocess.run([script, "deploy/kubernetes/overlays/edge"], check=True, env={"PATH": path}, capture_output=True)
    assert (tmp_path / "applied").read_text() == "kind: DaemonSet\n"


def test_a_patience_in_minutes_is_refused(tmp_path: Path) -> None:
    """Before anything is asked: the sum of seconds would fail in the middle of an upgrade."""
    script = ROOT / "deploy/kubernetes/apply.sh"
    done = subprocess.run(
        [script, "--upgrade", tmp_path], env={"PATH": os.environ["PATH"], "PATIENCE": "10m"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "PATIENCE is 10m: name seconds, such as 600s\n")
