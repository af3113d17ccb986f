"""Step 13 of the way of a reading: the state of a training after an epoch, and its file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import nn

from models.network.sharding import like, whole

__all__ = ["PROGRESS_FILE", "Epoch", "ProgressError", "TrainingProgress"]

PROGRESS_FILE = "progress.safetensors"
_RANDOM = "torch_random"
_STATE, _MOMENTS = "state/", "moments/"


class ProgressError(Exception):
    """A file that does not hold a training's progress."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass: the mean pinball loss in units of the climatology's mean absolute error."""

    number: int
    loss: float


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """Everything that a training needs to go on after an epoch. A single process on a CPU then ends with the weights of
    a training that never stopped, bit for bit.
    """

    state: Mapping[str, npt.NDArray[Any]]
    """The network's, as a training that ended here would return it."""
    history: tuple[Epoch, ...]
    moments: Mapping[str, npt.NDArray[Any]]
    """The optimiser's, ``{parameter}/{name}``."""
    numpy_random: Mapping[str, Any]
    torch_random: npt.NDArray[np.uint8]

    @classmethod
    def of(
        cls, state: Mapping[str, npt.NDArray[Any]], history: list[Epoch], network: nn.Module,
        optimiser: torch.optim.Optimizer, rng: np.random.Generator,
    ) -> TrainingProgress:  # fmt: skip
        """A copy of the present state; ``optimiser`` has the parameters of ``network`` in their order."""
        moments = {
            f"{name}/{key}": whole(value.detach()).cpu().numpy().copy()
            for name, parameter in network.named_parameters()
            for key, value in optimiser.state[parameter].items()
        }
        return cls(state, tuple(history), moments, rng.bit_generator.state, torch.get_rng_state().numpy().copy())

    def restore(self, network: nn.Module, optimiser: torch.optim.Optimizer, rng: np.random.Generator) -> None:
        """Put the optimiser, ``rng`` and torch's generator back; the network loads :attr:`state` itself."""
        given: dict[int, dict[str, torch.Tensor]] = {}
        for index, (name, parameter) in enumerate(network.named_parameters()):
            mine = {key: value for key, value in self.moments.items() if key.rpartition("/")[0] == name}
            given[index] = {
                key.rpartition("/")[2]: like(torch.from_numpy(value.copy()), parameter) for key, value in mine.items()
            }
        optimiser.load_state_dict({"state": given, "param_groups": optimiser.state_dict()["param_groups"]})
        rng.bit_generator.state = dict(self.numpy_random)
        torch.set_rng_state(torch.from_numpy(self.torch_random.copy()))

    def save(self, folder: Path) -> None:
        """Write it to ``folder``, whole or not at all: after a crash the file is the previous one, or this one. Raises
        ``OSError``, as where the disk is full.
        """
        arrays = {_STATE + name: array for name, array in self.state.items()}
        arrays |= {_MOMENTS + name: array for name, array in self.moments.items()}
        told = {"history": [asdict(epoch) for epoch in self.history], "numpy_random": dict(self.numpy_random)}
        beside = folder / f".{PROGRESS_FILE}.tmp"
        contents = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        try:
            save_file(contents | {_RANDOM: self.torch_random}, beside, {"progress": json.dumps(told)})
        except SafetensorError as error:
            raise OSError(str(error)) from error
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(folder / PROGRESS_FILE)

    @classmethod
    def load(cls, folder: Path) -> TrainingProgress:
        """Read what :meth:`save` wrote. Raises :class:`ProgressError` for a file that is damaged or not there."""
        try:
            with safe_open(folder / PROGRESS_FILE, "np") as file:
                told = json.loads(file.metadata()["progress"])
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            return cls(
                {name.removeprefix(_STATE): array for name, array in arrays.items() if name.startswith(_STATE)},
                tuple(Epoch(**epoch) for epoch in told["history"]),
                {name.removeprefix(_MOMENTS): array for name, array in arrays.items() if name.startswith(_MOMENTS)},
                told["numpy_random"],
                arrays[_RANDOM],
            )
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise ProgressError(f"{folder / PROGRESS_FILE} cannot be read: {error}") from error
