"""Step 7 of the way of a reading: the network that is pre-trained on a fleet of simulated houses.

It corrects the forecast that the online layer issues by itself. A common part looks at the origin, a part that all
horizons share at what is known of each; both look at :class:`~models.network.house_features.HouseFeatures`, in which
every house is alike. So it answers for any schema and from a zone's first hour. Its head starts at zero: then its
forecast *is* the baseline.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from models.network.house_features import HORIZONS_MIN, TARGETS, HouseFeatures
from models.network.plain_network import FARTHEST
from models.network.residual_network import ResidualNetwork
from models.spec import QUANTILES, ForecastSpec

__all__ = ["PretrainedNetwork"]

WIDEST = 2.0
"""The logarithm of a width changes by no more than this."""

RARER = {"plans": 0.15, "sun": 0.2, "co2_ppm": 0.15, "vpd forecast": 0.3}
"""How often, in training, these are silent; every other channel is as often as ``silence`` says."""


class PretrainedNetwork(ResidualNetwork):
    """See the module. ``silence``: the share of channels that are taken away in training, as no two houses have the
    same sensors; ``noise``: what is added to every number then. Its arrays do not depend on the schema.
    """

    def __init__(
        self, spec: ForecastSpec, hidden: int = 96, shared: int = 64, dropout: float = 0.1, silence: float = 0.5,
        noise: float = 0.2,
    ) -> None:  # fmt: skip
        options = {"hidden": hidden, "shared": shared, "dropout": dropout, "silence": silence, "noise": noise}
        super().__init__(spec, options)
        self.features = HouseFeatures(spec)
        self.encode = nn.Linear(2 * self.features.width, hidden)
        self.narrow = nn.Linear(hidden, shared)
        self.look = nn.Linear(2 * self.features.ahead_width, shared)
        self.horizon = nn.Parameter(torch.zeros(len(HORIZONS_MIN), shared))
        self.decode = nn.Linear(shared, shared)
        self.head = nn.Linear(shared, len(TARGETS) * len(QUANTILES))
        self.drop = nn.Dropout(dropout)
        nn.init.normal_(self.horizon, std=0.1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.register_buffer("trust", torch.ones(()))
        self.register_buffer("position", torch.from_numpy(self.features.position), persistent=False)
        groups = (self.features.groups, self.features.ahead_groups)
        self._groups, self._ahead_groups = (torch.from_numpy(numbers) for numbers in groups)
        residual = torch.ones(len(spec.horizons_min), len(spec.targets))
        for place, known in self.features.targets_known():
            residual[:, place] = torch.from_numpy(self.features.error[:, known])
        self.register_buffer("residual", residual, persistent=False)
        low, high = (torch.tensor(ends, dtype=torch.float32) for ends in zip(*spec.limits, strict=True))
        self.register_buffer("low", low[:, None], persistent=False)
        self.register_buffer("high", high[:, None], persistent=False)
        often = torch.tensor([0.0 if s == "always" else RARER.get(s, silence) for s in self.features.sources])
        self.register_buffer("_silent", often if silence else often * 0, persistent=False)

    position: Tensor
    low: Tensor
    high: Tensor
    _silent: Tensor

    def forward(
        self, window: Tensor, now: Tensor, calendar: Tensor, sun: Tensor, yesterday: Tensor, future: Tensor,
        baseline: Tensor,
    ) -> Tensor:  # fmt: skip
        """The arrays of :class:`~models.features.inputs.Inputs` as tensors ``-> [N, H, M, Q]``, p10 <= p50 <= p90.

        NaN where the baseline is; the baseline itself for targets that no house of the fleet has.
        """
        arrays = (window, now, calendar, sun, yesterday, future, baseline)
        # Nothing is learned of the features: they need no gradients.
        features = self.features(*(np.asarray(array.detach().cpu(), np.float32) for array in arrays))
        origin, ahead = (torch.from_numpy(array).to(baseline) for array in features)
        return self.corrected(origin, ahead, baseline)

    def corrected(self, origin: Tensor, ahead: Tensor, baseline: Tensor) -> Tensor:
        """The same from features that were made before; missing ones are NaN."""
        known = torch.isfinite(baseline).all(-1, keepdim=True)
        below, median, above = torch.where(known, baseline, 0).unbind(-1)
        if self.training:
            origin, ahead = self.spoilt(origin, ahead)
        seen, look = (torch.cat([torch.nan_to_num(x), 1 - torch.isfinite(x).to(x.dtype)], -1) for x in (origin, ahead))
        common = self.narrow(torch.relu(self.encode(seen)))
        shown = torch.relu(common[:, None] + self.look(look) + self.position @ self.horizon)
        shown = shown + torch.relu(self.decode(self.drop(shown)))
        out = self.head(shown).unflatten(-1, (len(TARGETS), len(QUANTILES)))
        mine = out.new_zeros(*out.shape[:2], len(self.spec.targets), len(QUANTILES))
        for place, target in self.features.targets_known():
            mine[:, :, place] = out[:, :, target]
        shift, *factors = mine.unbind(-1)
        lower, upper = (torch.exp(self.trust * factor.clamp(-WIDEST, WIDEST)) for factor in factors)
        middle = median + self.trust * shift.clamp(-FARTHEST, FARTHEST) * (above - below)
        quantiles = torch.stack([middle - (median - below) * lower, middle, middle + (above - median) * upper], dim=-1)
        quantiles = torch.minimum(torch.maximum(quantiles, self.low), self.high)
        return torch.where(known, quantiles, torch.nan)

    def spoilt(self, origin: Tensor, ahead: Tensor) -> tuple[Tensor, Tensor]:
        """Features as they are in training: noise on all, and whole sources away."""
        noise = self.options["noise"]
        origin, ahead = origin + noise * torch.randn_like(origin), ahead + noise * torch.randn_like(ahead)
        lost = torch.rand(len(origin), len(self._silent), device=origin.device) < self._silent
        origin = origin.masked_fill(lost[:, self._groups], torch.nan)
        return origin, ahead.masked_fill(lost[:, None, self._ahead_groups], torch.nan)
