"""Other forms of the global network, on the kept network's inputs, for ``benchmarks.families``.

A :class:`Candidate` scales its inputs and makes its quantiles as the kept network does; what lies between is its core
(:mod:`benchmarks._network_cores`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks._network_cores import Sizes
from edge.wire.vocabulary import VOCABULARY
from models.features.inputs import Inputs, input_channels, window_tokens
from models.network.quantile import _CLIP, _UNIT_SOFTPLUS, QuantileNetwork
from models.network.training import TrainingConfig
from models.spec import QUANTILES, ForecastSpec

F32 = npt.NDArray[np.float32]


def planned_channels(spec: ForecastSpec) -> tuple[int, ...]:
    """The columns of a row that a climate computer sets: actuators and setpoints, which keep their value until told."""
    return tuple(i for i, name in enumerate(spec.channels) if name in VOCABULARY and _is_set(name))


def _is_set(name: str) -> bool:
    return VOCABULARY[name].hold_s is not None and VOCABULARY[name].kind == "gauge"


class Candidate(QuantileNetwork):
    """The kept network with another core; ``plans``: as known ahead too, how far what is set will be from now."""

    def __init__(
        self, spec: ForecastSpec, config: TrainingConfig, core: Callable[[Sizes, TrainingConfig], nn.Module],
        plans: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(spec, config.hidden, config.mixes, config.dropout, config.silence)
        del self.mix, self.encode, self.horizon, self.decode, self.head
        names, targets = input_channels(spec), len(spec.targets)
        self._plans = [names.index(spec.channels[i]) for i in planned_channels(spec)] if plans else []
        self.core = core(Sizes(
            tokens=window_tokens(spec), channels=len(names), still=len(names) + 7 + targets,
            horizons=len(spec.horizons_min), ahead=7 + 4 * targets + len(self._plans), out=targets * len(QUANTILES),
            targets=tuple(names.index(name) for name in spec.targets),
        ), config)  # fmt: skip

    def forward(
        self, window: Tensor, now: Tensor, calendar: Tensor, sun: Tensor, yesterday: Tensor, future: Tensor,
        baseline: Tensor,
    ) -> Tensor:  # fmt: skip
        """As :meth:`QuantileNetwork.forward`."""
        known = torch.isfinite(baseline)
        below, median, above = torch.where(known, baseline, 0).unbind(-1)
        out = self.core(*self.prepared(window, now, calendar, sun, yesterday, future, baseline))
        shift, lower, upper = out.unflatten(-1, (len(QUANTILES), -1)).unbind(-2)
        middle = median + self.trust * self.residual * shift
        factors = functional.softplus(torch.stack([lower, upper]) + _UNIT_SOFTPLUS)
        down, up = (1 + self.trust * (factors - 1)).unbind(0)
        quantiles = torch.stack([middle - (median - below) * down, middle, middle + (above - median) * up], dim=-1)
        return torch.where(known, torch.minimum(torch.maximum(quantiles, self.low), self.high), torch.nan)

    def prepared(
        self, window: Tensor, now: Tensor, calendar: Tensor, sun: Tensor, yesterday: Tensor, future: Tensor,
        baseline: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """What the core is given, all of it finite."""
        below, median, above = torch.where(torch.isfinite(baseline), baseline, 0).unbind(-1)
        window = self._silence(window)
        present = torch.isfinite(window)
        course = (window - torch.nanmean(window, dim=1, keepdim=True)) / self.spread
        course = torch.where(present, course.clamp(-_CLIP, _CLIP), 0)
        sky = torch.cat([calendar, torch.nan_to_num(sun), torch.isfinite(sun[..., :1]).to(sun.dtype)], dim=-1)
        off = self._off(now[:, None], median)
        widths = torch.log1p(torch.cat([(median - below) / self.residual, (above - median) / self.residual], dim=-1))
        still = torch.cat([present.to(window.dtype).mean(1), sky[:, 0], off[:, 0]], dim=-1)
        ahead = [sky[:, 1:], off, self._off(yesterday, median), widths]
        if self._plans:
            moved = (future - window[:, -1:, self._plans]) / self.spread[self._plans]
            ahead.append(torch.where(torch.isfinite(moved), moved.clamp(-_CLIP, _CLIP), 0))
        return course, still, torch.cat(ahead, dim=-1)


def average(forecasters: Sequence[Callable[[Inputs], F32]]) -> Callable[[Inputs], F32]:
    """The mean of their quantiles."""

    def predict(inputs: Inputs) -> F32:
        return np.asarray(np.mean([forecast(inputs) for forecast in forecasters], axis=0, dtype=np.float32))

    return predict
