"""``devices``: logins of devices at the broker that ``hothouse up`` starts; the running broker follows by itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from edge.mqtt.device_logins import DeviceLogins, LoginError, sample_filter
from services.cli.base import Group, console, options_of, print_json, tell_if_new, utc_minute
from services.errors import ConfigError

__all__ = ["HOME_ASSISTANT_READS", "HOME_ASSISTANT_WRITES", "register"]

HOME_ASSISTANT_READS = ("hothouse/state/#", "hothouse/presence/#")
HOME_ASSISTANT_WRITES = ("homeassistant/#",)
"""It announces what it finds, and says there when it has started."""
Name = Annotated[str, typer.Argument(help="The device: letters, digits, '.', '_' and '-'.", metavar="NAME")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(
        cls=Group, no_args_is_help=True, help="Logins of devices at the broker that `hothouse up` starts.",
        epilog="Example: hothouse devices add bench --zone demo/north-1",
    )  # fmt: skip
    group.command(
        "add", epilog="Example: hothouse devices add bench --zone demo/north-1 --password-file bench.password"
    )(add)
    group.command("list", epilog="Example: hothouse devices list --json")(list_devices)
    group.command("revoke", epilog="Example: hothouse devices revoke bench")(revoke)
    app.add_typer(group, name="devices", rich_help_panel="Set up")


def add(
    ctx: typer.Context,
    name: Name,
    zone: Annotated[str, typer.Option(metavar="SITE/ZONE", help="Only there; else in any zone.")] = "",
    topic: Annotated[
        list[str] | None, typer.Option(help="Topics of its own that it may write and read, such as esphome/#.")
    ] = None,
    home_assistant: Annotated[
        bool, typer.Option("--home-assistant", help="For Home Assistant: it reads what is published for it.")
    ] = False,
    password_file: Annotated[
        Path | None, typer.Option(help="Write the password there, readable by you only, in place of printing it.")
    ] = None,
) -> None:
    """Make a login and print its password. It is shown once: only a hash of it is kept."""
    own = [_topic(one) for one in topic or ()]
    try:
        if home_assistant:
            writes, reads = [*HOME_ASSISTANT_WRITES, *own], [*HOME_ASSISTANT_WRITES, *HOME_ASSISTANT_READS, *own]
        else:
            writes, reads = ([sample_filter(name, zone)] if zone or not own else []) + own, own
        logins = _logins(ctx)
        tell_if_new(options_of(ctx).settings())
        with _secret_file(password_file) as write:
            write(logins.add(name, time.time_ns() // 1_000_000, writes, reads))
    except LoginError as error:
        raise ConfigError(str(error), error.hint) from error
    if password_file is not None:
        console.print(f"wrote {password_file}", highlight=False)


@contextmanager
def _secret_file(path: Path | None) -> Iterator[Callable[[str], object]]:
    """Writes one line into a new file, or shows it where none is named. The file is made first: a login whose password
    nobody has seen is of no use.
    """
    if path is None:
        yield typer.echo
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise ConfigError(f"{path} exists", "Name another file.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}", "Name another file.") from error
    try:
        with os.fdopen(descriptor, "w") as file:
            yield lambda text: file.write(text + "\n")
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def list_devices(ctx: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Show names and topics of all logins."""
    try:
        found = _logins(ctx).listed()
    except LoginError as error:
        raise ConfigError(str(error), error.hint) from error
    if as_json:
        print_json([{"name": one.name, "writes": one.writes, "reads": one.reads, "created_ms": one.created_ms}
                    for one in found])  # fmt: skip
        return
    tell_if_new(options_of(ctx).settings())
    table = Table(title="Devices", title_justify="left")
    for heading in ("name", "may publish on", "may read", "made (UTC)"):
        table.add_column(heading, overflow="fold")
    for one in found:
        made = utc_minute(one.created_ms)
        table.add_row(*map(escape, (one.name, "\n".join(one.writes), "\n".join(one.reads), made)))
    console.print(table)


def revoke(ctx: typer.Context, name: Name) -> None:
    """Take a login back; the running broker refuses it within a second or two."""
    try:
        _logins(ctx).revoke(name)
    except LoginError as error:
        raise ConfigError(str(error), error.hint) from error
    console.print(f"{name} cannot log in any more", highlight=False)


def _logins(ctx: typer.Context) -> DeviceLogins:
    settings = options_of(ctx).settings()
    if settings.mqtt.host:
        raise ConfigError(
            f"mqtt.host is {settings.mqtt.host}: that broker's logins are its own",
            "Make the login there, or unset mqtt.host to use the broker that `hothouse up` starts.",
        )
    return DeviceLogins(settings.data_dir / "broker")


def _topic(text: str) -> str:
    if text.split("/")[0] in ("", "#", "+", "hothouse", "$SYS"):
        raise ConfigError(
            f"{text!r} cannot be a topic of a device",
            "It must begin with a name other than hothouse, such as esphome/boiler/#.",
        )
    return text
