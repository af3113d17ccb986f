"""Step 13 of the way of a reading: ``models.network.training`` on Ray Train workers.

Each worker streams the training rows once, keeps its own zones, and runs the same plain-PyTorch loop; several are
joined by DistributedDataParallel. With ``workers = 0`` the loop runs in the calling process, which saves the start of
a worker group where one machine is all there is. Either way every epoch's end is kept on the storage.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from torch import nn

from models.families import TooLittleError, family_of
from models.features.windows import WindowSet
from models.network.progress import ProgressError, TrainingProgress
from models.network.residual_network import ResidualNetwork
from models.network.sharding import shard
from models.network.training import FitResult, TrainingConfig, fit, quantile_network
from models.spec import ForecastSpec, Place
from services.errors import TooLittleHistoryError, TrainingError
from services.learn.training.dataset import collect
from services.learn.training.kept_runs import KeptRuns
from services.learn.training.placement_groups import note_reservation
from services.messages import I64
from services.store.storage import StorageAddress

__all__ = ["EpochClock", "TrainPlan", "first_cause", "quiet", "train"]

WORKER_CPUS = 0.5
RESTARTS = 2
"""How often workers that were lost are started again, with their node or without it."""

_log = logging.getLogger(__name__)

State = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainPlan:
    """A training besides its rows; ``shares[rank]`` are the zones (``site/zone``) of a worker.

    A training of the same ``name`` in the same ``folder`` is the same one: it goes on where it stopped, if it ``keeps``
    epochs. With ``min_workers`` it does with so few where there is no room for all, and takes more when there is.
    """

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
    min_workers: int = 0  # 0: none less than planned
    kind: str = "network"  # of what is trained
    options: Mapping[str, Any] | None = None  # of its form; None: as ``config`` says
    sharded: bool = False  # each worker holds a piece of the network (FSDP2), not all of it (DDP)
    where: StorageAddress | None = None  # the bucket that keeps the ends of epochs; None: ``folder`` does
    keeps: bool = True  # the ends of epochs; else it begins anew, whatever is kept of its name, and leaves nothing

    @property
    def runs(self) -> KeptRuns:
        """Where it is kept."""
        return KeptRuns(Path(self.folder), self.where)


def train(rows: ray.data.Dataset, plan: TrainPlan) -> FitResult:
    """Train on ``rows`` (nothing after ``plan.cut_ms``); equal plans and rows give equal weights on equal machines.

    Workers that die are started again, on other nodes if need be, and go on from the newest epoch that was kept. So
    does a training whose own process died, when it is asked for once more. Raises :class:`TrainingError`.
    """
    if plan.keeps:
        plan.runs.forget_old(plan.name)
    trainer = ray.train.torch.TorchTrainer(
        _loop,
        train_loop_config={"plan": plan},
        datasets={"rows": rows},
        dataset_config=ray.train.DataConfig(datasets_to_split=[]),  # zones are whole: each worker picks its own
        scaling_config=ray.train.ScalingConfig(
            num_workers=_worker_range(plan),
            use_gpu=plan.use_gpu,
            resources_per_worker={"CPU": WORKER_CPUS} | ({"GPU": 1} if plan.use_gpu else {}),
        ),
        run_config=ray.train.RunConfig(
            name=plan.name,
            storage_path=plan.folder,
            failure_config=ray.train.FailureConfig(max_failures=RESTARTS),
        ),
    )
    try:
        with quiet():
            result = trainer.fit()
    except (ray.train.TrainingFailedError, ValueError, RuntimeError) as error:
        if isinstance(_innermost(error), TooLittleError):
            raise TooLittleHistoryError(first_cause(error)) from error
        raise TrainingError(f"the training failed: {first_cause(error)}") from error
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
    if plan.keeps and plan.workers and not rank:
        note_reservation(plan.runs, plan.name)
    settings = replace(plan.config, max_windows=-(-plan.config.max_windows // world))
    windows, origins, steps = _examples(plan, settings, rank, world)
    clock = EpochClock()

    def keep(progress: TrainingProgress) -> None:
        _keep(progress, plan, rank)
        clock.tick()

    result = fit(
        windows, origins, settings,
        cut_ms=plan.cut_ms, initial_state=plan.initial_state, progress=_resume(plan), on_epoch=keep,
        make=_form(plan),
        wrap=_wrapping(plan) if world > 1 else lambda network: network,
        device=ray.train.torch.get_device() if plan.use_gpu else "cpu",
        steps_per_epoch=steps,
    )  # fmt: skip
    resized = plan.workers > 0 and world != _most_workers(plan)
    return replace(result, cost_s=clock.cost_s, resumed=result.resumed or resized)


def _examples(plan: TrainPlan, settings: TrainingConfig, rank: int, world: int) -> tuple[WindowSet, I64, int | None]:
    """What worker ``rank`` trains on, and how many steps an epoch has, ``None`` where it is alone.

    Sensors may be dead in all of its zones, so that it has no origin of its own. ``origins`` are empty only where no
    worker has any.
    """
    windows, origins = _rows_for(plan, rank, world)
    if world == 1:
        return windows, origins, None
    counts = _origins_of_all(len(origins), rank, world)
    steps, most = _common_steps(counts, settings), int(np.argmax(counts))
    # The scales of the first one's rows are those of all, and its days say how far the network is trusted: where it
    # has no origin, it changes places with the worker that has most.
    if most and not counts[0] and rank in (0, most):
        windows, origins = _rows_for(plan, most - rank, world)
    if steps and not len(origins):
        # It takes part in every step all the same, or the others wait for it: with a row that nothing follows, which
        # has no truth and adds nothing to their loss.
        origins = np.array([len(windows.zone_ids) * windows.length - 1])
    return windows, origins, steps


def _rows_for(plan: TrainPlan, rank: int, world: int) -> tuple[WindowSet, I64]:
    """The rows of the zones of worker ``rank``, and the origins to train on among them."""
    stream = ray.train.get_dataset_shard("rows").iter_batches(batch_format="pyarrow", batch_size=8192)
    # A group that could not be as large as planned deals the shares of those that are not there among the others.
    rows = collect(stream, plan.spec.channels, frozenset().union(*plan.shares[rank::world]))
    names = np.array(rows.zones)[rows.zone_ids]
    windows = WindowSet.from_columns(names, rows.end_ms, rows.values, plan.places, plan.spec)
    return windows, windows.origins(plan.spec.steps_per_day)


class EpochClock:
    """Wall and CPU seconds between ticks of this process; the first tick has all that was done to begin with."""

    def __init__(self) -> None:
        self._last = (time.monotonic(), time.process_time())
        self.cost_s: list[tuple[float, float]] = []

    def tick(self) -> None:
        """An epoch has ended, and is kept."""
        now = (time.monotonic(), time.process_time())
        self.cost_s.append((now[0] - self._last[0], now[1] - self._last[1]))
        self._last = now


def _keep(progress: TrainingProgress, plan: TrainPlan, rank: int) -> None:
    """Make an epoch's end known, and durable if the training keeps it."""
    if plan.keeps and not rank:
        plan.runs.keep(plan.name, progress)
    ray.train.report(asdict(progress.history[-1]))


def _resume(plan: TrainPlan) -> TrainingProgress | None:
    """Where a training of this name stopped; ``None`` if it begins, or where what it kept cannot be read."""
    if not plan.keeps:
        return None
    try:
        return plan.runs.kept(plan.name)
    except ProgressError:
        _log.warning("%s begins anew: its progress cannot be read", plan.name, exc_info=True)
        return None


def _worker_range(plan: TrainPlan) -> int | tuple[int, int]:
    """How many workers Ray Train is to start: a number, or the fewest and the most."""
    most = _most_workers(plan)
    return (plan.min_workers, most) if 0 < plan.min_workers < most else most


def _most_workers(plan: TrainPlan) -> int:
    return min(plan.workers, len(plan.shares))


def _form(plan: TrainPlan) -> Callable[[ForecastSpec, TrainingConfig], ResidualNetwork]:
    """What is trained, before it has learned anything."""
    options = plan.options
    if options is None:
        return quantile_network

    def make(spec: ForecastSpec, config: TrainingConfig) -> ResidualNetwork:
        model = family_of(plan.kind).make(spec, options)
        if not isinstance(model, ResidualNetwork):
            raise TypeError(f"{plan.kind} is no kind of network: Ray Train cannot train it")
        return model

    return make


def _wrapping(plan: TrainPlan) -> Callable[[nn.Module], nn.Module]:
    wrap: Callable[[nn.Module], nn.Module] = shard if plan.sharded else ray.train.torch.prepare_model
    return wrap


def _origins_of_all(mine: int, rank: int, world: int) -> list[int]:
    """How many origins each worker has, by rank; every worker calls this with its own."""
    counts = torch.zeros(world, dtype=torch.int64, device=ray.train.torch.get_device())
    counts[rank] = mine
    torch.distributed.all_reduce(counts)
    return [int(count) for count in counts.tolist()]


def _common_steps(counts: Sequence[int], config: TrainingConfig) -> int:
    """Steps an epoch that all workers take: those of the worker that has most windows; 0 without any."""
    return -(-min(max(counts), config.max_windows) // config.batch_size)


@contextmanager
def quiet() -> Iterator[None]:
    """Ray Train and Data tell their progress at INFO and warn of their own deprecated calls; keep that from the log."""
    for name in ("ray.train", "ray.data"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def first_cause(error: BaseException) -> str:
    """The sentence of the innermost error that says anything: workers' errors come wrapped several times."""
    error = _innermost(error)
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def _innermost(error: BaseException) -> BaseException:
    failures = getattr(error, "worker_failures", None)
    if failures:
        return _innermost(next(iter(failures.values())))
    cause = getattr(error, "cause", None) or error.__cause__
    return _innermost(cause) if isinstance(cause, BaseException) and cause is not error else error
