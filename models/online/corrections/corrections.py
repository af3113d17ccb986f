"""Steps 7 and 8 of the way of a reading: all that moves a forecast after its experts were mixed.

:class:`Corrections` composes what plans say, what a pre-trained network adds in a zone's first days, and what one that
is fine-tuned to the zones adds later. None of the learners learns anything of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.online.basis import PLANS, PRETRAINED, TUNED, StepRows, beside
from models.online.corrections.known_ahead import KnownAhead
from models.online.corrections.pretrained_correction import Pretrained, PretrainedCorrection
from models.online.corrections.tuned_correction import TunedCorrection
from models.online.intervals import Intervals
from models.online.medians import Medians
from models.online.waiting_examples import Matured, WaitingExamples
from models.online.widths import Widths
from models.spec import ForecastSpec

__all__ = ["Corrections"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
_Bool = npt.NDArray[np.bool_]


class Corrections:
    """What moves the forecasts of many zones, vectorised over them.

    Each step, in this order: :meth:`learn` where forecasts have matured, then :meth:`move` with the new rows.
    """

    def __init__(
        self, spec: ForecastSpec, waiting: WaitingExamples, medians: Medians, widths: Widths, capacity: int,
        package: Pretrained | None, *, fine_tunes: bool,
    ) -> None:  # fmt: skip
        """Forecasts have ``medians`` and ``widths``, and lie with ``waiting`` until their truth comes. ``package`` is
        the pre-trained network; with ``fine_tunes`` one that goes on from it is followed, too.
        """
        self._spec, self._waiting, self._medians, self._widths = spec, waiting, medians, widths
        self._usual, self._first = medians.usual, medians.first
        self._package, self._fine_tunes = package, fine_tunes
        self.known: KnownAhead | None = None  # from the first plan on
        self.pretrained: PretrainedCorrection | None = None
        self.tuned: TunedCorrection | None = None
        self._begin_networks(capacity)

    def add_zones(self, count: int = 1) -> None:
        """Make room for more zones."""
        for part in self._parts:
            part.add_zones(count)

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all. Call it often; see ``ZoneArrays.prepare``."""
        for part in self._parts:
            part.prepare(zones)

    @property
    def networks(self) -> list[PretrainedCorrection | TunedCorrection]:
        """Those that add to a forecast, in the order in which they do."""
        return [network for network in (self.pretrained, self.tuned) if network is not None]

    @property
    def planned(self) -> Intervals | None:
        """The intervals around medians that plans have moved."""
        return None if self.known is None else self.known.intervals

    def learn(self, rows: StepRows, y: F32, matured: Matured, missed: F32, taking_part: _Bool) -> None:
        """Take the truths ``y [Z, M]`` of the forecasts that have ``matured`` in ``rows``; ``missed [Z, P, M]`` is by
        what the mixture missed them, ``taking_part`` which of all zones had rows of late.
        """
        h, at, due, zones = matured.h, matured.at, matured.due, rows.zones
        if self.known is not None:
            self.known.mature(rows, h, at, missed, self._usual.unit, taking_part)
        young = self._young(zones)
        if self.pretrained is not None and len(young):
            base = self._issued_without_networks(zones[young], rows.step, h, at)
            self.pretrained.learn(zones[young], h, at, due[young], y[young], base)
        if self.tuned is not None:
            self.tuned.learn(zones, h, at, due, y, self._issued_without_networks(zones, rows.step, h, at))

    def refit(self, h: int) -> None:
        """Solve what is regressed on plans at horizon ``h``."""
        if self.known is not None:
            self.known.pooled.refit(h)

    def move(self, rows: StepRows, experts: F32, mixed: F32 | None) -> F32:
        """The ``experts [Z, H, M, K]`` of ``rows``, and beside them what moves their mixture.

        Where the rows are those of an example, ``mixed [Z, H, M]`` is that mixture: networks are asked about it, and
        what moves it is remembered until its truth comes.
        """
        known = self._known_from(rows.foreseen)
        if known is not None:
            seen, said = known.see(rows)
            experts = beside(experts, PLANS, known.move(rows.zones, said, self._usual.unit))
        if self.pretrained is not None:
            experts = beside(experts, PRETRAINED, self._pretrained_adds(self.pretrained, rows, experts, mixed))
        if self.tuned is not None:
            experts = self._with_tuned(self.tuned, rows, experts, mixed)
        if mixed is not None:
            at = self._waiting.at(rows.step)
            if known is not None:
                moves = self._medians.with_plans(mixed, experts) - mixed
                known.keep(rows, at, seen, said, moves, self._widths.intervals)
            if self.pretrained is not None:
                self.pretrained.keep(rows.zones, at)
        return experts

    def moved_by_plans(self, zones: I64, step: int, at: I64) -> F32:
        """What plans moved the forecasts of ``step`` by that wait at ``at [N]`` of ``zones [N]``, ``[N, M]``."""
        if self.known is None:
            return np.zeros((len(zones), 1), np.float32)
        return self.known.moved(zones, step, at)

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """Everything that was learned, by part (see :meth:`ZoneArrays.state_dict`); those that have begun."""
        parts = {"known": self.known, "correction": self.pretrained, "tuned": self.tuned}
        return {name: part.state_dict(copy) for name, part in parts.items() if part is not None}

    def load_state_dict(self, state: Mapping[str, Any], zones: int) -> None:
        """Take over what :meth:`state_dict` gave for ``zones`` zones; a part that it lacks begins to learn. Raises
        ``ValueError`` if it does not fit.
        """
        self.known = None
        if "known" in state:
            self.known = self._new_known()
            self.known.load_state_dict(state["known"])
        self._begin_networks(max(zones, 1))
        for name, network in (("correction", self.pretrained), ("tuned", self.tuned)):
            if network is not None and name in state:
                network.load_state_dict(state[name])
            elif network is not None:
                network.add_zones(zones)

    @property
    def _parts(self) -> list[KnownAhead | PretrainedCorrection | TunedCorrection]:
        return [*([] if self.known is None else [self.known]), *self.networks]

    def _begin_networks(self, capacity: int) -> None:
        if self._package is None:
            return
        at = (self._spec, self._waiting.stride, self._waiting.places)
        self.pretrained = PretrainedCorrection(*at, self._package, capacity)
        if self._fine_tunes:  # both look at one memory of rows
            self.tuned = TunedCorrection(*at, self._package, self.pretrained.memory, capacity)

    def _new_known(self) -> KnownAhead:
        waiting = self._waiting
        return KnownAhead(self._spec, waiting.stride, waiting.places, waiting.origins, 1)

    def _known_from(self, foreseen: F32 | None) -> KnownAhead | None:
        """What learns from plans, where any were ever given; it begins with the first that says anything."""
        if foreseen is None:
            return None
        if self.known is None and np.isfinite(foreseen).any():
            zones = len(self._waiting)
            self.known = self._new_known()
            self.known.add_zones(zones)
            self.known.intervals.take(np.arange(zones), self._widths.intervals, pooled=True)
        return self.known

    def _young(self, zones: I64) -> I64:
        """Which of the zones are in their first days."""
        return np.flatnonzero(self._first.young(zones))

    def _pretrained_adds(self, network: PretrainedCorrection, rows: StepRows, experts: F32, mixed: F32 | None) -> F32:
        """What the package's network adds, ``[Z, H, M]``; only zones in their first days are shown to it."""
        young = self._young(rows.zones)
        if self.tuned is not None:
            network.see(rows)  # the other one looks at the same memory
        elif len(young):
            network.see(rows.of(young))
        if mixed is not None:
            network.end(np.delete(rows.zones, young))
            if len(young):
                asked = rows.of(young)
                base = self._without_networks(asked, experts[young], mixed[young])
                network.ask(asked, base, self._first.share(asked.zones))
        return network.added(rows.zones)

    def _with_tuned(self, network: TunedCorrection, rows: StepRows, experts: F32, mixed: F32 | None) -> F32:
        """The ``experts``, with what the network that is fine-tuned adds where one is followed."""
        network.shown = None
        at = self._waiting.at(rows.step)
        if mixed is not None:
            network.ask(rows, self._without_networks(rows, experts, mixed), at)
        added = np.zeros_like(experts[..., 0])
        if network.arrays:
            added = network.added(rows.zones, experts[..., PRETRAINED], self._first.share(rows.zones))
            experts = beside(experts, TUNED, added)
        if mixed is not None:
            network.keep(rows.zones, at, added)
        return experts

    def _without_networks(self, rows: StepRows, experts: F32, mixed: F32) -> F32:
        """The forecast from ``rows`` before a network corrects it, ``[Z, H, M, Q]``."""
        median = self._medians.uncorrected(rows.zones, mixed, experts)
        return self._widths.around(rows.zones, rows.day_bin, median, experts, self.planned)

    def _issued_without_networks(self, zones: I64, step: int, h: I64, at: I64) -> F32:
        """The forecasts that wait at ``at [P]``, of horizons ``h [P]``, without what networks added, ``[Z, P, M]``."""
        base = self._first.issued(zones, at)
        if self.known is None:
            return base
        share = self._first.share(zones)[:, None]
        return np.asarray(base + (1 - share) * self.known.moves_of_matured(zones, step, h, at), np.float32)
