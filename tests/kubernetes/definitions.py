"""The definitions of the operators' kinds, as each publishes them in its Go module: no cluster needs to have them.

    python3 -m tests.kubernetes.definitions

gives the cluster that KUBECONFIG names those of Prometheus' operator. Standard library only; `go` fetches them.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.kubernetes.cluster import ClusterError, kubeconfig, run
from tests.patience import patience_s

__all__ = ["KUBERAY", "PROMETHEUS", "definitions"]

KUBERAY = (
    "github.com/ray-project/kuberay/ray-operator@v1.6.2", "config/crd/bases",
    ("ray.io_rayclusters.yaml", "ray.io_rayjobs.yaml"),
)  # fmt: skip
PROMETHEUS = (
    "github.com/prometheus-operator/prometheus-operator@v0.94.1", "example/prometheus-operator-crd",
    tuple(
        f"monitoring.coreos.com_{kind}.yaml"
        for kind in ("podmonitors", "prometheusrules", "scrapeconfigs", "servicemonitors")
    ),
)  # fmt: skip
"""Module, folder, and files of the kinds that we use."""


@functools.cache
def definitions(module: str, folder: str, names: Sequence[str]) -> list[Path]:
    """The files of a module's definitions; raises ``OSError``, also where it cannot be had."""
    command = ["go", "mod", "download", "-json", module]
    with tempfile.TemporaryDirectory() as nowhere:  # in a folder of Go's own, its versions would count
        try:
            done = subprocess.run(
                command, cwd=nowhere, capture_output=True, text=True, timeout=patience_s(120), check=False
            )
        except subprocess.TimeoutExpired as error:
            raise OSError(f"{' '.join(command)} took too long") from error
    try:
        fetched = json.loads(done.stdout)
        files = [Path(fetched["Dir"], folder, name) for name in names]
    except (ValueError, KeyError) as error:
        raise OSError(f"{' '.join(command)} gave nothing: {(done.stdout + done.stderr).strip()[-400:]}") from error
    if missing := [path for path in files if not path.is_file()]:
        raise OSError(f"{module} has no {missing[0].name}")
    return files


def main() -> int:
    """Install Prometheus' kinds; the exit code."""
    if problem := kubeconfig():
        print(problem, file=sys.stderr)
        return 2
    try:
        for path in definitions(*PROMETHEUS):
            print(run("kubectl", "apply", "--server-side", "-f", str(path)).strip())
    except (OSError, ClusterError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
