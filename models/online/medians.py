"""Step 7 of the way of a reading: the median of a forecast, from what experts say to what is issued.

:class:`Medians` composes what was learned elsewhere, in the order in which it counts: experts are mixed; plans move the
mixture; in a zone's first days another forecast takes its place; a pre-trained network corrects that. It learns nothing
itself, and every median is within what is possible.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models.online.basis import FIRST, PLANS, PRETRAINED, moves_of
from models.online.bounds import Bounds
from models.online.climatology.usual_errors import UsualErrors
from models.online.expert_mix import ExpertMix
from models.online.first_days.first_days import FirstDays

__all__ = ["Medians"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]


class Medians:
    """Medians of zones from their experts; see :mod:`models.online.basis`.

    In all methods ``zones`` are ``[Z]``, ``experts [Z, H, M, K]`` and medians ``[Z, H, M]``, in the targets' units.
    """

    def __init__(self, mix: ExpertMix, usual: UsualErrors, first: FirstDays, bounds: Bounds) -> None:
        self._mix, self.usual, self.first, self._bounds = mix, usual, first, bounds

    def mixed(self, zones: I64, experts: F32) -> F32:
        """The mixture of all experts."""
        return self._bounds.within(self._mix.median(zones, experts, self.usual.unit))

    def with_plans(self, mixed: F32, experts: F32) -> F32:
        """The mixture, moved by what plans say where there are any."""
        return self._moved(mixed, experts, PLANS)

    def with_first_days(self, zones: I64, median: F32, experts: F32) -> F32:
        """The learners' ``median``, or in a zone's first days what is forecast there."""
        share = self.first.share(zones)[:, None]
        if not share.any():
            return median
        first = experts[..., FIRST]
        blended = median + share * np.where(np.isnan(first), np.float32(0), first - median)
        return self._bounds.within(blended)

    def uncorrected(self, zones: I64, mixed: F32, experts: F32) -> F32:
        """What is issued where no pre-trained network adds to it."""
        return self.with_first_days(zones, self.with_plans(mixed, experts), experts)

    def issued(self, zones: I64, experts: F32) -> F32:
        """What is issued, but for what a network that is fine-tuned adds to every quantile."""
        return self._moved(self.uncorrected(zones, self.mixed(zones, experts), experts), experts, PRETRAINED)

    def _moved(self, median: F32, experts: F32, place: int) -> F32:
        moves = moves_of(experts, place)
        return median if moves is None else self._bounds.within(median + moves)
