"""``replay-training``: whether a model is what its record says."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from services.cli.base import console, need_cluster, options_of
from services.errors import ConfigError, TrainingError
from services.runtime.interrupts import ended_by_signals

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command = app.command(
        "replay-training", rich_help_panel="Check models", epilog="Example: hothouse replay-training v3"
    )
    command(replay_training)


def replay_training(
    ctx: typer.Context,
    version: Annotated[str, typer.Argument(help="Version, as `hothouse models list` shows it.")],
) -> None:
    """Train a registered model again from its recorded rows and seed, and compare the weights byte for byte.

    Reads the history and the registry; the system may run meanwhile. Exit code 1: it cannot be trained again, or the
    weights differ.
    """
    settings = options_of(ctx).settings()
    with need_cluster("replay-training"):
        from services.learn.experts import NETWORK, expert_of
        from services.learn.promotion.registry import open_registry
        from services.learn.tracking.registry_file import REGISTRY_FILE
        from services.learn.training.recipe import differing_versions, job_of
        from services.messages import ONLINE_VERSION
        from services.runtime.ray_runtime import RayRuntime
        from services.store.history import History
        from services.store.storage import storage_of
    if not (settings.learn.mlflow_uri or (settings.data_dir / REGISTRY_FILE).exists()):
        raise ConfigError(
            f"no model was registered in {settings.data_dir} yet", "Name the data folder: hothouse --data-dir DIR ..."
        )
    registry = open_registry(settings, expert_of(version) or NETWORK)
    candidate = registry.candidate(version)
    recipe = candidate.get("recipe")
    if not recipe:
        raise TrainingError(f"{version} was registered without a recipe")
    changed = differing_versions(recipe)
    job = job_of(recipe)
    of_a_champion = job.champion != ONLINE_VERSION  # else with the package's weights, which are always there
    if recipe["started_from"] and of_a_champion and (gone := registry.pruned(job.champion)):
        raise TrainingError(f"{version} began with the weights of {job.champion}, and {gone}")
    history = History(storage_of(settings), job.spec.channels, job.spec.step_ms // 1000)
    files = tuple(history.files(job.after_ms, job.to_ms))
    with (
        ended_by_signals(),
        tempfile.TemporaryDirectory(prefix="hothouse-replay-") as folder,
        console.status(f"training {version} again on {sum(recipe['rows'].values()):,} rows"),
        RayRuntime(settings.model_copy(update={"data_dir": Path(folder)}), beside=True),
    ):
        from services.learn.loop.training_replay import replay_training as run_again

        digest = run_again(recipe, files)
    if digest != candidate["weights_sha256"]:
        because = f" ({'; '.join(changed)})" if changed else ""
        raise TrainingError(
            f"training {version} again gave other weights: SHA-256 {digest[:12]}..., "
            f"registered {candidate['weights_sha256'][:12]}...{because}"
        )
    console.print(f"{version} came out the same, byte for byte: SHA-256 {digest}", soft_wrap=True)
    for line in changed:
        console.print(f"[dim]although {line}[/]")
