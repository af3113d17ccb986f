"""``pretrain effects``: what changes of setpoints and weather do, learned from pairs of simulated runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from services.cli.base import console, errors, need_cluster
from services.errors import ConfigError, HothouseError

if TYPE_CHECKING:
    from edge.simulator.fleet.counterfactuals import Pair
    from models.effects.plan_change import PlanChange
    from models.pretraining.effect_pairs import EffectPairs

__all__ = ["changes_of", "register", "simulated_pairs"]

DAYS, COPIES, TOGETHER = 3, 3, 60
STEP_MIN = 5


def register(group: typer.Typer) -> None:
    """Add the command to ``group``."""
    group.command(epilog="Example: hothouse pretrain effects --sites 2220 --seed 1 --out effects")(effects)


def changes_of(pair: Pair) -> tuple[PlanChange, ...]:
    """The changes of a simulated pair, as they are asked about."""
    from models.effects.plan_change import PlanChange

    return tuple(
        PlanChange(
            "vent_lee_pct" if change.metric == "vent_min_pct" else change.metric, getattr(change, "how", "add"),
            change.value, change.begin_min - pair.origin_min, change.end_min - pair.origin_min,
        ) for change in pair.changes
    )  # fmt: skip


def simulated_pairs(seed: int, first: int, sites: int) -> EffectPairs:
    """Pairs of runs of sites of a fleet: the same house and weather, as it was and with changes drawn by chance."""
    from edge.simulator.fleet.counterfactuals import simulate_pairs
    from edge.simulator.fleet.draws import draw_site
    from edge.simulator.fleet.fleet_recording import recording_layout
    from models.pretraining.effect_pairs import RunPair, pairs_of
    from models.pretraining.fleet_chunk import FleetChunk

    drawn = [draw_site(seed, index) for index in range(first, first + sites)]
    recording, pairs = simulate_pairs(drawn, DAYS, COPIES)
    chunk = FleetChunk(recording.arrays(), recording_layout(), recording.step_ms)
    runs = [RunPair(one.as_was, one.as_changed, one.origin_min // STEP_MIN - 1, changes_of(one)) for one in pairs]
    return pairs_of(chunk, runs)


def effects(
    out: Annotated[Path, typer.Option(help="A new folder, for the artefact.")],
    sites: Annotated[int, typer.Option(help="How many simulated sites; about 6 pairs of runs each.", min=20)] = 2220,
    seed: Annotated[int, typer.Option(help="The same seed gives the same network.", min=0)] = 1,
    epochs: Annotated[int, typer.Option(help="How often each pair is seen.", min=1)] = 6,
) -> None:
    """Learn what changes of setpoints and of the weather do: what `POST /predict` answers with.

    Simulates houses twice, as they were and with changes drawn by chance. Needs no running system.
    """
    with need_cluster("pretrain effects"):
        import torch

        from models.effects.effect_artefact import save_effects
        from models.pretraining.effect_pairs import EffectPairs
        from models.pretraining.effect_trainer import EffectTraining, train_effects

    if out.exists():
        raise ConfigError(f"{out} exists, and an artefact never changes", "Name a new folder.")
    torch.set_num_threads(1)  # sums are added up in another order by more
    began, parts = time.monotonic(), list["EffectPairs"]()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=errors, transient=True) as bar:
        simulating, training = bar.add_task("pairs of runs", total=sites), bar.add_task("training", total=None)
        for first in range(0, sites, TOGETHER):
            count = min(TOGETHER, sites - first)
            parts.append(simulated_pairs(seed, first, count))
            bar.advance(simulating, count)
        trained = train_effects(
            EffectPairs.concatenate(parts), EffectTraining(seed=seed, epochs=epochs),
            lambda step, steps: bar.update(training, completed=step, total=steps),
        )  # fmt: skip
    command = f"hothouse pretrain effects --sites {sites} --seed {seed} --epochs {epochs}"
    try:
        save_effects(out, trained.network, trained.golden, {"command": command, "seed": seed, **trained.metrics})
    except OSError as error:
        words = f"{out} cannot be written: {error.strerror or error}"
        raise HothouseError(words, "Name another folder, or make room, and start again.") from error
    size = sum(path.stat().st_size for path in out.iterdir()) / 1e3
    air = trained.metrics["held_back"]["air_temp_c"]
    line = (
        f"{trained.metrics['pairs']:,} pairs of {sites:,} sites: {out}, {size:,.0f} kB, "
        f"{time.monotonic() - began:.0f} s. "
        f"In houses held back {air['explained']:.0%} of what changes do to air temperature is explained"
    )
    console.print(line, markup=False, highlight=False, soft_wrap=True)
