"""``hothouse pretrain``: what a network learns before it has seen any greenhouse."""

from __future__ import annotations

import typer

from services.cli.base import Group
from services.cli.pretrain import effects, simulate

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the group to ``app``."""
    group = typer.Typer(
        cls=Group, no_args_is_help=True, help="What a network learns before it has seen any greenhouse."
    )
    simulate.register(group)
    effects.register(group)
    app.add_typer(group, name="pretrain", rich_help_panel="Learn")
