"""``hothouse tune``, without a search."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from services.cli import app


def test_a_kind_that_heeds_none_of_what_is_searched_is_refused(tmp_path: Path) -> None:
    """At once, with what to set: hours of trials would find settings that change nothing."""
    config = tmp_path / "hothouse.toml"
    config.write_text('[learn]\nkind = "pretrained"\n')
    done = CliRunner().invoke(app, ["--config", str(config), "--data-dir", str(tmp_path), "tune"])
    assert done.exit_code == 2, done.output
    assert 'learn.kind is "pretrained": `hothouse tune` searches settings of the kind "network" alone' in done.stderr
    assert 'Set learn.kind = "network" to search' in done.stderr
