"""Step 7 of the way of a reading: the whole forecast of a zone, learned online.

:class:`OnlineForecaster` composes the three-rate climatology, ridges and trees on its residual, the network's answer
where there is one, the mixture that weighs them, what a pre-trained network adds to that, the intervals around it, and
what a network that is fine-tuned to the site adds to all.
It has no clock, no I/O and no torch, so that whoever has rows can run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from models.features.inputs import targets_of
from models.features.regressors import Features
from models.masked import masked_mean
from models.online.baselines import Climatology, Members
from models.online.change_points import ChangePoints
from models.online.first_days import FirstDays
from models.online.intervals import Intervals
from models.online.known_ahead import KnownAhead
from models.online.mixture import Mixture
from models.online.pretrained_correction import Pretrained, PretrainedCorrection
from models.online.ridge import PooledRidge, prior_strength
from models.online.tuned_correction import TunedCorrection
from models.paths.steps import Knots, between
from models.spec import QUANTILES, ForecastSpec
from models.trees.forest import Forest
from models.zone_arrays import ZoneArrays

__all__ = ["EXPERTS", "Basis", "Example", "Learned", "OnlineForecaster"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

EXAMPLE_MS = 900_000
"""Learners take an example every quarter of an hour: rows between say nearly the same."""

POOLED_DAYS = (2.5, 6.0, 15.0)
REFITS_A_DAY = 4
UNIT_DAYS = 14.0
LIMIT = 6.0
"""No expert departs from the climatology by more than this many times its usual error."""

LARGEST = 60_000.0
"""Experts' deviations are kept in half precision."""

EXPERTS = (
    "climatology", "shifted", "first days", "climatology 1 d", "profile 1 d", "yesterday",
    *(f"pooled ridge {days:g} d" for days in POOLED_DAYS), "trees", "network",
)  # fmt: skip
"""The first is what the others correct, and answers where they do not. The second is followed after a change only: it
says little that the others do not say when nothing has changed, and one more weight costs more than that is worth. The
third is followed in a zone's first days, and NaN later (:class:`~models.online.first_days.FirstDays`)."""

FIRST, NETWORK = EXPERTS.index("first days"), EXPERTS.index("network")

WEIGHED = 3
"""Experts from this index on have learned weights."""

FAST = {"yesterday": 1 / 2, "shifted": 1 / 2}
"""What a zone follows after a change, at horizons of ``FAST_MS`` and more: shorter ones know from the climate now what
has changed."""

FAST_MS = 3 * 3_600_000

LEAST_WIDTH = 0.02
"""No interval is thinner than this share of the mean error of a zone in its first days: a sensor that says the same for
days says so because its display is coarse."""

SMALLEST = 4e-6
"""No interval is thinner than this share of the median: thinner ones are lost in single precision."""

MOST_SCALED = 3.0
"""Between horizons no width is more than this many times its usual one, or less than this part of it."""

_HOURS = 24


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
    """What a forecast from one step's rows is mixed from; taken by :meth:`OnlineForecaster.predict`."""

    step: int
    zones: I64  # [Z]
    day_bin: I64  # [Z]
    # [Z, H, M, K], in the order of EXPERTS; the network's place is NaN. One more where plans were given: what they move
    # the median by; and another where there is a pre-trained network: what that adds (then plans have a place, too);
    # and a third where one that was fine-tuned is followed: what that adds to every quantile.
    experts: F32

    @property
    def baseline(self) -> F32:
        """The climatology's median, ``[Z, H, M]``."""
        return self.experts[..., 0]


@dataclass(frozen=True, slots=True)
class Learned(Basis):
    """A basis with its example, as :meth:`OnlineForecaster.learn` returns it, and the errors of earlier forecasts."""

    example: Example
    # [Z, M], size of the errors that matured in these rows, in usual errors; NaN where none did. Of what was forecast
    # before plans moved it.
    errors: F32


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
        self._stride = max(round(EXAMPLE_MS / spec.step_ms), 1)
        self._refit_every = max(day // self._stride // REFITS_A_DAY, 1)
        self.climatology = Climatology(spec, capacity)
        self.features = Features(spec, capacity)
        d, e = self.features.width
        prior = prior_strength(spec)
        self.pooled = PooledRidge(prior, targets, d + e, POOLED_DAYS, day)
        self.mixture = Mixture(horizons, targets, 1 + len(EXPERTS[WEIGHED:]), day)
        self.intervals = Intervals(horizons, targets, max(day // self._stride // _HOURS, 1), capacity)
        # Horizons that are no multiple of the stride mature at steps of their own.
        self.change = ChangePoints(targets, day // self._stride * len(set((steps % self._stride).tolist())), capacity)
        self._fast = [EXPERTS.index(name) for name in FAST]
        self._fast_weights = np.array(list(FAST.values()), dtype=np.float32)
        self._far = (steps * spec.step_ms >= FAST_MS).astype(np.float32)[:, None]
        # An origin of horizon h waits in one of this many slots until its truth comes.
        self._slots = steps // self._stride + 1
        self._first = np.concatenate([[0], np.cumsum(self._slots)[:-1]])
        total, longest = int(self._slots.sum()), int(self._slots.max())
        self.first = FirstDays(spec, self._stride, total, capacity)
        self._thinnest = LEAST_WIDTH * self.first.prior.issued.mean(axis=0)
        self._zones = ZoneArrays(
            capacity,
            stamp=((longest,), np.int64, -1),
            common=((longest, d), np.float16, 0.0),
            ahead=((total, e), np.float16, 0.0),
            experts=((total, targets, len(EXPERTS[WEIGHED:])), np.float16, np.nan),
            median=((total, targets), np.float16, np.nan),
            base=((total, targets), np.float16, np.nan),
        )
        self._pretrained = pretrained
        self.correction = None if pretrained is None else self._new_correction(pretrained, capacity)
        self.tuned = self._new_tuned(pretrained, self.correction, capacity) if fine_tunes else None
        self.forest = Forest(horizons, targets)
        self.known: KnownAhead | None = None  # from the first plan on
        turn = np.arange(day) * (2 * np.pi / day)
        self._clock = np.stack([np.sin(turn), np.cos(turn)], axis=-1).astype(np.float32)
        self._unit = np.full((horizons, targets), np.nan)
        self._unit_seen = np.zeros((horizons, targets))
        low, high = zip(*spec.limits, strict=True)
        self._low, self._high = np.array(low, dtype=np.float32), np.array(high, dtype=np.float32)

    def __len__(self) -> int:
        return len(self._zones)

    def add_zones(self, count: int = 1) -> int:
        """Make room for more zones and return the index of the first."""
        for part in (self.climatology, self.features, self.intervals, self.change, self.first):
            part.add_zones(count)
        for late in (self.known, self.correction, self.tuned):
            if late:
                late.add_zones(count)
        return self._zones.add(count)

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all. Call it often; see ``ZoneArrays.prepare``."""
        for part in (self.climatology, self.features, self.intervals, self.change, self.first, self._zones):
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
        y = self._targets(values)
        errors = self._mature(indices, step, y, day_bin)
        seen, climate = self._see(indices, step, values, y, day_bin, sun)
        base, unit = seen.base, self.unit
        example = step % self._stride == 0
        if example:
            self._refit(step // self._stride)
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
        hours = self._hours(day_bin, self._steps)
        experts[..., FIRST] = self.first.forecast(indices, step, hours, old)
        known = self._see_ahead(foreseen)
        if known and foreseen is not None:
            foresight, said = known.see(indices, step, values, foreseen, sun, self._clock[self._bins_at(day_bin)])
            experts = np.concatenate([experts, known.move(indices, said, self.unit)[..., None]], axis=-1)
        if self.correction:
            self._correct(indices, step, values, day_bin, sun, foreseen, old, experts)
            if experts.shape[-1] == len(EXPERTS):
                experts = np.concatenate([experts, np.zeros_like(experts[..., :1])], axis=-1)
            experts = np.concatenate([experts, self.correction.added(indices)[..., None]], axis=-1)
        if self.tuned:
            experts = self._tune(self.tuned, indices, step, values, day_bin, sun, foreseen, old, experts)
        if old is not None:
            s, at = self._zones, self._keep_base(seen)
            place = step // self._stride % s["stamp"].shape[1]
            s["common"][indices, place] = common
            s["ahead"][indices[:, None], at] = ahead
            s["experts"][indices[:, None], at] = self._deviations(experts)
            s["median"][indices[:, None], at] = old
            if known and foreseen is not None:
                known.keep(indices, step, at, foresight, said, self._moved(old, experts) - old, sun, self.intervals)
            if self.correction:
                self.correction.keep(indices, at)
            self.first.issue(indices[:, None], at, self._blended(indices, old, experts))
            self.first.bind(indices, at)
        return Learned(step, seen.zones, day_bin.copy(), experts, seen, errors)

    @property
    def has_trained_experts(self) -> bool:
        """Whether trees or a network have answered: no history says what they would have said before they existed."""
        return any(self.mixture.knows(EXPERTS.index(name) - WEIGHED) for name in ("trees", "network"))

    def examine(self, indices: I64, step: int, values: F32, day_bin: I64, sun: F32) -> Example:
        """The example that :meth:`learn` would give, for callers that only collect examples. No correction learns, and
        nothing can be forecast; it is half the work.
        """
        y = self._targets(values)
        matured = self._matured(indices, step)
        if matured is not None:
            h, _, at, due = matured
            self._learn_unit(h, self._residual(indices, at, due, y))
        seen, _ = self._see(indices, step, values, y, day_bin, sun)
        if step % self._stride == 0:
            self._keep_base(seen)
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
        quantiles = self._with_tuned(self._quantiles(learned.zones, learned.day_bin, median, experts), experts)
        self.remember(learned.zones, learned.step, quantiles[..., 1], experts[..., NETWORK])
        return quantiles

    def quantiles(self, learned: Basis) -> F32:
        """What :meth:`predict` gives without a network, until the next row is learned; nothing is remembered."""
        median = self._mixed(learned.zones, learned.experts)
        quantiles = self._quantiles(learned.zones, learned.day_bin, median, learned.experts)
        return self._with_tuned(quantiles, learned.experts)

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
        below, above = self._widths_between(zones, day_bin, knots)
        if self.known:
            below, above = self._as_issued(zones, day_bin, quantiles, knots, below, above)
        low, high, thinnest = self._low, self._high, self._thinnest[knots.after]
        p50 = np.clip(median, low, high)
        p10 = np.minimum(np.clip(median - below, low, high), high - thinnest)
        p90 = np.maximum(np.clip(median + above, low, high), low + thinnest)
        path = np.stack([np.minimum(p10, p50), p50, np.maximum(p90, p50)], axis=-1, dtype=np.float32)
        path[:, knots.learned] = quantiles[:, knots.after[knots.learned]]
        return path

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
        late = step % self._stride
        origin = step - (self._steps[h] - knots.steps) - late
        mine = np.flatnonzero((knots.earlier > 0) & ~knots.learned & (origin >= 0) & (origin % self._stride == 0))
        if not len(mine):
            return median
        place = origin[mine] // self._stride
        stamp = self._zones["stamp"][zones[:, None], place % self._zones["stamp"].shape[1]]
        at = self._first[h[mine]] + place % self._slots[h[mine]]
        said = self.first.issued(zones, at)
        if self.correction:
            said = said + self.correction.moved(zones[:, None], at)
        if self.tuned:
            said = said + self.tuned.moved(zones[:, None], at)
        if late:
            said = said + usual[:, mine] - self.climatology.usual(zones, day_bin, knots.steps[mine] - late)
        there = (stamp == origin[mine])[..., None] & np.isfinite(said)
        moved = knots.earlier[mine][:, None] * np.where(there, said - median[:, mine], np.float32(0))
        median = median.copy()
        median[:, mine] += moved
        return median

    def _widths_between(self, zones: I64, day_bin: I64, knots: Knots) -> tuple[F32, F32]:
        """How far p10 lies below and p90 above the median, ``[Z, T, M]``: between those of the horizons around, at the
        hour of each time. Before the first horizon they grow with the square root of the time.
        """
        hours = self._hours(day_bin, knots.hours)
        below, above = self.intervals.predict(zones, hours, knots.horizons)
        sides = self._with_first_days(zones, hours, knots.horizons, below, above)
        share: F32 = np.where(knots.before == 0, np.sqrt(knots.share), knots.share).astype(np.float32)[:, None]
        rest = np.where(knots.before == 0, 0, 1 - share[:, 0]).astype(np.float32)[:, None]
        below, above = (rest * side[:, knots.widths[0]] + share * side[:, knots.widths[1]] for side in sides)
        return below, above

    def _as_issued(
        self, zones: I64, day_bin: I64, quantiles: F32, knots: Knots, below: F32, above: F32
    ) -> tuple[F32, F32]:
        """Widths between horizons, ``[Z, T, M]``, narrower or wider as those that were issued at the horizons around
        are: plans change widths where they move medians.
        """
        hours, own = self._hours(day_bin, self._steps), np.arange(len(self._steps))
        plain = self._with_first_days(zones, hours, own, *self.intervals.predict(zones, hours, own))
        p10, p50, p90 = np.moveaxis(quantiles, -1, 0)
        scaled = []
        for width, usual, issued in zip((below, above), plain, (p50 - p10, p90 - p50), strict=True):
            ratio = np.clip(issued / np.maximum(usual, np.float32(1e-6)), 1 / MOST_SCALED, MOST_SCALED)
            ratio = np.concatenate([ratio[:, :1], ratio], axis=1).astype(np.float32)  # now as at the first horizon
            before = ratio[:, knots.before]
            scaled.append(width * (before + knots.share[:, None] * (ratio[:, knots.before + 1] - before)))
        return scaled[0], scaled[1]

    def weights(self, basis: Basis, network: F32 | None = None) -> F32:
        """What each expert weighs in the median that :meth:`predict` gives, ``[Z, H, M, K]`` in the order of EXPERTS.

        They sum to one. An expert without an answer weighs nothing: the climatology has its share. Bounds of every
        forecast (limits, the size of deviations) are left out, and what plans and pre-trained networks move the
        median by.
        """
        experts = basis.experts[..., : len(EXPERTS)]
        if network is not None:
            experts = experts.copy()
            experts[..., NETWORK] = network
        learned = self.mixture.weights.astype(np.float32)
        weights = np.zeros_like(experts)
        weights[..., 0], weights[..., WEIGHED:] = learned[..., 0], learned[..., 1:]
        silent = ~np.isfinite(experts)
        weights[..., 0] += np.where(silent, weights, 0).sum(axis=-1)
        weights[silent] = 0
        fast = np.zeros(len(EXPERTS), np.float32)
        fast[self._fast] = self._fast_weights
        changed = self.change.level(basis.zones)[:, None] * self._far  # [Z, H, M]
        changed = np.where(silent[..., self._fast].any(axis=-1), 0, changed)[..., None]
        weights += changed * (fast - weights)
        first = np.zeros(len(EXPERTS), np.float32)
        first[FIRST] = 1
        young = np.where(silent[..., FIRST], 0, self.first.share(basis.zones)[:, None])[..., None]
        return np.asarray(weights + young * (first - weights), np.float32)

    def remember(self, zones: I64, step: int, median: F32, network: F32) -> None:
        """Keep a forecast ``[Z, H, M]`` from ``step`` until its truth comes; ``network`` as in :meth:`predict`.

        A forecast whose place a newer origin has taken is left out. A shard that reads its log again passes here what
        it had issued.
        """
        if step % self._stride:
            return
        s, place = self._zones, step // self._stride
        at = self._first + place % self._slots
        newest = s["stamp"][zones].max(axis=1) // self._stride
        z, h = np.nonzero(newest[:, None] - place < self._slots)
        # What is issued of a young zone is another's forecast: the intervals learn how good the learners' own was.
        share = self.first.share(zones)[z]
        # Nor do they learn from plans, or from what pre-trained networks add: what these moved it by is taken off.
        # Without the network's answer that leaves what learn() has kept, to the last bit.
        moved = self.known.moved(zones[z], step, at[h]) if self.known else np.zeros((len(z), 1), np.float32)
        plain = median[z, h] - (1 - share) * moved
        added = self.correction.moved(zones[z], at[h]) if self.correction else np.zeros_like(moved)
        if self.tuned:
            added = added + self.tuned.moved(zones[z], at[h])
        kept = ((moved != 0) | (added != 0)) & ~np.isfinite(network[z, h])
        plain -= added
        s["median"][zones[z], at[h]] = np.where((share > 0) | kept, s["median"][zones[z], at[h]], plain)
        self.first.issue(zones[z], at[h], plain, ~kept)
        base, unit = s["base"][zones[z], at[h]], self.unit[h]
        s["experts"][zones[z], at[h], :, -1] = np.clip((network[z, h] - base) / unit, -LARGEST, LARGEST)

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
            "zones": self._zones.state_dict(copy),
            "unit": self._unit.copy(),
            "seen": self._unit_seen.copy(),
            **tuned,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit."""
        for name in _PARTS:
            getattr(self, name).load_state_dict(state[name])
        self._zones.load_state_dict(state["zones"])
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
        base, unit = experts[..., 0], self.unit.astype(np.float32)
        mixed = base + self.mixture.predict(self._deviations(experts)) * unit
        level = self.change.level(zones)
        if level.any():
            fast = experts[..., self._fast] @ self._fast_weights
            share = level[:, None] * self._far
            mixed = mixed + share * np.where(np.isnan(fast), np.float32(0), fast - mixed)
        return np.asarray(np.clip(mixed, self._low, self._high), dtype=np.float32)

    def _see_ahead(self, foreseen: F32 | None) -> KnownAhead | None:
        """What learns from plans; it begins with the first that says anything."""
        if self.known is None and foreseen is not None and np.isfinite(foreseen).any():
            self.known = self._new_known()
            self.known.add_zones(len(self))
            self.known.intervals.take(np.arange(len(self)), self.intervals, pooled=True)
        return self.known

    def _new_known(self) -> KnownAhead:
        return KnownAhead(self._spec, self._stride, int(self._slots.sum()), int(self._slots.max()), 1)

    def _new_correction(self, pretrained: Pretrained, capacity: int) -> PretrainedCorrection:
        return PretrainedCorrection(self._spec, self._stride, int(self._slots.sum()), pretrained, capacity)

    def _new_tuned(
        self, pretrained: Pretrained | None, correction: PretrainedCorrection | None, capacity: int
    ) -> TunedCorrection | None:
        """None where there is no pre-trained network to go on from; both look at the same memory of rows."""
        if pretrained is None or correction is None:
            return None
        slots = int(self._slots.sum())
        return TunedCorrection(self._spec, self._stride, slots, pretrained, correction.memory, capacity)

    def _young(self, zones: I64) -> I64:
        """Which of the zones are in their first days."""
        return np.flatnonzero((self.first.share(zones) > 0).any(axis=1))

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
        at = self._first + step // self._stride % self._slots
        if old is not None:
            base = self._without_correction(indices, day_bin, old, experts)
            tuned.ask(indices, step, values, day_bin, sun, foreseen, base, at)
        added = np.zeros_like(experts[..., 0])
        if tuned.arrays:
            added = tuned.added(indices, experts[..., len(EXPERTS) + 1], self.first.share(indices))
            experts = np.concatenate([experts, added[..., None]], axis=-1)
        if old is not None:
            tuned.keep(indices, at, added)
        return experts

    def _with_tuned(self, quantiles: F32, experts: F32) -> F32:
        """``quantiles [Z, H, M, Q]`` with what a network that was fine-tuned adds, where one is followed."""
        if experts.shape[-1] <= len(EXPERTS) + 2:
            return quantiles
        moved = quantiles + experts[..., len(EXPERTS) + 2, None]
        p10, p50, p90 = np.moveaxis(np.clip(moved, self._low[:, None], self._high[:, None]), -1, 0)
        thinnest = np.maximum(self._thinnest, np.float32(SMALLEST) * np.abs(p50))
        p10, p90 = np.minimum(p10, self._high - thinnest), np.maximum(p90, self._low + thinnest)
        return np.stack([p10, p50, p90], axis=-1, dtype=np.float32)

    def _without_correction(self, zones: I64, day_bin: I64, median: F32, experts: F32) -> F32:
        """The forecast from the experts' ``median`` before a pre-trained network corrects it, ``[Z, H, M, Q]``."""
        return self._quantiles(zones, day_bin, self._blended(zones, self._moved(median, experts), experts), experts)

    def _corrected(self, median: F32, experts: F32) -> F32:
        """``median [Z, H, M]`` with what a pre-trained network adds, where there is one."""
        if experts.shape[-1] <= len(EXPERTS) + 1:
            return median
        return np.asarray(np.clip(median + experts[..., len(EXPERTS) + 1], self._low, self._high), dtype=np.float32)

    def _quantiles(self, zones: I64, day_bin: I64, median: F32, experts: F32) -> F32:
        """The intervals of now around ``median [Z, H, M]``, ``[Z, H, M, Q]``."""
        below, above = self._widths(zones, self._hours(day_bin, self._steps), experts)
        thinnest = np.maximum(self._thinnest, np.float32(SMALLEST) * np.abs(median))
        thin = below + above < thinnest
        below, above = (np.where(thin, thinnest, side) for side in (below, above))
        low, high = self._low, self._high
        p10 = np.minimum(np.clip(median - below, low, high), high - thinnest)
        p90 = np.maximum(np.clip(median + above, low, high), low + thinnest)
        return np.stack([p10, median, p90], axis=-1, dtype=np.float32)

    def _moved(self, median: F32, experts: F32) -> F32:
        """The experts' ``median [Z, H, M]``, moved by what plans say where there are any."""
        if experts.shape[-1] == len(EXPERTS):
            return median
        return np.asarray(np.clip(median + experts[..., len(EXPERTS)], self._low, self._high), dtype=np.float32)

    def _blended(self, zones: I64, median: F32, experts: F32) -> F32:
        """The learners' ``median [Z, H, M]``, or in a zone's first days what is forecast there."""
        share = self.first.share(zones)[:, None]
        if not share.any():
            return median
        first = experts[..., FIRST]
        blended = median + share * np.where(np.isnan(first), np.float32(0), first - median)
        return np.asarray(np.clip(blended, self._low, self._high), dtype=np.float32)

    def _widths(self, zones: I64, hours: I64, experts: F32) -> tuple[F32, F32]:
        """How far p10 lies below and p90 above the median, ``[Z, H, M]``: learned from medians that plans moved where
        they move this one.
        """
        if self.known and experts.shape[-1] > len(EXPERTS):
            moves = experts[..., len(EXPERTS)] != 0
            some, rest = moves.any(axis=(1, 2)), ~moves.all(axis=(1, 2))
            below, above = np.zeros((2, *moves.shape), np.float32)
            for part, of, where in ((some, self.known.intervals, moves), (rest, self.intervals, ~moves)):
                sides = of.predict(zones[part], hours[part])
                for held, side in zip((below, above), sides, strict=True):
                    held[part] = np.where(where[part], side, held[part])
        else:
            below, above = self.intervals.predict(zones, hours)
        return self._with_first_days(zones, hours, np.arange(len(self._steps)), below, above)

    def _with_first_days(self, zones: I64, hours: I64, horizons: I64, below: F32, above: F32) -> tuple[F32, F32]:
        """Widths at these hours as of these horizons, ``[Z, H, M]``, blended with those of a zone's first days."""
        share = self.first.share(zones)[:, None]
        if not share.any():
            return below, above
        width = self.first.widths(zones, hours, horizons)
        return below + share * (width - below), above + share * (width - above)

    def _deviations(self, experts: F32) -> F32:
        """Of those that are weighed from the first expert, in units of its usual error."""
        unit = self.unit.astype(np.float32)[..., None]
        deviations = (experts[..., WEIGHED : len(EXPERTS)] - experts[..., :1]) / unit
        return np.asarray(np.clip(deviations, np.float32(-LARGEST), np.float32(LARGEST)))

    def _trees(self, seen: Example, unit: F64) -> F32:
        """The forest's answers; NaN where there is none. Between examples nobody learns from them."""
        answer = self.forest.predict(seen.common, seen.ahead) * unit + seen.base
        return np.asarray(answer, dtype=np.float32)

    def _bins_at(self, day_bin: I64) -> I64:
        """The steps of the day at each horizon, ``[Z, H]``."""
        return np.asarray((day_bin[:, None] + self._steps) % self._spec.steps_per_day)

    def _hours(self, day_bin: I64, steps: I64) -> I64:
        return (day_bin[:, None] + steps) % self._spec.steps_per_day * _HOURS // self._spec.steps_per_day

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

    def _see(self, indices: I64, step: int, values: F32, y: F32, day_bin: I64, sun: F32) -> tuple[Example, Members]:
        """What is known of these rows, and what the climatology's forecast is made of."""
        climate = self.climatology.learn(indices, y, day_bin)
        error = self.climatology.latest_errors(indices)
        common, ahead, detail, planned = self.features.learn(
            indices, step, values, day_bin, sun, climate.median, climate.profiles[:, [0, -1]], error, self.unit
        )
        whole = np.concatenate([common, detail], axis=1), np.concatenate([ahead, planned], axis=-1)
        return Example(step, indices.copy(), *whole, climate.median, y), climate

    def _keep_base(self, seen: Example) -> I64:
        """Remember what the climatology said until its truth comes; the places ``[H]`` of an example."""
        s, place = self._zones, seen.step // self._stride
        at = self._first + place % self._slots
        s["stamp"][seen.zones, place % s["stamp"].shape[1]] = seen.step
        s["base"][seen.zones[:, None], at] = seen.base
        return np.asarray(at)

    def _matured(self, indices: I64, step: int) -> tuple[I64, I64, I64, npt.NDArray[np.bool_]] | None:
        """Horizons ``[P]`` whose truth comes, their places ``[P]`` in both rings, which zones have them ``[Z, P]``."""
        s, origins = self._zones, step - self._steps
        h = np.flatnonzero((origins >= 0) & (origins % self._stride == 0))
        place = origins[h] // self._stride
        common_at, at = place % s["stamp"].shape[1], self._first[h] + place % self._slots[h]
        due = s["stamp"][indices[:, None], common_at] == origins[h]
        return (h, common_at, at, due) if due.any() else None

    def _residual(self, indices: I64, at: I64, due: npt.NDArray[np.bool_], y: F32) -> F32:
        """Truth less the climatology, ``[Z, P, M]``; where a zone had no example at an origin it counts as unknown."""
        return np.where(due[..., None], y[:, None] - self._zones["base"][indices[:, None], at], np.float32(np.nan))

    def _mature(self, indices: I64, step: int, y: F32, day_bin: I64) -> F32:
        """Let every part learn from the forecasts whose truth this row is; see ``Learned.errors``."""
        none = np.full_like(y, np.nan)
        matured = self._matured(indices, step)
        if matured is None:
            return none
        h, common_at, at, due = matured
        s, zone = self._zones, indices[:, None]
        residual = self._residual(indices, at, due, y)
        missed = np.where(due[..., None], y[:, None] - s["median"][zone, at], np.float32(np.nan))
        scaled = np.asarray(residual / self.unit[h], dtype=np.float32)
        self._learn_unit(h, residual)
        common, ahead = s["common"][zone, common_at].astype(np.float32), s["ahead"][zone, at].astype(np.float32)
        self.pooled.learn(h, step, np.concatenate([common, ahead], axis=-1), scaled)
        self.mixture.learn(h, step, s["experts"][zone, at].astype(np.float32), scaled)
        hour = self._hours(day_bin, np.zeros(1, np.int64))[:, 0]
        if self.known:
            self.known.mature(indices, step, h, at, missed, self._clock[day_bin], hour, self.unit)
        relative = self.intervals.learn(indices, h, hour, missed)
        self.first.learn(indices, step, h, at, due, y, hour, s["median"][zone, at])
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

    def _learn_unit(self, h: I64, residual: F32) -> None:
        mean = masked_mean(np.abs(residual), axis=0, dtype=np.float64)
        known = ~np.isnan(mean)
        self._unit_seen[h] += known
        slowest = self._stride / (UNIT_DAYS * self._spec.steps_per_day)
        gain = np.maximum(1 / np.maximum(self._unit_seen[h], 1), slowest)
        held = np.where(np.isnan(self._unit[h]), mean, self._unit[h])
        self._unit[h] = np.where(known, held + gain * (mean - held), self._unit[h])


_ZONE_PARTS = ("climatology", "features", "intervals", "change", "first")
_PARTS = (*_ZONE_PARTS, "pooled", "forest", "mixture")
assert QUANTILES == (0.1, 0.5, 0.9)
