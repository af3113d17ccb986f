"""Networks of the package that say what a test wants, and a forecaster with one."""

from __future__ import annotations

import numpy as np
import torch

from models.network.pretrained import PretrainedNetwork
from models.online.corrections.pretrained_correction import Pretrained
from models.online.online_forecaster import OnlineForecaster
from tests.models.online.online_worlds import SPEC

LITTLE = np.full((10, 4), 0.9)


def made(bias: float | None = None, seed: int = 0, gain: float = 0.9) -> Pretrained:
    """A network that moves every median by ``bias`` widths, or, without it, here and there; ``gain`` is promised."""
    torch.manual_seed(seed)
    network = PretrainedNetwork(SPEC)
    with torch.no_grad():
        if bias is None:
            network.head.weight.normal_(std=0.3)
        else:
            network.head.bias.fill_(bias)
    return Pretrained(network.arrays(), LITTLE * gain / 0.9, LITTLE * gain / 0.9)


def forecaster(zones: int, pretrained: Pretrained | None) -> OnlineForecaster:
    """Of new zones."""
    built = OnlineForecaster(SPEC, 1, pretrained)
    built.add_zones(zones)
    return built
