"""Steps 7 and 8 of the way of a reading: the whole forecast of a zone, learned online.

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

from models.features.measured import measured
from models.features.regressors import Features
from models.masked import masked_mean
from models.online.basis import EXPERTS, FIRST, NETWORK, POOLED_DAYS, WEIGHED, Basis, Example, Learned, StepRows
from models.online.bounds import Bounds
from models.online.change_points import ChangePoints
from models.online.climatology.climatology import Climatology, Members
from models.online.climatology.usual_errors import UsualErrors
from models.online.corrections.corrections import Corrections
from models.online.corrections.pretrained_correction import Pretrained
from models.online.earlier_state import state_of_now
from models.online.expert_mix import LIMIT, ExpertMix
from models.online.first_days.first_days import FirstDays
from models.online.intervals import Intervals
from models.online.medians import Medians
from models.online.mixture import Mixture
from models.online.ridge import PooledRidge, prior_strength
from models.online.waiting_examples import WaitingExamples
from models.online.widths import Widths
from models.paths.path_interpolation import PathInterpolation
from models.paths.steps import Knots
from models.spec import QUANTILES, ForecastSpec
from models.trees.forest import Forest
from models.zone_arrays import part_of

__all__ = ["OnlineForecaster"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

REFITS_A_DAY = 4
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
        self.climatology, self.usual = Climatology(spec, capacity), UsualErrors(spec)
        self.features = Features(spec, capacity)
        d, e = self.features.width
        waiting = self.waiting = WaitingExamples(spec, (d, e), len(EXPERTS[WEIGHED:]), capacity)
        examples_a_day = day // waiting.stride
        self._refit_every = max(examples_a_day // REFITS_A_DAY, 1)
        self.pooled = PooledRidge(prior_strength(spec), targets, d + e, POOLED_DAYS, day, waiting.stride)
        self.forest = Forest(horizons, targets)
        self.mixture = Mixture(horizons, targets, 1 + len(EXPERTS[WEIGHED:]), day)
        self.intervals = Intervals(horizons, targets, max(examples_a_day // _HOURS, 1), capacity)
        # Horizons that are no multiple of the stride mature at steps of their own.
        self.change = ChangePoints(targets, examples_a_day * len(set((steps % waiting.stride).tolist())), capacity)
        self.first = FirstDays(spec, waiting.stride, waiting.places, capacity)
        self.mix, bounds = ExpertMix(spec, self.mixture, self.change), Bounds(spec, self.first.prior)
        self.medians = Medians(self.mix, self.usual, self.first, bounds)
        self.widths = Widths(spec, self.intervals, self.first, bounds)
        self.corrections = Corrections(
            spec, waiting, self.medians, self.widths, capacity, pretrained, fine_tunes=fine_tunes
        )  # fmt: skip
        self._path = PathInterpolation(spec, self.climatology, waiting, self.first, self.corrections, self.widths)

    def __len__(self) -> int:
        return len(self.waiting)

    def add_zones(self, count: int = 1) -> int:
        """Make room for more zones and return the index of the first."""
        for name in (*_ZONE_PARTS, "corrections"):
            getattr(self, name).add_zones(count)
        return self.waiting.add(count)

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all. Call it often; see ``ZoneArrays.prepare``."""
        for name in (*_ZONE_PARTS, "corrections", "waiting"):
            getattr(self, name).prepare(zones)

    def learn(
        self, indices: I64, step: int, values: F32, day_bin: I64, sun: F32, foreseen: F32 | None = None
    ) -> Learned:
        """Take the rows of one step: ``values [Z, C]``, ``day_bin [Z]``, ``sun [Z, 1 + H]`` (see :class:`Features`).

        ``foreseen`` is what plans said by then (:meth:`~models.features.plans.Plans.ahead`), ``None`` for zones that
        were never given any; before the first plan of any zone nothing else is done than without.
        """
        rows = StepRows(step, indices, measured(values), day_bin, sun, foreseen)
        targets, missed = measured(self.features.targets(indices, step, rows.values)), self._catch_up(rows)
        y = self._of_quarter(rows, targets)
        errors = self._mature(rows, y)
        example, climate = self._see(rows, y)
        is_origin = self.waiting.is_origin(step)
        if is_origin:
            self._refit(step // self.waiting.stride)
        self.first.see(indices, step, y)
        experts = self._answers(example, climate)
        mixed = self.medians.mixed(indices, experts) if is_origin else None
        experts[..., FIRST] = self.first.forecast(indices, step, self.widths.hours(day_bin, self._steps), mixed)
        experts = self.corrections.move(rows, experts, mixed)
        if mixed is not None:
            self._keep(example, experts, mixed)
        return Learned(step, example.zones, day_bin.copy(), experts, example, errors, targets, missed)

    def predict(self, learned: Basis, network: F32 | None = None) -> F32:
        """Forecast from the rows that were ``learned``: ``[Z, H, M, Q]``, p10 <= p50 <= p90, p10 < p90.

        ``network [Z, H, M]`` is the network's median for the same origins, NaN or ``None`` if there is none.
        """
        experts = learned.experts
        if network is not None:
            experts = experts.copy()
            experts[..., NETWORK] = network
        quantiles = self._quantiles(learned, experts)
        self.remember(learned.zones, learned.step, quantiles[..., 1], experts[..., NETWORK])
        return quantiles

    def now(self, zones: I64, step: int, targets: F32) -> F32:
        """The ``targets [Z, M]`` of the newest rows, those of ``step``, which were learned; what they lack is as it was
        read last in the hour.
        """
        return np.where(np.isnan(targets), self.features.held(zones, step), targets)

    def quantiles(self, learned: Basis) -> F32:
        """What :meth:`predict` gives without a network, until the next row is learned; nothing is remembered."""
        return self._quantiles(learned, learned.experts)

    def path(self, zones: I64, step: int, day_bin: I64, quantiles: F32, knots: Knots) -> F32:
        """The forecast at any times up to the longest horizon: ``quantiles [Z, H, M, Q] -> [Z, T, M, Q]``.

        ``quantiles`` are what :meth:`predict` gave of the newest rows, those of ``step``; at learned horizons the path
        is what they say. Between them see :mod:`models.paths.steps`. It changes nothing, and is p10 <= p50 <= p90.
        """
        return self._path.at(knots, zones, step, day_bin, quantiles)

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
        moved = self.corrections.moved_by_plans(zones[z], step, at)
        added = np.zeros_like(moved)
        for one in self.corrections.networks:
            added = added + one.moved(zones[z], at)
        plain = median[z, h] - (1 - share) * moved - added
        kept = ((moved != 0) | (added != 0)) & ~np.isfinite(network[z, h])
        held, base = self.waiting["median"][zones[z], at], self.waiting["base"][zones[z], at]
        own = np.where((share > 0) | kept, held, plain)
        self.waiting.amend(zones[z], at, own, (network[z, h] - base) / self.unit[h])
        self.first.issue(zones[z], at, plain, ~kept)

    def examine(self, indices: I64, step: int, values: F32, day_bin: I64, sun: F32) -> Example:
        """The example that :meth:`learn` would give, for callers that only collect examples. No correction learns, and
        nothing can be forecast; it is half the work.
        """
        rows = StepRows(step, indices, measured(values), day_bin, sun)
        y = self._of_quarter(rows, measured(self.features.targets(indices, step, rows.values)))
        self._catch_up(rows)
        matured = self.waiting.matured(indices, step)
        if matured is not None:
            residual = self.waiting.off("base", indices, matured, y)
            self.usual.learn(matured.h, residual, part_of(len(indices), self.features.taking_part(step)))
        example, _ = self._see(rows, y)
        if self.waiting.is_origin(step):
            self.waiting.keep_base(indices, step, example.base)
        return example

    def tune(self, arrays: Mapping[str, _Array]) -> None:
        """Follow this network, which was fine-tuned to these zones, from the next example on; without arrays none.

        Only where it ``fine_tunes``. Raises ``ValueError`` if they do not fit.
        """
        assert self.corrections.tuned is not None, "it was made without fine_tunes"
        self.corrections.tuned.tune(arrays)

    def take_trained(self, before: OnlineForecaster) -> None:
        """Go on with the trees of ``before`` and how far it follows them, and with its fine-tuned network: no history
        says what they would have said before they existed. How far that network is followed begins with what the
        package's would have been worth on this history, and is forgotten as new errors come.
        """
        self.forest = before.forest
        if before.corrections.tuned:
            self.tune(before.corrections.tuned.arrays)
        if any(before.mixture.knows(EXPERTS.index(name) - WEIGHED) for name in ("trees", "network")):
            self.mixture.load_state_dict(before.mixture.state_dict())

    @property
    def regressors(self) -> int:
        """How many regressors trees take: those of the row and those of a horizon."""
        return sum(self.features.width) + sum(self.features.detail_width)

    @property
    def unit(self) -> F64:
        """The climatology's usual error, ``[H, M]``: what experts' answers are measured in."""
        return self.usual.unit

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """Everything that was learned, as nested maps of arrays; without ``copy`` those of the zones are only good
        until the next row.
        """
        parts = {name: getattr(self, name).state_dict() for name in _PARTS if name not in _ZONE_PARTS}
        parts |= {name: getattr(self, name).state_dict(copy) for name in _ZONE_PARTS}
        parts |= self.corrections.state_dict(copy)
        return {**parts, "zones": self.waiting.state_dict(copy), **self.usual.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave, now or before ADR 70; raises ``ValueError`` if it does not fit."""
        state = state_of_now(state, self._spec)
        for name in _PARTS:
            getattr(self, name).load_state_dict(state[name])
        self.waiting.load_state_dict(state["zones"])
        self.usual.load_state_dict(state)  # what it has learned stands among the parts
        self.corrections.load_state_dict(state, len(self))

    def _of_quarter(self, rows: StepRows, targets: F32) -> F32:
        """The rows' ``targets``; those of an example are the newest of its quarter of an hour. So learners also follow
        a sensor that reports every quarter of an hour, between examples.
        """
        if not self.waiting.is_origin(rows.step):
            return targets
        held = self.features.held(rows.zones, rows.step, self.waiting.stride - 1)
        return np.where(np.isnan(targets), held, targets)

    def _catch_up(self, rows: StepRows) -> I64:
        """How many steps each zone was left out for; the climatology counts rows, all else knows steps."""
        missed = self.features.missed(rows.zones, rows.step)
        if missed.any():
            self.climatology.skip(rows.zones[missed > 0], missed[missed > 0])
        return missed

    def _mature(self, rows: StepRows, y: F32) -> F32:
        """Let every part learn from the forecasts whose truth these rows are; see ``Learned.errors``."""
        none = np.full_like(y, np.nan)
        indices, step = rows.zones, rows.step
        waiting, matured = self.waiting, self.waiting.matured(indices, step)
        if matured is None:
            return none
        h, at, due = matured.h, matured.at, matured.due
        residual, missed = waiting.off("base", indices, matured, y), waiting.off("median", indices, matured, y)
        scaled = np.asarray(residual / self.unit[h], dtype=np.float32)
        taking_part = self.features.taking_part(step)
        part = part_of(len(indices), taking_part)
        self.usual.learn(h, residual, part)
        self.pooled.learn(h, step, waiting.regressors(indices, matured), scaled)
        self.mixture.learn(h, step, waiting.deviations(indices, matured), scaled)
        hour = self.widths.hours(rows.day_bin, np.zeros(1, np.int64))[:, 0]
        relative = self.intervals.learn(indices, h, hour, missed, part)
        old = waiting["median"][indices[:, None], at]
        self.first.learn(indices, step, h, at, due, y, hour, old, taking_part)
        self.corrections.learn(rows, y, matured, missed, taking_part)
        self.change.update(indices, masked_mean(relative, axis=1))
        size = np.abs(missed) / self.unit[h]
        return masked_mean(size, axis=1).astype(np.float32)

    def _see(self, rows: StepRows, y: F32) -> tuple[Example, Members]:
        """What is known of these rows, and what the climatology's forecast is made of."""
        climate = self.climatology.learn(rows.zones, y, rows.day_bin, self.features.held(rows.zones, rows.step))
        error = self.climatology.latest_errors(rows.zones)
        common, ahead, detail, planned = self.features.learn(
            rows.zones, rows.step, rows.values, rows.day_bin, rows.sun, climate.median, climate.profiles[:, [0, -1]],
            error, self.unit,
        )  # fmt: skip
        whole = np.concatenate([common, detail], axis=1), np.concatenate([ahead, planned], axis=-1)
        return Example(rows.step, rows.zones.copy(), *whole, climate.median, y), climate

    def _refit(self, place: int) -> None:
        """Solve the horizons whose turn it is: the work is spread over the day."""
        for h in range(len(self._steps)):
            if (place - h * self._refit_every // len(self._steps)) % self._refit_every == 0:
                self.pooled.refit(h)
                self.corrections.refit(h)
        if place % self._refit_every == 0:
            self.mixture.refit()

    def _answers(self, example: Example, climate: Members) -> F32:
        """What experts say, ``[Z, H, M, K]``; the place of the first days is still NaN, as that of the network is."""
        base, unit = example.base, self.unit
        # As little as the climatology is trusted with few days, what corrects it is not trusted more.
        reach = (unit * (1 - climate.young))[..., None]
        ridges = np.clip(self.pooled.predict(*self._plain(example)), -LIMIT, LIMIT) * reach + base[..., None]
        # Between examples nobody learns from the trees.
        trees = np.asarray(self.forest.predict(example.common, example.ahead) * unit + base, dtype=np.float32)
        none = np.full_like(base, np.nan)
        fast = (climate.rates[:, 0], climate.profiles[:, 0], climate.yesterday)
        answers = (base, climate.shifted, none, *fast, *ridges.transpose(3, 0, 1, 2), trees, none)  # as EXPERTS
        return np.stack(answers, axis=-1, dtype=np.float32)

    def _plain(self, example: Example) -> tuple[F32, F32]:
        """The regressors that ridges take; trees take all."""
        d, e = self.features.width
        return example.common[:, :d], example.ahead[..., :e]

    def _keep(self, example: Example, experts: F32, mixed: F32) -> None:
        """Remember an example, and what would be issued without a network, until its truth comes."""
        zones, step = example.zones, example.step
        self.waiting.keep_base(zones, step, example.base)
        self.waiting.keep(zones, step, self._plain(example), self.mix.deviations(experts, self.unit), mixed)
        at = self.waiting.at(step)
        self.first.issue(zones[:, None], at, self.medians.with_first_days(zones, mixed, experts))
        self.first.bind(zones, at)

    def _quantiles(self, basis: Basis, experts: F32) -> F32:
        """``[Z, H, M, Q]`` from these ``experts``: the intervals of now around their median."""
        median = self.medians.issued(basis.zones, experts)
        around = self.widths.around(basis.zones, basis.day_bin, median, experts, self.corrections.planned)
        return self.widths.with_tuned(around, experts)


_ZONE_PARTS = ("climatology", "features", "intervals", "change", "first")
_PARTS = (*_ZONE_PARTS, "pooled", "forest", "mixture")
assert QUANTILES == (0.1, 0.5, 0.9)
