"""Step 7 of the way of a reading: the global quantile network.

One small network for all zones, of the family of TiDE (Das and others 2023) and TSMixer (Chen and others 2023): a
linear mixing of time shared by all channels, a dense encoder over channels, a dense decoder shared by all horizons. It
learns the climatology's residual: its head starts at zero, and then its forecast *is* the climatology's.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from models.features.inputs import Inputs, input_channels, window_tokens
from models.masked import masked_mean
from models.network.residual_network import ResidualNetwork, to_tensors
from models.spec import QUANTILES, ForecastSpec

__all__ = ["QuantileNetwork", "to_tensors"]

F32 = npt.NDArray[np.float32]

_CLIP = 5.0
"""Scaled inputs are cut here: a broken sensor must not carry a forecast away."""

_UNIT_SOFTPLUS = 0.5413248546129181
"""softplus of this is 1, so that a zero head leaves the baseline's widths as they are."""


class QuantileNetwork(ResidualNetwork):
    """Residual to the baseline's median and factors on its widths, per horizon and target.

    The scaling constants are buffers, so that they are stored and loaded with the weights; :meth:`set_scaling` sets
    them from training data. A channel enters as its course within the window, not as its level: levels name the zone
    and the week, and a network that knows those remembers instead of learning. ``trust`` is the share of the learned
    correction that is used.
    """

    spread: Tensor
    low: Tensor
    high: Tensor

    def __init__(
        self, spec: ForecastSpec, hidden: int = 64, mixes: int = 6, dropout: float = 0.2, silence: float = 0.3
    ) -> None:
        options = {"hidden": hidden, "mixes": mixes, "dropout": dropout, "silence": silence}
        super().__init__(spec, options)
        channels, tokens = len(input_channels(spec)), window_tokens(spec)
        horizons, targets = len(spec.horizons_min), len(spec.targets)
        self.mix = nn.Linear(tokens, mixes)
        self.encode = nn.Linear(channels * (mixes + 1) + 7 + targets, hidden)
        self.horizon = nn.Parameter(torch.zeros(horizons, hidden))
        self.decode = nn.Linear(hidden + 7 + 4 * targets, hidden)
        self.head = nn.Linear(hidden, targets * len(QUANTILES))
        self.dropout = nn.Dropout(dropout)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.register_buffer("spread", torch.ones(channels))
        self.register_buffer("residual", torch.ones(horizons, targets))
        self.register_buffer("trust", torch.ones(()))
        low, high = (torch.tensor(ends, dtype=torch.float32) for ends in zip(*spec.limits, strict=True))
        self.register_buffer("low", low[:, None], persistent=False)
        self.register_buffer("high", high[:, None], persistent=False)

    @torch.no_grad()
    def set_scaling(self, inputs: Inputs, truth: F32) -> None:
        """Take how much each channel varies, and the size of the baseline's errors, from data.

        A channel that never varies or never comes is left as it is; ``truth`` is ``[N, H, M]``.
        """
        flat = inputs.window.reshape(-1, inputs.window.shape[-1])
        for i in range(flat.shape[1]):
            seen = flat[np.isfinite(flat[:, i]), i]
            if len(seen):
                low, high = np.quantile(seen, (0.25, 0.75))
                # A screen that is open nine hours in ten has no interquartile range, but it varies.
                width = max(float(high - low), float(seen.std(dtype=np.float64)))
                self.spread[i] = width if width > 1e-6 else 1.0
        error = np.abs(truth - inputs.baseline[..., 1])
        mean = masked_mean(error, axis=0)
        self.residual.copy_(torch.from_numpy(np.where(mean > 1e-6, mean, 1.0).astype(np.float32)))

    def forward(
        self, window: Tensor, now: Tensor, calendar: Tensor, sun: Tensor, yesterday: Tensor, future: Tensor,
        baseline: Tensor,
    ) -> Tensor:  # fmt: skip
        """The arrays of :class:`Inputs` as tensors ``-> [N, H, M, Q]``, p10 <= p50 <= p90.

        NaN where the baseline is.
        """
        known = torch.isfinite(baseline)
        base = torch.where(known, baseline, 0)
        below, median, above = base.unbind(-1)
        window = self._silence(window)
        present = torch.isfinite(window)
        course = (window - torch.nanmean(window, dim=1, keepdim=True)) / self.spread
        mixed = self.mix(torch.where(present, course.clamp(-_CLIP, _CLIP), 0).transpose(1, 2)).flatten(1)
        sky = torch.cat([calendar, torch.nan_to_num(sun), torch.isfinite(sun[..., :1]).to(sun.dtype)], dim=-1)
        off = self._off(now[:, None], median)
        encoded = torch.cat([mixed, present.to(window.dtype).mean(1), sky[:, 0], off[:, 0]], dim=-1)
        encoded = self.dropout(functional.gelu(self.encode(encoded)))
        widths = torch.log1p(torch.cat([(median - below) / self.residual, (above - median) / self.residual], dim=-1))
        about = torch.cat([sky[:, 1:], off, self._off(yesterday, median), widths], dim=-1)
        decoded = torch.cat([encoded[:, None] + self.horizon, about], dim=-1)
        out = self.head(self.dropout(functional.gelu(self.decode(decoded))))
        shift, lower, upper = out.unflatten(-1, (len(QUANTILES), -1)).unbind(-2)
        middle = median + self.trust * self.residual * shift
        factors = functional.softplus(torch.stack([lower, upper]) + _UNIT_SOFTPLUS)
        down, up = (1 + self.trust * (factors - 1)).unbind(0)
        low, high = middle - (median - below) * down, middle + (above - median) * up
        quantiles = torch.stack([low, middle, high], dim=-1)
        quantiles = torch.minimum(torch.maximum(quantiles, self.low), self.high)
        return torch.where(known, quantiles, torch.nan)

    def _silence(self, window: Tensor) -> Tensor:
        """In training, take whole channels away at random, as a failed sensor does."""
        if not self.training or not self.options["silence"]:
            return window
        lost = torch.rand(len(window), 1, window.shape[2], device=window.device) < self.options["silence"]
        return window.masked_fill(lost, torch.nan)

    def _off(self, values: Tensor, median: Tensor) -> Tensor:
        """How far ``values`` are from the baseline's median, in units of its usual error; 0 where missing."""
        off = ((values - median) / self.residual).clamp(-_CLIP, _CLIP)
        return torch.where(torch.isfinite(off), off, 0)
