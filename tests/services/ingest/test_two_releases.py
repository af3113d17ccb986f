"""Two releases, each in processes of its own, over one data folder: one goes on where the other was, and back."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services.ingest.snapshots.parts import PARTS
from tests.patience import patience_s
from tests.services.ingest.data_folder import HOUR

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[3]
FIRST, SECOND = 8 * HOUR, 10 * HOUR
LATER_FORM = """
PARTS["scores"] = Form(PARTS["scores"].version + 1, {PARTS["scores"].version: lambda state: state})
"""
STEPS = """
import json, sys
from importlib.metadata import version
from pathlib import Path
import services
from tests.services.ingest.data_folder import after, digests

shard, live_state, log = after(Path(sys.argv[1]), range(int(sys.argv[2]), int(sys.argv[3])))
repaired = shard.stats()["repaired"]
shard.close()
log.close()
said = {"release": version("hothouse"), "code": services.__file__, "repaired": repaired}
print(json.dumps({**said, "forecasts": digests(live_state.forecasts)}))
"""


@dataclass(frozen=True)
class Release:
    """The code in a tree."""

    tree: Path

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """A Python of its own that imports this code."""
        path = os.pathsep.join(map(str, (self.tree, ROOT)))  # the tests that it uses are here
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "500"}
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=self.tree, env=environment, capture_output=True, text=True, timeout=patience_s(120), check=False,
        )  # fmt: skip

    def hothouse(self, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
        """A command on a data folder."""
        code = "from services.cli import main; main()"
        given = ("--data-dir", folder, *arguments)
        return self.run("-c", code, *given)

    def steps(self, folder: Path, begin: int, end: int) -> dict[str, Any]:
        """A shard that takes what comes within these steps, saves and ends; what it said."""
        done = self.run("-c", STEPS, folder, begin, end)
        assert done.returncode == 0, done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        assert Path(said["code"]).is_relative_to(self.tree)
        return said


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release after this one, in which a part of the snapshots has another form."""
    tree = tmp_path_factory.mktemp("later")
    for package in ("edge", "models", "services"):
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (tree / "services" / "ingest" / "snapshots" / "parts.py").open("a") as parts:
        parts.write(LATER_FORM)
    about = tree / "hothouse-99.0.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hothouse\nVersion: 99.0.0\n")
    return Release(tree)


def state_of(folder: Path) -> dict[str, str]:
    """Every file below a folder, with its SHA-256; but for who holds the folder, which each start writes first."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()
        if name != "lock" and not name.startswith("storage/owner/")
    }  # fmt: skip


def test_forward_and_back(later: Release, tmp_path: Path) -> None:
    """A later release forecasts from the state of this one what this one would have; this one then leaves what the
    later one wrote as it is, byte for byte, and goes on from the backup that was made before.
    """
    this, folder = Release(ROOT), tmp_path / "data"
    folder.mkdir()
    began = this.steps(folder, 0, FIRST)
    assert began["forecasts"]
    made = this.hothouse(folder, "backup", tmp_path / "before.tar")
    assert made.returncode == 0, made.stderr
    expected = this.steps(shutil.copytree(folder, tmp_path / "without"), FIRST, SECOND)

    went_on = later.steps(folder, FIRST, SECOND)
    assert (went_on["release"], went_on["repaired"]) == ("99.0.0", "")
    assert went_on["release"] != began["release"]
    assert went_on["forecasts"] == expected["forecasts"]
    assert not began["forecasts"].keys() >= went_on["forecasts"].keys()

    there = state_of(folder)
    refused = this.hothouse(folder, "up")
    assert refused.returncode == 3, refused.stderr
    version = PARTS["scores"].version + 1
    assert f"was written by a later release: its part 'scores' has version {version}" in refused.stderr
    assert "restore the backup that was made before it into an empty place" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert state_of(folder) == there

    back = tmp_path / "back"
    restored = this.hothouse(back, "restore", tmp_path / "before.tar")
    assert restored.returncode == 0, restored.stderr
    assert this.steps(back, FIRST, SECOND)["forecasts"] == expected["forecasts"]
    assert later.steps(folder, SECOND, SECOND + HOUR)["repaired"] == ""  # and the later one goes on with what it has
