"""``hothouse tune``: a search with Ray Tune on a history, from the command to the lines to set."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.cli.root import app
from services.config import load_settings
from services.learn.training.network_options import TUNABLE
from services.learn.training.tuning import read_windows, search, toml_of
from tests.ray.runtime import local_ray
from tests.services.learn.synthetic import small_settings, write_history

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

EPOCHS = 6


def test_a_search_ends_trials_that_are_behind_and_keeps_what_is_in_force(tmp_path: Path) -> None:
    """Settings in force that hardly learn are trained to their end and found worse; of the others some end early."""
    settings = small_settings(tmp_path, epochs=EPOCHS, learning_rate=1e-6)
    write_history(settings, days=8)
    told: list[tuple[int, int]] = []
    with local_ray():
        found = search(
            read_windows(settings, 2), settings.learn, 5, 1, tmp_path / "tune", lambda *done: told.append(done)
        )
    assert len(found) == 5
    (in_force,) = [trial for trial in found if trial.in_force]
    assert in_force.epochs == EPOCHS
    assert found[0].proof < in_force.proof - 0.02
    assert [trial.chosen_by for trial in found] == sorted(trial.chosen_by for trial in found)
    assert min(trial.epochs for trial in found) < EPOCHS
    assert told[-1] == (sum(trial.epochs for trial in found), 5)
    set_now = load_settings(data_dir=tmp_path, **tomllib.loads(toml_of(found[0].settings))).learn
    assert all(getattr(set_now, name) == pytest.approx(found[0].settings[name], rel=1e-3) for name in TUNABLE)


def test_the_command_prints_a_table_and_what_to_set(tmp_path: Path) -> None:
    """On a data folder with a history: a row a trial, and either lines to set or that none were better."""
    data = tmp_path / "data"
    write_history(small_settings(data), days=6)
    config = tmp_path / "hothouse.toml"
    config.write_text(
        '[stream]\nstep_s = 900\n[forecast]\nhorizons_min = [30, 60, 120]\ntargets = ["air_temp_c", "rh_pct"]\n'
        "[learn]\nepochs = 10\nmax_windows = 1000\nheld_back = 0.2\nlearning_rate = 1e-6\n"
    )
    options = ["--config", str(config), "--data-dir", str(data), "tune", "--trials", "3", "--cpus", "1"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    assert "in force" in result.output
    to_set = re.search(r"Better by \d+\.\d%.*\[learn\]\n(\w+ = [\d.e-]+\n){6}", result.output, re.S)
    assert to_set or "No settings were better on rows that were not used to choose them" in result.output, result.output
    nothing = CliRunner().invoke(app, ["--data-dir", str(tmp_path / "empty"), "tune"])
    assert nothing.exit_code != 0
