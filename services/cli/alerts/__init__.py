"""``alerts``: rules, and how good they are."""

from __future__ import annotations

import typer

from services.cli.alerts import alert_score
from services.cli.base import Group

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the group to ``app``."""
    group = typer.Typer(cls=Group, no_args_is_help=True, help="Alerts: rules, and how good they are.")
    group.command(epilog=alert_score.EXAMPLE)(alert_score.score)
    app.add_typer(group, name="alerts", rich_help_panel="Learn")
