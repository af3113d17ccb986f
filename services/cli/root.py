"""``hothouse`` itself: the options before a command, and the list of commands."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from edge.core_dumps import leave_no_core_dumps
from services.cli import (
    alerts,
    backtest,
    change,
    dead_letters,
    export,
    learn,
    planning,
    pretrain,
    site,
    system,
    tune,
    weather_service,
    zones,
)
from services.cli.base import GlobalOptions, Group
from services.cli.history import backup_commands, import_rows, migrate
from services.cli.running import ask, trace
from services.cli.setup import commands as setup
from services.cli.setup import devices, keys

__all__ = ["app", "main"]

app = typer.Typer(
    name="hothouse",
    cls=Group,
    help="Streaming online learning for smart greenhouses: sensors in, probabilistic climate forecasts out.",
    epilog="Start here: hothouse demo. A system elsewhere: "
    "hothouse --url http://greenhouse:8000 --key-file reader.key status",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            typer.echo(f"hothouse {version('hothouse')}")
        except PackageNotFoundError:
            typer.echo("hothouse, not installed (run from its folder)")
        raise typer.Exit


@app.callback()
def _before(
    ctx: typer.Context,
    config: Annotated[
        Path | None, typer.Option(help="Configuration file; else $HOTHOUSE_CONFIG or hothouse.toml.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Data folder, instead of the configured one.")] = None,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
    url: ask.Url = None,
    key_file: ask.KeyFile = None,
    _: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    if (url or key_file) and ctx.invoked_subcommand not in ask.COMMANDS:
        raise typer.BadParameter(
            f"{ctx.invoked_subcommand} asks no running system: --url and --key-file are for {', '.join(ask.COMMANDS)}"
        )
    ctx.obj = GlobalOptions(config, data_dir, debug, url, key_file)


system.register(app)
site.register(app)
change.register(app)
planning.register(app)
weather_service.register(app)
zones.register(app)
ask.register(app)
backtest.register(app)
dead_letters.register(app)
trace.register(app)
export.register(app)
alerts.register(app)
keys.register(app)
devices.register(app)
import_rows.register(app)
migrate.register(app)
backup_commands.register(app)
learn.register(app)
tune.register(app)
pretrain.register(app)
setup.register(app)


def main() -> None:
    """Entry point of the ``hothouse`` program."""
    leave_no_core_dumps()
    app()
