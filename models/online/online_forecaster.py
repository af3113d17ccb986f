"""Step 7 of the way of a reading: the whole forecast of a zone, learned online.

:class:`OnlineForecaster` composes the three-rate climatology, ridges and trees on its residual, the network's answer
where there is one, the mixture that weighs them, what a pre-trained network adds to that, the intervals around it, and
what a network that is fine-tuned to the site adds to all.
It has no clock, no I/O and no torch, so that whoever has rows can run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.features.inputs import targets_of
from models.features.regressors import Features
from models.masked import masked_mean
from models.online.basis import (
    EXPERTS,
    FIRST,
    NETWORK,
    PLANS,
    POOLED_DAYS,
    PRETRAINED,
    TUNED,
    WEIGHED,
    Basis,
    Example,
    Learned,
    beside,
    moves_of,
)
from models.online.change_points import ChangePoints
from models.online.climatology.climatology import Climatology, Members
from models.online.corrections.known_ahead import KnownAhead
from models.online.corrections.pretrained_correction import Pretrained, PretrainedCorrection
from models.online.corrections.tuned_correction import TunedCorrection
from models.online.earlier_state import state_of_now
from models.online.expert_mix import LIMIT, ExpertMix
from models.online.first_days import FirstDays
from models.online.intervals import Intervals
from models.online.mixture import Mixture
from models.online.ridge import PooledRidge, prior_strength
from models.online.waiting_examples import WaitingExamples
from models.online.widths import Widths
from models.paths.steps import Knots, between
from models.spec import QUANTILES, ForecastSpec
from models.trees.forest import Forest
from models.zone_arrays import part_of

__all__ = ["OnlineForecaster"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

REFITS_A_DAY = 4
UNIT_DAYS = 14.0
_HOURS = 24


class OnlineForecaster:
    """Forecasts of many zones, vectorised over them, with bounded state.

    Each step, for the zones whose rows closed: :meth:`learn`, then :meth:`predict`, now or some steps later, when the
    network's answer is there. The newest forecast of an origin is remembered, so that intervals and mixture learn how
    good it was; a forecast that no caller asks for is remembered without the network. ``step`` numbers steps of
    ``spec.step_ms`` on one time line and never goes back; a zone without a row takes part with NaN, or is left out for
    a while.
    """

    def __init__(
        self, spec: ForecastSpec, capacity: int = 16, pretrained: Pretrained | None = None, *, fine_tunes: bool = False
    ) -> None:
        """``pretrained`` corrects every forecast, as far as it turns out to be right; with ``fine_tunes`` also one that
        goes on from it, once :meth:`tune` gives it.
        """
        self._spec = spec
        steps = self._steps = np.array(spec.horizon_steps, dtype=np.int64)
        horizons, targets, day = len(steps), len(spec.targets), spec.steps_per_day
        self.climatology = Climatology(spec, capacity)
        self.features = Features(spec, capacity)
        d, e = self.features.width
        waiting = self.waiting = WaitingExamples(spec, (d, e), len(EXPERTS[WEIGHED:]), capacity)
        examples_a_day = day // waiting.stride
        self._refit_every = max(examples_a_day // REFITS_A_DAY, 1)
        prior = prior_strength(spec)
        self.pooled = PooledRidge(prior, targets, d + e, POOLED_DAYS, day, waiting.stride)
        self.mixture = Mixture(horizons, targets, 1 + len(EXPERTS[WEIGHED:]), day)
        self.intervals = Intervals(horizons, targets, max(examples_a_day // _HOURS, 1), capacity)
        # Horizons that are no multiple of the stride mature at steps of their own.
        self.change = ChangePoints(targets, examples_a_day * len(set((steps % waiting.stride).tolist())), capacity)
        self.mix = ExpertMix(spec, self.mixture, self.change)
        self.first = FirstDays(spec, waiting.stride, waiting.places, capacity)
        self.widths = Widths(spec, self.intervals, self.first)
        self._pretrained = pretrained
        self.correction = None if pretrained is None else self._new_correction(pretrained, capacity)
        self.tuned = self._new_tuned(pretrained, self.correction, capacity) if fine_tunes else None
        self.forest = Forest(horizons, targets)
        self.known: KnownAhead | None = None  # from the first plan on
        turn = np.arange(day) * (2 * np.pi / day)
        self._clock = np.stack([np.sin(turn), np.cos(turn)], axis=-1).astype(np.float32)
        self._unit = np.full((horizons, targets), np.nan)
        self._unit_seen = np.zeros((horizons, targets))

    def __len__(self) -> int:
        return len(self.waiting)

    def add_zones(self, count: int = 1) -> int:
        """Make room for more zones and return the index of the first."""
        for part in (self.climatology, self.features, self.intervals, self.change, self.first):
            part.add_zones(count)
        for late in (self.known, self.correction, self.tuned):
            if late:
                late.add_zones(count)
        return self.waiting.add(count)

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all. Call it often; see ``ZoneArrays.prepare``."""
        for part in (self.climatology, self.features, self.intervals, self.change, self.first, self.waiting):
            part.prepare(zones)
        for late in (self.known, self.correction, self.tuned):
            if late:
                late.prepare(zones)

    def tune(self, arrays: Mapping[str, _Array]) -> None:
        """Follow this network, which was fine-tuned to these zones, from the next example on; without arrays none.

        Only where it ``fine_tunes``. Raises ``ValueError`` if they do not fit.
        """
        assert self.tuned is not None, "it was made without fine_tunes"
        self.tuned.tune(arrays)

    def learn(
        self, indices: I64, step: int, values: F32, day_bin: I64, sun: F32, foreseen: F32 | None = None
    ) -> Learned:
        """Take the rows of one step: ``values [Z, C]``, ``day_bin [Z]``, ``sun [Z, 1 + H]`` (see :class:`Features`).

        ``foreseen`` is what plans said by then (:meth:`~models.features.plans.Plans.ahead`), ``None`` for zones that
        were never given any; before the first plan of any zone nothing else is done than without.
        """
        y, missed = self._targets(values), self._catch_up(indices, step)
        errors = self._mature(indices, step, y, day_bin)
        seen, climate = self._see(indices, step, values, y, day_bin, sun)
        base, unit = seen.base, self.unit
        example = self.waiting.is_origin(step)
        if example:
            self._refit(step // self.waiting.stride)
        # As little as the climatology is trusted with few days, what corrects it is not trusted more.
        reach = (unit * (1 - climate.young))[..., None]
        d, e = self.features.width
        common, ahead = seen.common[:, :d], seen.ahead[..., :e]
        ridges = np.clip(self.pooled.predict(common, ahead), -LIMIT, LIMIT) * reach + base[..., None]
        none = np.full_like(base, np.nan)
        trees = self._trees(seen, unit)
        fast = (climate.rates[:, 0], climate.profiles[:, 0], climate.yesterday)
        answers = (base, climate.shifted, none, *fast, *ridges.transpose(3, 0, 1, 2), trees, none)  # as EXPERTS
        experts = np.stack(answers, axis=-1, dtype=np.float32)
        self.first.see(indices, step, y)
        old = self._median(indices, experts) if example else None
        hours = self.widths.hours(day_bin, self._steps)
        experts[..., FIRST] = self.first.forecast(indices, step, hours, old)
        known = self._see_ahead(foreseen)
        if known and foreseen is not None:
            foresight, said = known.see(indices, step, values, foreseen, sun, self._clock[self._bins_at(day_bin)])
            experts = beside(experts, PLANS, known.move(indices, said, self.unit))
        if self.correction:
            self._correct(indices, step, values, day_bin, sun, foreseen, old, experts)
            experts = beside(experts, PRETRAINED, self.correction.added(indices))
        if self.tuned:
            experts = self._tune(self.tuned, indices, step, values, day_bin, sun, foreseen, old, experts)
        if old is not None:
            self.waiting.keep_base(indices, step, base)
            self.waiting.keep(indices, step, (common, ahead), self.mix.deviations(experts, self.unit), old)
            at = self.waiting.at(step)
            if known and foreseen is not None:
                known.keep(indices, step, at, foresight, said, self._moved(old, experts) - old, sun, self.intervals)
            if self.correction:
                self.correction.keep(indices, at)
            self.first.issue(indices[:, None], at, self._blended(indices, old, experts))
            self.first.bind(indices, at)
        return Learned(step, seen.zones, day_bin.copy(), experts, seen, errors, missed)

    def take_trained(self, before: OnlineForecaster) -> None:
        """Go on with the trees of ``before`` and how far it follows them, and with its fine-tuned network: no history
        says what they would have said before they existed. How far that network is followed begins with what the
        package's would have been worth on this history, and is forgotten as new errors come.
        """
        self.forest = before.forest
        if before.tuned:
            self.tune(before.tuned.arrays)
        if any(before.mixture.knows(EXPERTS.index(name) - WEIGHED) for name in ("trees", "network")):
            self.mixture = before.mixture
            self.mix = ExpertMix(self._spec, self.mixture, self.change)

    def examine(self, indices: I64, step: int, values: F32, day_bin: I64, sun: F32) -> Example:
        """The example that :meth:`learn` would give, for callers that only collect examples. No correction learns, and
        nothing can be forecast; it is half the work.
        """
        y = self._targets(values)
        self._catch_up(indices, step)
        matured = self.waiting.matured(indices, step)
        if matured is not None:
            residual = self.waiting.off("base", indices, matured, y)
            self._learn_unit(matured.h, residual, part_of(len(indices), self.features.taking_part(step)))
        seen, _ = self._see(indices, step, values, y, day_bin, sun)
        if self.waiting.is_origin(step):
            self.waiting.keep_base(indices, step, seen.base)
        return seen

    def predict(self, learned: Basis, network: F32 | None = None) -> F32:
        """Forecast from the rows that were ``learned``: ``[Z, H, M, Q]``, p10 <= p50 <= p90, p10 < p90.

        ``network [Z, H, M]`` is the network's median for the same origins, NaN or ``None`` if there is none.
        """
        experts = learned.experts
        if network is not None:
            experts = experts.copy()
            experts[..., NETWORK] = network
        median = self._mixed(learned.zones, experts)
        quantiles = self._quantiles(learned.zones, learned.day_bin, median, experts)
        self.remember(learned.zones, learned.step, quantiles[..., 1], experts[..., NETWORK])
        return quantiles

    def quantiles(self, learned: Basis) -> F32:
        """What :meth:`predict` gives without a network, until the next row is learned; nothing is remembered."""
        median = self._mixed(learned.zones, learned.experts)
        return self._quantiles(learned.zones, learned.day_bin, median, learned.experts)

    def path(self, zones: I64, step: int, day_bin: I64, quantiles: F32, knots: Knots) -> F32:
        """The forecast at any times up to the longest horizon: ``quantiles [Z, H, M, Q] -> [Z, T, M, Q]``.

        ``quantiles`` are what :meth:`predict` gave of the newest rows, those of ``step``; at learned horizons the path
        is what they say. Between them see :mod:`models.paths.steps`. It changes nothing, and is p10 <= p50 <= p90.
        """
        own = np.concatenate([[0], self._steps])
        usual = self.climatology.usual(zones, day_bin, knots.steps)
        at_knots = self.climatology.usual(zones, day_bin, own)
        median = between(knots, usual, at_knots, self.climatology.last(zones), quantiles[..., 1])
        median = self._with_earlier(zones, step, day_bin, knots, usual, median)
        return self.widths.path(zones, day_bin, median, quantiles, knots, any_plans=bool(self.known))

    def _mixed(self, zones: I64, experts: F32) -> F32:
        """The median of all experts, moved by plans, blended in a zone's first days, and corrected."""
        mixed = self._moved(self._median(zones, experts), experts)
        return self._corrected(self._blended(zones, mixed, experts), experts)

    def _with_earlier(self, zones: I64, step: int, day_bin: I64, knots: Knots, usual: F32, median: F32) -> F32:
        """Let the forecasts have their say that were made for the same times when these were a horizon ahead.

        Forecasts are kept of every example's step; one that was made for a little before a time tells how far off the
        usual value that is.
        """
        h = knots.after
        late = step % self.waiting.stride
        origin = step - (self._steps[h] - knots.steps) - late
        is_origin = (origin >= 0) & (origin % self.waiting.stride == 0)
        mine = np.flatnonzero((knots.earlier > 0) & ~knots.learned & is_origin)
        if not len(mine):
            return median
        at, made = self.waiting.made_at(zones, origin[mine], h[mine])
        said = self.first.issued(zones, at)
        if self.correction:
            said = said + self.correction.moved(zones[:, None], at)
        if self.tuned:
            said = said + self.tuned.moved(zones[:, None], at)
        if late:
            said = said + usual[:, mine] - self.climatology.usual(zones, day_bin, knots.steps[mine] - late)
        there = made[..., None] & np.isfinite(said)
        moved = knots.earlier[mine][:, None] * np.where(there, said - median[:, mine], np.float32(0))
        median = median.copy()
        median[:, mine] += moved
        return median

    def weights(self, basis: Basis, network: F32 | None = None) -> F32:
        """What each expert weighs in the median that :meth:`predict` gives, ``[Z, H, M, K]`` in the order of EXPERTS;
        see :meth:`ExpertMix.weights`.

        Bounds of every forecast (limits, the size of deviations) are left out, and what plans and pre-trained networks
        move the median by.
        """
        return self.mix.weights(basis, network, self.first.share(basis.zones))

    def remember(self, zones: I64, step: int, median: F32, network: F32) -> None:
        """Keep a forecast ``[Z, H, M]`` from ``step`` until its truth comes; ``network`` as in :meth:`predict`.

        A forecast whose place a newer origin has taken is left out. A shard that reads its log again passes here what
        it had issued.
        """
        if not self.waiting.is_origin(step):
            return
        z, h, at = self.waiting.kept(zones, step)
        # What is issued of a young zone is another's forecast: the intervals learn how good the learners' own was.
        share = self.first.share(zones)[z]
        # Nor do they learn from plans, or from what pre-trained networks add: what these moved it by is taken off.
        # Without the network's answer that leaves what learn() has kept, to the last bit.
        moved = self.known.moved(zones[z], step, at) if self.known else np.zeros((len(z), 1), np.float32)
        plain = median[z, h] - (1 - share) * moved
        added = self.correction.moved(zones[z], at) if self.correction else np.zeros_like(moved)
        if self.tuned:
            added = added + self.tuned.moved(zones[z], at)
        kept = ((moved != 0) | (added != 0)) & ~np.isfinite(network[z, h])
        plain -= added
        held, base = self.waiting["median"][zones[z], at], self.waiting["base"][zones[z], at]
        own = np.where((share > 0) | kept, held, plain)
        self.waiting.amend(zones[z], at, own, (network[z, h] - base) / self.unit[h])
        self.first.issue(zones[z], at, plain, ~kept)

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """Everything that was learned, as nested maps of arrays; without ``copy`` those of the zones are only good
        until the next row.
        """
        parts = {name: getattr(self, name).state_dict() for name in _PARTS if name not in _ZONE_PARTS}
        parts |= {name: getattr(self, name).state_dict(copy) for name in _ZONE_PARTS}
        if self.known:
            parts["known"] = self.known.state_dict(copy)
        if self.correction:
            parts["correction"] = self.correction.state_dict(copy)
        tuned = {"tuned": self.tuned.state_dict(copy)} if self.tuned else {}
        return {
            **parts,
            "zones": self.waiting.state_dict(copy),
            "unit": self._unit.copy(),
            "seen": self._unit_seen.copy(),
            **tuned,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave, now or before ADR 70; raises ``ValueError`` if it does not fit."""
        state = state_of_now(state, self._spec)
        for name in _PARTS:
            getattr(self, name).load_state_dict(state[name])
        self.waiting.load_state_dict(state["zones"])
        self._unit, self._unit_seen = state["unit"].copy(), state["seen"].copy()
        self.known = None  # nor has a state of before there were plans
        if "known" in state:
            self.known = self._new_known()
            self.known.load_state_dict(state["known"])
        if self._pretrained is not None:  # it begins to learn where a state of before knew none
            self.correction = self._new_correction(self._pretrained, max(len(self), 1))
            if "correction" in state:
                self.correction.load_state_dict(state["correction"])
            else:
                self.correction.add_zones(len(self))
            if self.tuned:
                self.tuned = self._new_tuned(self._pretrained, self.correction, max(len(self), 1))
            if self.tuned and "tuned" in state:
                self.tuned.load_state_dict(state["tuned"])
            elif self.tuned:
                self.tuned.add_zones(len(self))

    @property
    def regressors(self) -> int:
        """How many regressors trees take: those of the row and those of a horizon."""
        return sum(self.features.width) + sum(self.features.detail_width)

    @property
    def unit(self) -> F64:
        """The climatology's usual error, ``[H, M]``: what experts' answers are measured in."""
        return np.where(self._unit > 1e-9, self._unit, 1.0)

    def _median(self, zones: I64, experts: F32) -> F32:
        """The mixture of experts ``[Z, H, M, K] -> [Z, H, M]``, within what is possible."""
        return self.widths.within(self.mix.median(zones, experts, self.unit))

    def _see_ahead(self, foreseen: F32 | None) -> KnownAhead | None:
        """What learns from plans; it begins with the first that says anything."""
        if self.known is None and foreseen is not None and np.isfinite(foreseen).any():
            self.known = self._new_known()
            self.known.add_zones(len(self))
            self.known.intervals.take(np.arange(len(self)), self.intervals, pooled=True)
        return self.known

    def _new_known(self) -> KnownAhead:
        waiting = self.waiting
        return KnownAhead(self._spec, waiting.stride, waiting.places, waiting.origins, 1)

    def _new_correction(self, pretrained: Pretrained, capacity: int) -> PretrainedCorrection:
        waiting = self.waiting
        return PretrainedCorrection(self._spec, waiting.stride, waiting.places, pretrained, capacity)

    def _new_tuned(
        self, pretrained: Pretrained | None, correction: PretrainedCorrection | None, capacity: int
    ) -> TunedCorrection | None:
        """None where there is no pre-trained network to go on from; both look at the same memory of rows."""
        if pretrained is None or correction is None:
            return None
        waiting = self.waiting
        return TunedCorrection(self._spec, waiting.stride, waiting.places, pretrained, correction.memory, capacity)

    def _young(self, zones: I64) -> I64:
        """Which of the zones are in their first days."""
        return np.flatnonzero(self.first.young(zones))

    def _correct(
        self, indices: I64, step: int, values: F32, day_bin: I64, sun: F32, foreseen: F32 | None, old: F32 | None,
        experts: F32,
    ) -> None:  # fmt: skip
        """Show a pre-trained network the rows of zones in their first days and, where ``old`` is the median of an
        example, ask it.
        """
        assert self.correction is not None
        young = self._young(indices)
        zones, rows, bins = indices[young], values[young], day_bin[young]
        if self.tuned:
            self.correction.see(indices, step, values)  # it looks at the same memory
        elif len(young):
            self.correction.see(zones, step, rows)
        if old is None:
            return
        self.correction.end(np.delete(indices, young))
        if len(young):
            base = self._without_correction(zones, bins, old[young], experts[young])
            ahead = None if foreseen is None else foreseen[young]
            self.correction.ask(zones, step, rows, bins, sun[young], ahead, base, self.first.share(zones))

    def _tune(
        self, tuned: TunedCorrection, indices: I64, step: int, values: F32, day_bin: I64, sun: F32,
        foreseen: F32 | None, old: F32 | None, experts: F32,
    ) -> F32:  # fmt: skip
        """Where ``old`` is the median of an example, ask the network that is fine-tuned to these zones. Gives the
        ``experts``, with what it adds where one is followed.
        """
        tuned.shown = None
        at = self.waiting.at(step)
        if old is not None:
            base = self._without_correction(indices, day_bin, old, experts)
            tuned.ask(indices, step, values, day_bin, sun, foreseen, base, at)
        added = np.zeros_like(experts[..., 0])
        if tuned.arrays:
            added = tuned.added(indices, experts[..., PRETRAINED], self.first.share(indices))
            experts = beside(experts, TUNED, added)
        if old is not None:
            tuned.keep(indices, at, added)
        return experts

    def _without_correction(self, zones: I64, day_bin: I64, median: F32, experts: F32) -> F32:
        """The forecast from the experts' ``median`` before a pre-trained network corrects it, ``[Z, H, M, Q]``."""
        blended = self._blended(zones, self._moved(median, experts), experts)
        return self.widths.around(zones, day_bin, blended, experts, self._planned)

    def _quantiles(self, zones: I64, day_bin: I64, median: F32, experts: F32) -> F32:
        """The intervals of now around ``median [Z, H, M]``, ``[Z, H, M, Q]``, and what a fine-tuned network adds."""
        return self.widths.with_tuned(self.widths.around(zones, day_bin, median, experts, self._planned), experts)

    @property
    def _planned(self) -> Intervals | None:
        """The intervals around medians that plans have moved."""
        return self.known.intervals if self.known else None

    def _corrected(self, median: F32, experts: F32) -> F32:
        """``median [Z, H, M]`` with what a pre-trained network adds, where there is one."""
        moves = moves_of(experts, PRETRAINED)
        return median if moves is None else self.widths.within(median + moves)

    def _moved(self, median: F32, experts: F32) -> F32:
        """The experts' ``median [Z, H, M]``, moved by what plans say where there are any."""
        moves = moves_of(experts, PLANS)
        return median if moves is None else self.widths.within(median + moves)

    def _blended(self, zones: I64, median: F32, experts: F32) -> F32:
        """The learners' ``median [Z, H, M]``, or in a zone's first days what is forecast there."""
        share = self.first.share(zones)[:, None]
        if not share.any():
            return median
        first = experts[..., FIRST]
        blended = median + share * np.where(np.isnan(first), np.float32(0), first - median)
        return self.widths.within(blended)

    def _trees(self, seen: Example, unit: F64) -> F32:
        """The forest's answers; NaN where there is none. Between examples nobody learns from them."""
        answer = self.forest.predict(seen.common, seen.ahead) * unit + seen.base
        return np.asarray(answer, dtype=np.float32)

    def _bins_at(self, day_bin: I64) -> I64:
        """The steps of the day at each horizon, ``[Z, H]``."""
        return np.asarray((day_bin[:, None] + self._steps) % self._spec.steps_per_day)

    def _refit(self, place: int) -> None:
        """Solve the horizons whose turn it is: the work is spread over the day."""
        for h in range(len(self._steps)):
            if (place - h * self._refit_every // len(self._steps)) % self._refit_every == 0:
                self.pooled.refit(h)
                if self.known:
                    self.known.pooled.refit(h)
        if place % self._refit_every == 0:
            self.mixture.refit()

    def _targets(self, values: F32) -> F32:
        y = targets_of(values, self._spec)
        return np.where(np.isfinite(y), y, np.float32(np.nan))

    def _catch_up(self, indices: I64, step: int) -> I64:
        """How many steps each zone was left out for; the climatology counts rows, all else knows steps."""
        missed = self.features.missed(indices, step)
        if missed.any():
            self.climatology.skip(indices[missed > 0], missed[missed > 0])
        return missed

    def _see(self, indices: I64, step: int, values: F32, y: F32, day_bin: I64, sun: F32) -> tuple[Example, Members]:
        """What is known of these rows, and what the climatology's forecast is made of."""
        climate = self.climatology.learn(indices, y, day_bin)
        error = self.climatology.latest_errors(indices)
        common, ahead, detail, planned = self.features.learn(
            indices, step, values, day_bin, sun, climate.median, climate.profiles[:, [0, -1]], error, self.unit
        )
        whole = np.concatenate([common, detail], axis=1), np.concatenate([ahead, planned], axis=-1)
        return Example(step, indices.copy(), *whole, climate.median, y), climate

    def _mature(self, indices: I64, step: int, y: F32, day_bin: I64) -> F32:
        """Let every part learn from the forecasts whose truth this row is; see ``Learned.errors``."""
        none = np.full_like(y, np.nan)
        waiting, matured = self.waiting, self.waiting.matured(indices, step)
        if matured is None:
            return none
        h, at, due = matured.h, matured.at, matured.due
        residual, missed = waiting.off("base", indices, matured, y), waiting.off("median", indices, matured, y)
        scaled = np.asarray(residual / self.unit[h], dtype=np.float32)
        taking_part = self.features.taking_part(step)
        part = part_of(len(indices), taking_part)
        self._learn_unit(h, residual, part)
        self.pooled.learn(h, step, waiting.regressors(indices, matured), scaled)
        self.mixture.learn(h, step, waiting.deviations(indices, matured), scaled)
        hour = self.widths.hours(day_bin, np.zeros(1, np.int64))[:, 0]
        if self.known:
            self.known.mature(indices, step, h, at, missed, self._clock[day_bin], hour, self.unit, taking_part)
        relative = self.intervals.learn(indices, h, hour, missed, part)
        old = waiting["median"][indices[:, None], at]
        self.first.learn(indices, step, h, at, due, y, hour, old, taking_part)
        young = self._young(indices)
        if self.correction and len(young):
            base = self._uncorrected(indices[young], step, h, at)
            self.correction.learn(indices[young], h, at, due[young], y[young], base)
        if self.tuned:
            self.tuned.learn(indices, h, at, due, y, self._uncorrected(indices, step, h, at))
        self.change.update(indices, masked_mean(relative, axis=1))
        size = np.abs(missed) / self.unit[h]
        return masked_mean(size, axis=1).astype(np.float32)

    def _uncorrected(self, zones: I64, step: int, h: I64, at: I64) -> F32:
        """The forecasts that wait at ``at [P]``, of horizons ``h [P]``, without what pre-trained networks added,
        ``[Z, P, M]``.
        """
        base = self.first.issued(zones, at)
        if self.known:
            share = self.first.share(zones)[:, None]
            base = base + (1 - share) * self._planned_moves(zones, step, h, at)
        return base

    def _planned_moves(self, zones: I64, step: int, h: I64, at: I64) -> F32:
        """What plans moved those forecasts by that wait at ``at [P]``, of horizons ``h [P]``, ``[Z, P, M]``."""
        assert self.known is not None
        moves = [self.known.moved(zones, int(step - self._steps[one]), np.full(len(zones), place))
                 for one, place in zip(h.tolist(), at.tolist(), strict=True)]  # fmt: skip
        return np.stack(moves, axis=1)

    def _learn_unit(self, h: I64, residual: F32, part: float) -> None:
        """Take errors ``[Z, P, M]`` of so large a part of a step's zones."""
        mean = masked_mean(np.abs(residual), axis=0, dtype=np.float64)
        known = ~np.isnan(mean)
        self._unit_seen[h] += known
        slowest = part * self.waiting.stride / (UNIT_DAYS * self._spec.steps_per_day)
        gain = np.maximum(1 / np.maximum(self._unit_seen[h], 1), slowest)
        held = np.where(np.isnan(self._unit[h]), mean, self._unit[h])
        self._unit[h] = np.where(known, held + gain * (mean - held), self._unit[h])


_ZONE_PARTS = ("climatology", "features", "intervals", "change", "first")
_PARTS = (*_ZONE_PARTS, "pooled", "forest", "mixture")
assert QUANTILES == (0.1, 0.5, 0.9)
