"""``pretrain train``: a network is pre-trained on a recorded fleet."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from services.cli.base import console, errors, need_cluster
from services.cli.pretrain.simulate import installed_version
from services.cli.pretrain.upload import open_for_upload, upload
from services.errors import ConfigError, HothouseError

__all__ = ["Upload", "register", "train"]

Upload = Annotated[bool, typer.Option("--upload", help="Put the artefact into the storage (`storage.url`), too.")]

PARTS = {"examples": "the online layer over the fleet", "steps": "training"}


def register(group: typer.Typer) -> None:
    """Add the command to ``group``."""
    group.command(epilog="Example: hothouse pretrain train --fleet fleet --out artefact")(train)


def train(
    ctx: typer.Context,
    fleet: Annotated[Path, typer.Option(help="A folder of `hothouse pretrain simulate`.")],
    out: Annotated[Path, typer.Option(help="A new folder, for the artefact.")],
    days: Annotated[int, typer.Option(help="Days of each zone.", min=1)] = 8,
    zones_each: Annotated[int, typer.Option(help="No more zones of a site than this.", min=1)] = 2,
    origins_each: Annotated[int, typer.Option(help="Examples of a zone, most of its first days.", min=1)] = 150,
    epochs: Annotated[
        int, typer.Option(help="How often a teacher sees each example; the kept network: twice as often.", min=1)
    ] = 8,
    seed: Annotated[int, typer.Option(help="The same seed gives the same network, on a CPU.", min=0)] = 1,
    keep: Annotated[
        Path | None,
        typer.Option(help="A folder for the examples, which take most of the time: used if they are there."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a graphics card where there is one.")] = "auto",
    uploads: Upload = False,
) -> None:
    """Pre-train a network on a fleet of simulated greenhouses: what it answers in a zone's first hour.

    First the online layer runs over the fleet as it would live. What it leaves over is what the network learns.
    """
    with need_cluster("pretrain train"):
        from models.pretraining.fleet_examples import Drawing
        from models.pretraining.fleet_folder import FleetFolderError
        from models.pretraining.from_fleet import best_device, pretrain
        from models.pretraining.pretrainer import PretrainingConfig

    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"{device!r} is no device", "Choose cpu, cuda or auto.")
    if out.exists():
        raise ConfigError(f"{out} exists, and an artefact never changes", "Name a new folder.")
    storage = open_for_upload(ctx) if uploads else None
    drawing = Drawing(seed=seed, days=days, zones_each=zones_each, origins_each=origins_each)
    config = PretrainingConfig(seed=seed, epochs=epochs)
    began = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=errors, transient=True) as bar:
        tasks = {part: bar.add_task(words, total=None) for part, words in PARTS.items()}
        try:
            manifest = pretrain(
                fleet, out, drawing, config, device=best_device() if device == "auto" else device,
                code_version=installed_version(), keep=keep,
                told=lambda part, done, total: bar.update(tasks[part], completed=done, total=total),
            )  # fmt: skip
        except (FleetFolderError, ValueError) as error:
            hint = "Simulate a fleet: hothouse pretrain simulate --out FOLDER"
            raise HothouseError(str(error), hint) from error
        except OSError as error:
            raise HothouseError(
                f"{out} cannot be written: {error.strerror or error}", "Name another folder."
            ) from error
    told, found = manifest["trained_on"], manifest["metrics"]
    size = sum(path.stat().st_size for path in out.iterdir()) / 1e3
    line = (
        f"{told['examples']:,} examples of {told['zones']:,} zones, {told['site_weeks']:,.1f} site-weeks, on "
        f"{told['device']}: {out}, {size:,.0f} kB, {time.monotonic() - began:.0f} s. On zones held back its error is "
        f"{found['mean_of_the_online_layer']} of the online layer's, without plans "
        f"{found['mean_of_the_online_layer_without_plans']}"
    )
    console.print(line, markup=False, highlight=False, soft_wrap=True)
    if storage is not None:
        try:
            line = f"uploaded: {upload(storage, out)} in {storage.url}"
        except OSError as error:
            raise HothouseError(f"{out} could not be uploaded: {error}", "Copy the folder yourself.") from error
        console.print(line, markup=False, highlight=False, soft_wrap=True)
