"""``hothouse pretrain effects``: simulated pairs of runs become an artefact."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from models.effects.effect_artefact import load_effects
from services.cli.root import app


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["pretrain", "effects", *arguments])
    return result.exit_code, result.output


@pytest.mark.slow
@pytest.mark.thorough
def test_an_artefact_is_made_and_says_how(tmp_path: Path) -> None:
    """It loads, and its manifest has the command that makes it again."""
    code, said = run("--sites", "20", "--seed", "4", "--epochs", "1", "--out", str(tmp_path / "effects"))
    assert code == 0, said
    assert "pairs of 20 sites" in said
    _, manifest = load_effects(tmp_path / "effects")
    assert manifest["command"] == "hothouse pretrain effects --sites 20 --seed 4 --epochs 1"
    assert (manifest["seed"], manifest["kind"]) == (4, "effects")
    assert manifest["houses"] + manifest["houses_held_back"] == 20


def test_a_folder_that_is_there_is_refused(tmp_path: Path) -> None:
    """Before anything is simulated."""
    code, said = run("--out", str(tmp_path))
    assert code == 2
    assert "an artefact never changes" in said
