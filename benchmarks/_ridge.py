"""A ridge beside the networks: least squares of the baseline's errors, in the form of a candidate network."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks._families import Candidate
from benchmarks._network_cores import Sizes
from models.features.inputs import Inputs
from models.network.quantile import _CLIP, to_tensors
from models.network.training import TrainingConfig
from models.spec import ForecastSpec

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

STRENGTHS = (100.0, 300.0, 1_000.0, 3_000.0, 10_000.0, 30_000.0)
"""The ridge's prior may weigh as much as so many examples of a regressor of size one."""


class Flat(nn.Module):
    """Linear in all that is known of an example and in what is known of the horizon, for medians only: the ridge's."""

    weight: Tensor

    def __init__(self, sizes: Sizes, config: TrainingConfig) -> None:
        super().__init__()
        self.medians, self.widths = len(sizes.targets), sizes.out - len(sizes.targets)
        width = sizes.tokens * sizes.channels + sizes.still + sizes.ahead + 1
        self.register_buffer("weight", torch.zeros(sizes.horizons, width, self.medians))

    def regressors(self, course: Tensor, still: Tensor, ahead: Tensor, horizon: int) -> Tensor:
        """``[N, D]``, the last of them 1."""
        one = ahead.new_ones(len(ahead), 1)
        return torch.cat([course.flatten(1), still, ahead[:, horizon], one], dim=-1)

    def forward(self, course: Tensor, still: Tensor, ahead: Tensor) -> Tensor:
        each = [self.regressors(course, still, ahead, h) @ self.weight[h] for h in range(len(self.weight))]
        return functional.pad(torch.stack(each, dim=1), (0, self.widths))


@torch.no_grad()
def ridge(
    spec: ForecastSpec, config: TrainingConfig, inputs: Inputs, truth: F32, older: npt.NDArray[np.bool_], days: int
) -> Candidate:
    """Least squares of the baseline's errors, in units of their usual size, ``truth [N, H, M]``.

    The prior's strength is that which does best on the examples that are not ``older``, fitted on those that are: one
    for all cells. The constant has no prior. The learned correction is shrunken by ``days``, as a network's.
    """
    made = Candidate(spec, config, Flat).eval()
    made.set_scaling(inputs, truth)
    core = cast(Flat, made.core)
    prepared = made.prepared(*to_tensors(inputs))
    wanted = (truth - inputs.baseline[..., 1]) / made.residual.numpy()
    known = np.isfinite(wanted).all(axis=-1)
    wanted = np.clip(np.where(known[..., None], wanted, 0), -_CLIP, _CLIP)
    found = np.zeros((len(STRENGTHS), *core.weight.shape), dtype=np.float32)
    lost = np.zeros(len(STRENGTHS))
    for h in range(len(core.weight)):
        x = core.regressors(*prepared, h).numpy()
        live = np.append(x[:, :-1].std(axis=0) > 1e-6, True)  # a channel that never comes needs no weight
        x, y = x[:, live], wanted[:, h]
        parts = [known[:, h] & older, known[:, h] & ~older]
        (gram, moment), (newer_gram, newer_moment) = (_moments(x[part], y[part]) for part in parts)
        for s, strength in enumerate(STRENGTHS):
            error = y[parts[1]] - x[parts[1]] @ _solved(gram, moment, strength)
            lost[s] += np.abs(error).sum()
            found[s, h, live] = _solved(gram + newer_gram, moment + newer_moment, strength)
    core.weight.copy_(torch.from_numpy(found[int(np.argmin(lost))]))
    made.trust.fill_(days / (days + config.trust_days))
    return made


def _moments(x: F32, y: F32) -> tuple[F64, F64]:
    return (x.T @ x).astype(np.float64), (x.T @ y).astype(np.float64)


def _solved(gram: F64, moment: F64, strength: float) -> F32:
    prior = np.full(len(gram), strength)
    prior[-1] = 1e-6
    return np.linalg.solve(gram + np.diag(prior), moment).astype(np.float32)
