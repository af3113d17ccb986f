"""Step 7 of the way of a reading: what every network on windows has in common, whatever lies inside of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from models.features.inputs import Inputs
from models.network.sharding import whole
from models.spec import ForecastSpec

__all__ = ["ResidualNetwork", "check_finite", "to_tensors"]

F32 = npt.NDArray[np.float32]


def to_tensors(inputs: Inputs, device: torch.device | str = "cpu") -> tuple[Tensor, ...]:
    """The arguments of a network's ``forward``, without a copy on the CPU."""
    arrays = (inputs.window, inputs.now, inputs.calendar, inputs.sun, inputs.yesterday, inputs.future, inputs.baseline)
    return tuple(torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays)


def check_finite(arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raise ``ValueError``, which names the arrays, where weights are NaN or infinite."""
    wrong = sorted(name for name, array in arrays.items() if not np.isfinite(array).all())
    if wrong:
        raise ValueError(f"weights are not finite ({', '.join(wrong[:3])})")


class ResidualNetwork(nn.Module):
    """A network that corrects a baseline: ``forward(*to_tensors(inputs)) -> [N, H, M, Q]``, p10 <= p50 <= p90.

    ``residual [H, M]`` is the usual size of the baseline's errors, in which training counts; ``trust`` the share of the
    learned correction that is used. Both are buffers of each form.
    """

    residual: Tensor
    trust: Tensor

    def __init__(self, spec: ForecastSpec, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.spec, self.options = spec, dict(options)

    def set_scaling(self, inputs: Inputs, truth: F32) -> None:
        """Take the scales of inputs and errors from data, ``truth [N, H, M]``; a form with fixed ones has none."""

    @torch.inference_mode()
    def predict(self, inputs: Inputs, batch_size: int = 4096) -> F32:
        """Forecast ``[N, H, M, Q]``. Safe from several threads at once while nobody trains; call ``eval()`` before."""
        device = self.residual.device
        parts = [
            self(*to_tensors(inputs.take(slice(at, at + batch_size)), device)).float().cpu().numpy()
            for at in range(0, len(inputs), batch_size)
        ]
        return cast(F32, np.concatenate(parts)) if parts else np.empty_like(inputs.baseline)

    def answer(self, inputs: Inputs) -> F32:
        """:meth:`predict`, as any kind of model is asked; never as in training."""
        if self.training:
            self.eval()
        return self.predict(inputs)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The state as NumPy arrays on the CPU; copies."""
        return {name: whole(tensor.detach()).cpu().numpy().copy() for name, tensor in self.state_dict().items()}

    def load_arrays(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Inverse of :meth:`arrays`; raises ``RuntimeError`` if names or shapes do not fit."""
        self.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in state.items()})
