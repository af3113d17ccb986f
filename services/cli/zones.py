"""``zones retire``: a zone leaves forecasts, page and metrics until its next sample, by an event of the log."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.base import Group
from services.cli.change import PANEL, Version, publish_change, version_or_now

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the group to ``app``."""
    group = typer.Typer(cls=Group, no_args_is_help=True, help="Retire zones that send nothing any more.")
    group.command(epilog="Example: hothouse zones retire demo/north-1")(retire)
    app.add_typer(group, name="zones", rich_help_panel=PANEL)


def retire(
    ctx: typer.Context,
    zone: Annotated[str, typer.Argument(metavar="SITE/ZONE", help="The site, a slash, and its zone.")],
    version: Version = None,
) -> None:
    """Take a zone out of forecasts, page and metrics; its rows stay, and its next sample brings it back.

    A zone that was silent for stream.retire_days leaves by itself.
    """
    from edge.wire.events import Retirement

    site, slash, name = zone.partition("/")
    if not slash:
        raise typer.BadParameter(f"{zone} does not name a site and a zone, such as demo/north-1")
    publish_change(ctx, (site, name, "operator"), Retirement(version=version_or_now(version)))
