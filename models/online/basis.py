"""Step 7 of the way of a reading: what a forecast is mixed from, and in which order it lies in an array.

An array of experts is ``[Z, H, M, K]``: an answer of each of :data:`EXPERTS`, NaN where it has none. Behind them lies
what moves a forecast that was mixed: plans (:data:`PLANS`) and a pre-trained network (:data:`PRETRAINED`) its median,
a network that was fine-tuned to the site (:data:`TUNED`) every quantile. A place exists only where it or a later one is
used; one that is not used is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = [
    "EXPERTS",
    "FIRST",
    "NETWORK",
    "PLANS",
    "POOLED_DAYS",
    "PRETRAINED",
    "TUNED",
    "WEIGHED",
    "Basis",
    "Example",
    "Learned",
    "StepRows",
    "beside",
    "moves_of",
]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

POOLED_DAYS = (2.5, 6.0, 15.0)
"""How long each pooled ridge remembers."""

EXPERTS = (
    "climatology", "shifted", "first days", "climatology 1 d", "profile 1 d", "yesterday",
    *(f"pooled ridge {days:g} d" for days in POOLED_DAYS), "trees", "network",
)  # fmt: skip
"""The first is what the others correct, and answers where they do not. The second is followed after a change only: it
says little that the others do not say when nothing has changed, and one more weight costs more than that is worth. The
third is followed in a zone's first days, and NaN later (:class:`~models.online.first_days.first_days.FirstDays`)."""

FIRST, NETWORK = EXPERTS.index("first days"), EXPERTS.index("network")

WEIGHED = 3
"""Experts from this index on have learned weights."""

PLANS, PRETRAINED, TUNED = range(len(EXPERTS), len(EXPERTS) + 3)
"""The places of what moves a forecast."""


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows of one step, as :meth:`~models.online.online_forecaster.OnlineForecaster.learn` is given them."""

    step: int
    zones: I64  # [Z]
    values: F32  # [Z, C]
    day_bin: I64  # [Z], the steps of the day
    sun: F32  # [Z, 1 + H], sines of the sun's elevation now and at each horizon
    foreseen: F32 | None = None  # as Plans.ahead gives it; None where nothing ever was

    def of(self, places: I64) -> StepRows:
        """Those of the zones at ``places``."""
        foreseen = None if self.foreseen is None else self.foreseen[places]
        return StepRows(
            self.step, self.zones[places], self.values[places], self.day_bin[places], self.sun[places], foreseen
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Example:
    """What was known of zones at one step, and their targets then, which are an earlier example's truth."""

    step: int
    zones: I64  # [Z]
    common: F32  # [Z, D']
    ahead: F32  # [Z, H, E']
    base: F32  # [Z, H, M], the climatology's forecast
    y: F32  # [Z, M]


@dataclass(frozen=True, slots=True)
class Basis:
    """What a forecast from one step's rows is mixed from: ``experts [Z, H, M, K]``, of which the network's place is NaN
    until it has answered (:meth:`~models.online.online_forecaster.OnlineForecaster.predict`).
    """

    step: int
    zones: I64  # [Z]
    day_bin: I64  # [Z]
    experts: F32

    @property
    def baseline(self) -> F32:
        """The climatology's median, ``[Z, H, M]``."""
        return self.experts[..., 0]


@dataclass(frozen=True, slots=True)
class Learned(Basis):
    """A basis with its example, as :meth:`~models.online.online_forecaster.OnlineForecaster.learn` returns it, and the
    errors of earlier forecasts.
    """

    example: Example
    # [Z, M], size of the errors that matured in these rows, in usual errors; NaN where none did. Of what was forecast
    # before plans moved it.
    errors: F32
    targets: F32  # [Z, M], of the rows themselves; the example's are those of its quarter of an hour
    missed: I64  # [Z], how many steps before this one the zone had no row for


def moves_of(experts: F32, place: int) -> F32 | None:
    """What lies at ``place`` (:data:`PLANS` and those after it), ``[Z, H, M]``; None where there is no such thing."""
    return experts[..., place] if experts.shape[-1] > place else None


def beside(experts: F32, place: int, moves: F32) -> F32:
    """The experts with ``moves [Z, H, M]`` appended at ``place``; places between that are not there become 0.

    >>> beside(np.ones((1, 1, 1, len(EXPERTS)), np.float32), PRETRAINED, np.full((1, 1, 1), 5.0))[0, 0, 0, -3:].tolist()
    [1.0, 0.0, 5.0]
    """
    absent = place - experts.shape[-1]
    assert absent >= 0, "it is there already"
    between = np.zeros((*experts.shape[:-1], absent), experts.dtype)
    return np.concatenate([experts, between, moves[..., None]], axis=-1, dtype=np.float32)
