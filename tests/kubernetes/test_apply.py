"""`apply.sh`, with a `kubectl` that stands in for a cluster: what it asks of one that lacks something."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "deploy/kubernetes"
APPLY = SCRIPTS / "apply.sh"

WITHOUT_KUBERAY = """#!/bin/sh
case "$*" in
*" get service "*) ;;
*raycluster*) echo "error: the server doesn't have a resource type \\"raycluster\\"" >&2; exit 1 ;;
kustomize*) echo "kind: DaemonSet" ;;
apply*) cat >"{folder}/applied" ;;
esac
"""


def applied(folder: Path, overlay: str, **programs: str) -> str:
    """What the script gives to the cluster, with these programs instead of the machine's."""
    for name, text in programs.items():
        (folder / name).write_text(text.replace("{folder}", str(folder)))
        (folder / name).chmod(0o700)
    path = f"{folder}:{os.environ['PATH']}"
    subprocess.run([APPLY, overlay], check=True, env={"PATH": path}, capture_output=True)
    return (folder / "applied").read_text()


def test_a_site_needs_no_kuberay(tmp_path: Path) -> None:
    """Where nothing runs yet nobody is asked for a Ray cluster: a site with a gateway alone does not know the kind."""
    overlay = "deploy/kubernetes/overlays/edge"
    assert applied(tmp_path, overlay, kubectl=WITHOUT_KUBERAY) == "kind: DaemonSet\n"


def test_a_patience_in_minutes_is_refused(tmp_path: Path) -> None:
    """Before anything is asked: the sum of seconds would fail in the middle of an upgrade."""
    done = subprocess.run(
        [APPLY, "--upgrade", tmp_path], env={"PATH": os.environ["PATH"], "PATIENCE": "10m"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "PATIENCE is 10m: name seconds, such as 600s\n")


SECOND_RUNS = """#!/bin/sh
case "$*" in
*" get service "*) echo hothouse-b ;;
*" get raycluster "*) echo ray-worker ray-api ;;
kustomize*) printf 'name: hothouse-a\\nurl: "http://hothouse-a-api"\\nhost: hothouse-api\\n' ;;
apply*) cat >"{folder}/applied" ;;
esac
"""


def test_the_generation_that_runs_is_applied_by_any_sed(tmp_path: Path) -> None:
    """One without GNU's words, as on macOS, left hothouse-a where hothouse-b runs: a second system beside it."""
    sed = f'#!/bin/sh\nexec {shutil.which("sed")} --posix "$@" 2>/dev/null\n'
    found = applied(tmp_path, "overlay", kubectl=SECOND_RUNS, sed=sed)
    assert found == 'name: hothouse-b\nurl: "http://hothouse-b-api"\nhost: hothouse-api\n'


@pytest.mark.parametrize("name", ["apply.sh", "backup.sh"])
def test_the_time_is_said_by_any_bash(name: str) -> None:
    """That of macOS, 3.2, has no time in `printf`: an upgrade would end in its middle."""
    assert "%(" not in (SCRIPTS / name).read_text()
