"""The command `hothouse backtest`: what it writes, prints and refuses."""

import pytest
from typer.testing import CliRunner

from services.cli import app
from tests.services.backtest.short_recordings import made_up

pytestmark = pytest.mark.thorough


def test_the_command_says_what_it_leaves_out_and_refuses_a_target_of_another_unit(tmp_path):
    """One line a column and file, markup-free, with what to write into recording.toml; an error is one sentence."""
    path = tmp_path / "r" / "a.csv"
    path.parent.mkdir()
    times = [f"2022-03-25 {n // 4:02d}:{n % 4 * 15:02d}" for n in range(96)]
    path.write_text(
        "\n".join(["time,t_air_c,out_t_c", *(f'{time},{20 + n % 3},"5,1"' for n, time in enumerate(times))])
    )
    command = ["backtest", str(path.parent), "--out", str(tmp_path / "p.csv"), "--warmup", "12h"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0
    (line,) = [line for line in done.output.splitlines() if "out_t_c" in line]
    assert line == (
        "a.csv: column out_t_c: 96 of 96 cells have a decimal comma, such as '5,1', and are left out; "
        'say decimal = "," in recording.toml'
    )
    path.write_text("\n".join(["time,t_air_c,out_t_c", *(f"{time},{70 + n % 9},4" for n, time in enumerate(times))]))
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 1
    assert 't_air_c = { metric = "air_temp_c", unit = "°F" } in recording.toml, under [columns]' in refused.output


def test_the_command(tmp_path):
    """`hothouse backtest` writes the file, prints the table, and refuses what it does not understand."""
    folder, out = made_up(tmp_path / "r"), tmp_path / "p.parquet"
    run = CliRunner()
    done = run.invoke(
        app, ["backtest", str(folder), "--out", str(out), "--warmup", "3d", "--every", "1h", "--no-network"]
    )
    assert done.exit_code == 0, done.output
    assert "t_air_c" in done.output
    assert "persistence" in done.output
    assert "…" not in done.output, "a number was cut"
    assert "mean MAE" in done.output
    assert out.exists()
    refused = run.invoke(app, ["backtest", str(folder), "--out", str(out), "--every", "often"])
    assert refused.exit_code == 2
    refused = run.invoke(app, ["backtest", str(folder), "--out", str(out), "--warmup", "3d", "--until", "2d"])
    assert refused.exit_code == 2
