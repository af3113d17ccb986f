"""``keys``: who may read, give orders or administer, by name; the running system follows without a restart."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from edge.wire.topic import is_name
from models.durations import DAY_MS
from services.access_keys import AccessKeys, Scope, keys_of
from services.cli.base import Group, console, options_of, print_json, tell_if_new, utc_minute

__all__ = ["register"]

Name = Annotated[str, typer.Argument(help="Name of the key: letters, digits, '.', '_' and '-'.", metavar="NAME")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(
        cls=Group, no_args_is_help=True, help="Keys of the API: who may read or give orders, and until when.",
        epilog="Example: hothouse keys add greenhouse-display --scope read",
    )  # fmt: skip
    group.command("add", epilog="Example: hothouse keys add greenhouse-display --scope read --site demo --days 365")(
        add
    )
    group.command("list", epilog="Example: hothouse keys list --json")(list_keys)
    group.command("revoke", epilog="Example: hothouse keys revoke greenhouse-display")(revoke)
    app.add_typer(group, name="keys", rich_help_panel="Set up")


def add(
    ctx: typer.Context,
    name: Name,
    scope: Annotated[Scope, typer.Option(help="What it may do; each may do what those before it may.")] = "read",
    days: Annotated[int | None, typer.Option(min=1, max=36_500, help="Ends after this many days; else never.")] = None,
    site: Annotated[
        list[str] | None, typer.Option(help="Limits it to a site; repeatable. Else it is for all sites.")
    ] = None,
) -> None:
    """Make a key and print it. It is shown once: only a hash of it is kept."""
    if not 0 < len(name) <= 64 or not name.isascii() or not all(letter.isalnum() or letter in "._-" for letter in name):
        raise typer.BadParameter(f"{name!r} is no name: use up to 64 letters, digits, '.', '_' and '-'")
    for one in site or ():
        if not is_name(one):
            raise typer.BadParameter(f"{one!r} is no name of a site")
    now_ms, settings = _now_ms(), options_of(ctx).settings()
    if site and scope == "read" and not (settings.api.read_needs_key or settings.api.read_key_file):
        typer.echo("Reading is open to all: set api.read_needs_key = true, or the key limits nobody.", err=True)
    tell_if_new(settings)
    ends_ms = None if days is None else now_ms + days * DAY_MS
    typer.echo(keys_of(settings).add(name, scope, now_ms, ends_ms, site or None))


def list_keys(ctx: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Show names, scopes and times of all keys."""
    found = _keys(ctx).listed()
    if as_json:
        print_json([{"name": one.name, "scope": one.scope, "created_ms": one.created_ms, "expires_ms": one.expires_ms,
                     "sites": one.sites}
                    for one in found])  # fmt: skip
        return
    tell_if_new(options_of(ctx).settings())
    table = Table(title="Keys of the API", title_justify="left", caption="operator.key may do all, too")
    for heading in ("name", "may", "sites", "made (UTC)", "ends (UTC)"):
        table.add_column(heading, overflow="fold")
    for one in found:
        ends = "never" if one.expires_ms is None else utc_minute(one.expires_ms)
        ends += ", over" if one.expired(_now_ms()) else ""
        sites = "all" if one.sites is None else ", ".join(map(escape, one.sites))
        table.add_row(escape(one.name), one.scope, sites, utc_minute(one.created_ms), ends)
    console.print(table)


def revoke(ctx: typer.Context, name: Name) -> None:
    """Take a key back; a running system refuses it from the next request on.

    Where the storage is a bucket, within about ten seconds, and once it answers.
    """
    settings = options_of(ctx).settings()
    keys_of(settings).revoke(name)
    seen = ": what runs sees that in about ten seconds" if settings.storage.url else ""
    console.print(f"the key {escape(name)} is no longer taken{seen}")


def _keys(ctx: typer.Context) -> AccessKeys:
    return keys_of(options_of(ctx).settings())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
