"""Several processes train one network: by the gradient of all their examples, cut into pieces or not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed, multiprocessing, nn

from models.features.windows import split
from models.network.progress import TrainingProgress
from models.network.quantile import QuantileNetwork, to_tensors
from models.network.sharding import shard, whole
from models.network.training import TrainingConfig, WindowSet, fit, pinball
from tests.models.worlds import SPEC, window_set

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WORLD = 2
CONFIG = TrainingConfig(epochs=3, batch_size=32, hidden=16, max_windows=300)


def ddp(network: nn.Module) -> nn.Module:
    """As Ray Train's ``prepare_model`` on CPUs."""
    return nn.parallel.DistributedDataParallel(network)


WRAPS: dict[str, Callable[[nn.Module], nn.Module]] = {"ddp": ddp, "fsdp": shard}


def in_processes(work: Callable[..., dict[str, Any]], folder: Path, *arguments: Any) -> list[dict[str, Any]]:
    """What each of the processes of a group returns, arrays by name."""
    multiprocessing.spawn(_process, (work, folder, arguments), nprocs=WORLD)
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(WORLD)]


def _process(rank: int, work: Callable[..., dict[str, Any]], folder: Path, arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder / 'group'}", rank=rank, world_size=WORLD)
    np.savez(folder / f"{rank}.npz", **work(rank, folder, *arguments))
    distributed.barrier()
    # Now and then torch aborts while an interpreter with a group is taken down ("terminate called without an active
    # exception"): this process has done all that it is for.
    os._exit(0)


def uneven(windows: WindowSet) -> Any:
    """64 origins; the half with odd places has fewer known truths than the other."""
    origins = windows.origins(SPEC.steps_per_day)
    known = np.isfinite(windows.truth(origins)).mean(axis=(1, 2))
    most_first = origins[np.argsort(-known, kind="stable")]
    return np.stack([most_first[:32], most_first[-32:]], axis=1).ravel()


def gradient(network: nn.Module, module: nn.Module, windows: WindowSet, origins: Any) -> dict[str, Any]:
    """Of the loss on these origins, whole, by parameter."""
    forecast = module(*to_tensors(windows.inputs(origins)))
    residual = network.residual
    assert isinstance(residual, torch.Tensor)
    pinball(forecast, torch.from_numpy(windows.truth(origins)), residual).backward()  # type: ignore[no-untyped-call]
    return {n: whole(p.grad).numpy() for n, p in network.named_parameters() if p.grad is not None}


def fresh() -> QuantileNetwork:
    """Equal everywhere; its head is not zero, so that every parameter has a gradient; nothing is left out at random."""
    torch.manual_seed(1)
    network = QuantileNetwork(SPEC, hidden=16, dropout=0.0, silence=0.0)
    nn.init.normal_(network.head.weight, std=0.1)
    return network


def _gradient_of_a_half(rank: int, folder: Path, kind: str) -> dict[str, Any]:
    windows, network = window_set(3), fresh()
    return gradient(network, WRAPS[kind](network), windows, uneven(windows)[rank::WORLD])


@pytest.mark.parametrize("kind", list(WRAPS))
@pytest.mark.thorough
def test_the_gradient_of_several_is_that_of_one(tmp_path: Path, kind: str) -> None:
    """Two processes with half of the examples each have the gradient of one process with all of them."""
    windows, network = window_set(3), fresh()
    truth = np.isfinite(windows.truth(uneven(windows)))
    assert truth[::2].sum() > 1.1 * truth[1::2].sum() > 0
    expected = gradient(network, network, windows, uneven(windows))
    for found in in_processes(_gradient_of_a_half, tmp_path, kind):
        assert sorted(found) == sorted(expected)
        for name, array in expected.items():
            assert np.abs(array).max() > 0
            assert np.allclose(found[name], array, rtol=1e-4, atol=1e-7), name


def _train(rank: int, folder: Path, kind: str) -> dict[str, Any]:
    windows = window_set(3)
    origins = split(windows, 0.2).train
    mine = origins[rank::WORLD]
    options: Any = {"wrap": WRAPS[kind], "steps_per_epoch": 5}
    kept: list[TrainingProgress] = []
    result = fit(windows, mine, CONFIG, on_epoch=kept.append, **options)
    own = folder / f"progress-{rank}"
    own.mkdir()
    kept[0].save(own)
    rest = fit(windows, mine, CONFIG, progress=TrainingProgress.load(own), **options)
    assert rest.history[1:] == result.history[1:]
    assert all(np.array_equal(rest.state[name], array) for name, array in result.state.items())
    return {**result.state, "loss": np.array([epoch.loss for epoch in result.history])}


@pytest.mark.thorough
def test_cut_into_pieces_it_learns_the_same(tmp_path: Path) -> None:
    """FSDP2 ends where DDP does, in the same whole state on every process; stopped, both go on as if never."""
    found = {}
    for kind in WRAPS:
        folder = tmp_path / kind
        folder.mkdir()
        one, two = in_processes(_train, folder, kind)
        assert all(np.array_equal(one[name], two[name]) for name in one)  # the loss, too, is that of both
        QuantileNetwork(SPEC, hidden=16).load_arrays({name: one[name] for name in one if name != "loss"})
        found[kind] = one
    weights = [name for name in found["ddp"] if name != "loss"]
    assert all(np.allclose(found["ddp"][name], found["fsdp"][name], rtol=1e-3, atol=1e-4) for name in weights)


def test_one_process_is_whole_already() -> None:
    """Without pieces nothing is put together or cut."""
    network = fresh()
    assert whole(network.head.weight) is network.head.weight
