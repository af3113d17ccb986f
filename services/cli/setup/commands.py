"""``doctor``, ``config`` and ``init``: is this machine ready, what is set, and where to begin."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from services.cli.base import console, options_of, print_json
from services.cli.setup.check import Check, CheckState
from services.cli.setup.doctor import examine
from services.cli.setup.settings_view import SettingView, commented_toml, list_settings, markdown_table
from services.cli.setup.watching import watch_devices
from services.config import Settings
from services.errors import ConfigError

__all__ = ["register"]

PANEL = "Set up"
COLOURS = {CheckState.OK: "green", CheckState.WARN: "yellow", CheckState.FAIL: "bold red"}


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(rich_help_panel=PANEL, epilog="Example: hothouse doctor --json")(doctor)
    app.command(rich_help_panel=PANEL, epilog="Example: hothouse config")(config)
    app.command(rich_help_panel=PANEL, epilog="Example: hothouse init greenhouse.toml")(init)


def doctor(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Report what is wrong with devices, as it happens, until Ctrl-C.")
    ] = False,
) -> None:
    """Check configuration, installation, machine and servers; exit code 1: something fails, 2: a setting is wrong."""
    if watch:
        watch_devices(options_of(ctx).settings())
        return
    try:
        checks = examine(options_of(ctx).settings())
    except ConfigError as error:
        checks = [Check("configuration", CheckState.FAIL, error.message, error.hint)]
        _show(checks, as_json)
        raise typer.Exit(error.exit_code) from None
    _show(checks, as_json)
    raise typer.Exit(1 if any(check.state is CheckState.FAIL for check in checks) else 0)


def _show(checks: list[Check], as_json: bool) -> None:
    if as_json:
        print_json([asdict(check) for check in checks])
        return
    table = Table(show_edge=False)
    for heading in ("", "check", "found", "what to do"):
        table.add_column(heading, overflow="fold")
    for check in checks:
        state = f"[{COLOURS[check.state]}]{check.state}[/]"
        table.add_row(state, *map(escape, (check.name, check.found, check.advice)))
    console.print(table)


def config(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the settings as JSON.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the reference of docs/configuration.md.", hidden=True)
    ] = False,
) -> None:
    """List every setting: its value, where that comes from, its default and its meaning; secrets are masked."""
    if markdown:
        typer.echo(markdown_table(), nl=False)
        return
    given = options_of(ctx)
    try:
        settings = given.settings()
    except ConfigError as error:
        if not as_json:  # whoever wrote a wrong name looks here for the right one
            _list(list_settings(Settings.model_construct()))
        raise ConfigError(error.message, "Each setting stands above with its default." if not as_json else "") from None
    views = list_settings(settings, () if given.data_dir is None else ("data_dir",))
    if as_json:
        print_json([asdict(view) for view in views])
        return
    _list(views)


def _list(views: list[SettingView]) -> None:
    table = Table(show_edge=False)
    for heading in ("setting", "value", "from", "default", "meaning"):
        table.add_column(heading, overflow="fold")
    for view in views:
        changed = "bold" if view.source != "default" else ""
        default = "" if view.source == "default" else view.default
        meaning = f"{view.description} ({view.allowed.replace('`', '')})" if view.allowed else view.description
        table.add_row(*map(escape, (view.name, view.value, view.source, default, meaning)), style=changed)
    console.print(table)
    console.print(
        "[dim]A variable wins over the file: HOTHOUSE_STREAM__STEP_S=60 sets stream.step_s. An option wins over it.[/]"
    )


def init(
    file: Annotated[Path, typer.Argument(help="Where to write it; - shows it.")] = Path("hothouse.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite it.")] = False,
) -> None:
    """Write a configuration file with every setting explained and its default commented out."""
    if file == Path("-"):
        typer.echo(commented_toml(), nl=False)
        return
    if file.exists() and not force:
        raise ConfigError(f"{file} exists", "Name another file, or overwrite it with --force.")
    is_new = not file.exists()
    try:
        file.write_text(commented_toml(), encoding="utf-8")
    except OSError as error:
        with suppress(OSError):
            if is_new:  # half of it would be taken for one
                file.unlink()
        raise ConfigError(f"{file} cannot be written: {error.strerror}", "Name another file.") from error
    named = "" if file == Path("hothouse.toml") else f"--config {shlex.quote(str(file))} "
    console.print(f"wrote {file}; `hothouse {named}doctor` checks it", markup=False, highlight=False, soft_wrap=True)
