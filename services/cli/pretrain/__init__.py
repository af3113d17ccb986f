"""``hothouse pretrain``: what a network learns before it has seen any greenhouse."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.cli.base import Group
from services.cli.pretrain import effects, simulate, train
from services.cli.pretrain.upload import open_for_upload
from services.errors import ConfigError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the group to ``app``."""
    group = typer.Typer(
        cls=Group, no_args_is_help=True, invoke_without_command=True,
        epilog="Example: hothouse pretrain --out pretrained --sites 200",
    )  # fmt: skip
    group.callback()(both)
    simulate.register(group)
    train.register(group)
    effects.register(group)
    app.add_typer(group, name="pretrain", rich_help_panel="Learn")


def both(
    ctx: typer.Context,
    out: Annotated[Path | None, typer.Option(help="A new folder: the fleet and the artefact go into it.")] = None,
    sites: Annotated[int, typer.Option(help="How many sites.", min=1)] = 1000,
    weeks: Annotated[float, typer.Option(help="Weeks of each site, 1.6 or more.", min=1.6, max=52)] = 2.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same fleet and, on a CPU, network.")] = 1,
    uploads: train.Upload = False,
) -> None:
    """What a network learns before it has seen any greenhouse: simulate a fleet, and train on it.

    With --out and no command it does both, into OUT/fleet and OUT/artefact.
    """
    if ctx.invoked_subcommand is not None:
        return
    if out is None:
        raise ConfigError("--out is missing", "Name a new folder: hothouse pretrain --out pretrained")
    if (out / "artefact").exists():
        raise ConfigError(f"{out / 'artefact'} exists, and an artefact never changes", "Name a new folder.")
    if uploads:
        open_for_upload(ctx)  # a simulation takes long, too
    simulate.simulate(out / "fleet", sites, weeks, seed)
    train.train(ctx, out / "fleet", out / "artefact", seed=seed, uploads=uploads)
