"""Step 13 of the way of a reading: ``models.training`` on Ray Train workers.

Each worker streams the training rows once, keeps its own zones, and runs the same plain-PyTorch loop; several are
joined by DistributedDataParallel. With ``workers = 0`` the loop runs in the calling process, which saves the start of
a worker group where one machine is all there is.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import ray.data
import ray.train
import ray.train.torch
import torch
from safetensors.numpy import load_file, save_file

from models.spec import ForecastSpec, Place
from models.training import Epoch, FitResult, TrainingConfig, WindowSet, fit
from services.errors import TrainingError
from services.learn.dataset import collect

__all__ = ["TrainPlan", "train"]

KEPT_RUNS = 3
"""Folders of Ray Train that stay on the storage, for whoever looks into a run."""
WORKER_CPUS = 0.5
STATE_FILE = "state.safetensors"
EPOCHS_FILE = "epochs.json"

State = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainPlan:
    """A training besides its rows; ``shares[rank]`` are the zones (``site/zone``) of a worker."""

    name: str
    folder: str
    spec: ForecastSpec
    config: TrainingConfig
    places: Mapping[str, Place]  # zone -> place
    cut_ms: int
    shares: Sequence[frozenset[str]]
    workers: int
    use_gpu: bool
    initial_state: State | None = None


def train(rows: ray.data.Dataset, plan: TrainPlan) -> FitResult:
    """Train on ``rows`` (nothing after ``plan.cut_ms``); equal plans and rows give equal weights on equal machines.

    A worker that dies is restarted once, from the newest epoch. Raises :class:`TrainingError`.
    """
    _forget_old_runs(Path(plan.folder))
    trainer = ray.train.torch.TorchTrainer(
        _loop,
        train_loop_config={"plan": plan},
        datasets={"rows": rows},
        dataset_config=ray.train.DataConfig(datasets_to_split=[]),  # zones are whole: each worker picks its own
        scaling_config=ray.train.ScalingConfig(
            num_workers=min(plan.workers, len(plan.shares)),
            use_gpu=plan.use_gpu,
            resources_per_worker={"CPU": WORKER_CPUS} | ({"GPU": 1} if plan.use_gpu else {}),
        ),
        run_config=ray.train.RunConfig(
            name=plan.name,
            storage_path=plan.folder,
            failure_config=ray.train.FailureConfig(max_failures=1),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=1),
        ),
    )
    try:
        with _quiet():
            result = trainer.fit()
    except (ray.train.TrainingFailedError, ValueError, RuntimeError) as error:
        raise TrainingError(f"the training failed: {_first_cause(error)}") from error
    finished: FitResult = result.return_value
    if not all(np.isfinite(array).all() for array in finished.state.values()):
        raise TrainingError("the training diverged: its weights are not finite")
    return finished


def _loop(config: dict[str, Any]) -> FitResult:
    """What one worker does; the result of rank 0 counts."""
    plan: TrainPlan = config["plan"]
    if plan.workers and not plan.use_gpu:
        os.nice(10)  # a worker gives way to forecasts and requests; without workers that is the caller's matter
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    stream = ray.train.get_dataset_shard("rows").iter_batches(batch_format="pyarrow", batch_size=8192)
    rows = collect(stream, plan.spec.channels, plan.shares[rank])
    names = np.array(rows.zones)[rows.zone_ids]
    windows = WindowSet.from_columns(names, rows.end_ms, rows.values, plan.places, plan.spec)
    origins = windows.origins(plan.spec.steps_per_day)
    settings = replace(plan.config, max_windows=-(-plan.config.max_windows // world))
    state, done = _resume(plan)
    resumed = bool(done)

    def report(epoch: Epoch, best: State) -> None:
        done.append(epoch)
        with tempfile.TemporaryDirectory() as folder:
            kept = None
            if rank == 0 and plan.workers:  # without workers nothing is restarted, and Ray keeps no checkpoint
                save_file({name: np.ascontiguousarray(array) for name, array in best.items()}, Path(folder, STATE_FILE))
                Path(folder, EPOCHS_FILE).write_text(json.dumps([asdict(one) for one in done]))
                kept = ray.train.Checkpoint.from_directory(folder)
            ray.train.report(asdict(epoch), checkpoint=kept)

    result = fit(
        windows, origins, replace(settings, epochs=max(settings.epochs - len(done), 1)),
        cut_ms=plan.cut_ms, initial_state=state, on_epoch=report,
        wrap=ray.train.torch.prepare_model if world > 1 else lambda network: network,
        device=ray.train.torch.get_device() if plan.use_gpu else "cpu",
        steps_per_epoch=_common_steps(len(origins), settings) if world > 1 else None,
    )  # fmt: skip
    return FitResult(result.state, done, resumed)


def _resume(plan: TrainPlan) -> tuple[State | None, list[Epoch]]:
    """Where to begin: at the newest checkpoint after a restart, else at the plan's initial state."""
    checkpoint = ray.train.get_checkpoint() if plan.workers else None
    if checkpoint is None:
        return plan.initial_state, []
    with checkpoint.as_directory() as folder:
        epochs = [Epoch(**one) for one in json.loads(Path(folder, EPOCHS_FILE).read_text())]
        return load_file(Path(folder, STATE_FILE)), epochs


def _common_steps(origins: int, config: TrainingConfig) -> int:
    """Steps an epoch that all workers take: those of the worker that has most windows."""
    mine = -(-min(origins, config.max_windows) // config.batch_size)
    most = torch.tensor(float(mine), device=ray.train.torch.get_device())
    torch.distributed.all_reduce(most, op=torch.distributed.ReduceOp.MAX)
    return int(most.item())


def _forget_old_runs(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    runs = sorted(path for path in folder.iterdir() if path.is_dir())
    for old in runs[: -(KEPT_RUNS - 1)]:
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """Ray Train and Data tell their progress at INFO and warn of their own deprecated calls; keep that from the log."""
    for name in ("ray.train", "ray.data"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _first_cause(error: BaseException) -> str:
    """The sentence of the innermost error that says anything: workers' errors come wrapped several times."""
    failures = getattr(error, "worker_failures", None)
    if failures:
        return _first_cause(next(iter(failures.values())))
    cause = getattr(error, "cause", None) or error.__cause__
    if isinstance(cause, BaseException) and cause is not error:
        return _first_cause(cause)
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
