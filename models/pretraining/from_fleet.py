"""Step 13 of the way of a reading: a recorded fleet becomes an artefact. It needs neither Ray nor the simulator.

from pathlib import Path
from models.pretraining.from_fleet import pretrain
pretrain(Path("fleet"), Path("artefact"))
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from models import artefact
from models.features.inputs import Inputs
from models.network.house_features import HouseFeatures
from models.pretraining.fleet_examples import Drawing, FleetExamples, draw_examples
from models.pretraining.fleet_folder import FleetFolder, FleetFolderError
from models.pretraining.pretrainer import PretrainingConfig, train
from models.spec import ForecastSpec

__all__ = ["KIND", "best_device", "examples_of", "fleet_spec", "pretrain"]

KIND = "pretrained"
GOLDEN = 4
_DIGITS = 4
_INPUT = "input "


def best_device() -> str:
    """A graphics card where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def fleet_spec(fleet: FleetFolder) -> ForecastSpec:
    """The schema of a fleet's rows. What is learned fits any other, too."""
    layout = fleet.manifest["layout"]
    channels = (*layout["zone_metrics"], *layout["weather_metrics"])
    return ForecastSpec(channels, step_ms=int(fleet.manifest["step_s"]) * 1000)


def pretrain(
    folder: Path, out: Path, drawing: Drawing | None = None, config: PretrainingConfig | None = None, *,
    device: str | None = None, code_version: str = "", keep: Path | None = None,
    told: Callable[[str, int, int], None] = lambda part, done, total: None,
) -> dict[str, Any]:  # fmt: skip
    """Train on the fleet in ``folder``, write the artefact to ``out``, and return its manifest.

    ``keep`` is a folder for the examples of each chunk: where they are there they are not made again, which takes most
    of the time. ``told(part, done, total)`` is called with ``part`` "examples", counted in zone-days, and "steps".
    Raises ``FileExistsError`` where ``out`` exists, :class:`FleetFolderError`, and ``ValueError`` where there is too
    little.
    """
    if out.exists():
        raise FileExistsError(f"{out} exists; an artefact never changes")
    drawing, config, device = drawing or Drawing(), config or PretrainingConfig(), device or best_device()
    fleet = FleetFolder(folder)
    spec = fleet_spec(fleet)
    parts: list[FleetExamples] = []
    golden: list[Inputs] = []
    total, done = sum(min(c.zones, c.sites * drawing.zones_each) for c in fleet.chunks) * drawing.days, 0

    def advance(zone_days: int) -> None:
        nonlocal done
        done += zone_days
        told("examples", done, total)

    for number in range(len(fleet)):
        examples, inputs = examples_of(fleet, number, spec, drawing, keep, advance)
        parts.append(examples)
        golden.append(inputs)
    examples = FleetExamples.concatenate(parts)
    trained = train(examples, spec, config, device=device, told=lambda step, steps, loss: told("steps", step, steps))
    made = fleet.manifest
    trained_on = {
        "fleet": {name: made[name] for name in ("seed", "sites", "days", "step_s", "draws_version", "hothouse")},
        "site_weeks": round(fleet.site_weeks, 1),
        "zones": len(np.unique(examples.zone)),
        "examples": len(examples) - trained.held_back,
        "drawing": asdict(drawing),
        "training": asdict(trained.config),
        "device": device.split(":")[0],
    }
    metrics = {
        "held_back_examples": trained.held_back,
        "of_the_online_layer": _shown(trained.alone),
        "of_the_online_layer_without_plans": _shown(trained.silent),
        "of_the_online_layer_halves": _shown(trained.halves),
        "mean_of_the_online_layer": _mean(trained.alone),
        "mean_of_the_online_layer_without_plans": _mean(trained.silent),
        "mean_of_the_online_layer_halves": _mean(trained.halves),
        "losses": [round(loss, _DIGITS) for loss in trained.losses],
    }
    return artefact.save(
        out, trained.network, Inputs.concatenate(golden).take(slice(0, GOLDEN)), trained_on=trained_on,
        seed=config.seed, metrics=metrics, code_version=code_version, kind=KIND,
    )  # fmt: skip


def examples_of(
    fleet: FleetFolder, number: int, spec: ForecastSpec, drawing: Drawing, keep: Path | None = None,
    told: Callable[[int], None] = lambda zone_days: None,
) -> tuple[FleetExamples, Inputs]:  # fmt: skip
    """The examples of one chunk, from ``keep`` if they were kept there, with some of the inputs."""
    chunk = fleet.chunks[number]
    key = repr((asdict(drawing), chunk.sha256, number, spec.hash, HouseFeatures(spec).sources))
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    path = None if keep is None else keep / f"examples-{number:06d}-{name}.safetensors"
    if path is not None and path.exists():
        told(min(chunk.zones, chunk.sites * drawing.zones_each) * drawing.days)
        return _read(path)
    examples, inputs = draw_examples(fleet.read(number), spec, drawing, number, told)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        held = {f.name: getattr(examples, f.name) for f in fields(FleetExamples)}
        held |= {_INPUT + f.name: getattr(inputs, f.name) for f in fields(Inputs)}
        part = path.with_suffix(".part")
        part.write_bytes(save_tensors({name: np.ascontiguousarray(array) for name, array in held.items()}))
        part.replace(path)
    return examples, inputs


def _read(path: Path) -> tuple[FleetExamples, Inputs]:
    try:
        held = load_tensors(path.read_bytes())
    except (OSError, SafetensorError) as error:  # as after a power cut
        raise FleetFolderError(f"{path} cannot be read: {error}: remove it, and its examples are made again") from error
    examples = FleetExamples(*(held[f.name] for f in fields(FleetExamples)))
    return examples, Inputs(*(held[_INPUT + f.name] for f in fields(Inputs)))


def _mean(ratios: np.ndarray[Any, np.dtype[np.float32]]) -> float | None:
    return round(float(np.nanmean(ratios)), _DIGITS) if np.isfinite(ratios).any() else None


def _shown(ratios: np.ndarray[Any, np.dtype[np.float32]]) -> list[list[float | None]]:
    return [[round(float(x), _DIGITS) if np.isfinite(x) else None for x in row] for row in ratios]
