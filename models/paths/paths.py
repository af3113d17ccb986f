"""Step 7 of the way of a reading: a day ahead as a path, as scenarios, and what is said of its night.

:class:`Paths` learns beside an :class:`~models.online.online_forecaster.OnlineForecaster`, from the same rows: how
past paths were wrong, and what past nights and days were like. It has no clock and no I/O. What it learns depends on
the rows and on the forecasts that were issued, so that whoever reads both again has the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from models.online.basis import Learned
from models.online.online_forecaster import OnlineForecaster
from models.paths.past_errors import PastErrors
from models.paths.past_nights import DAY, NIGHT, PastNights
from models.paths.scenario_events import extreme, next_span
from models.paths.scenarios import SETTLED_DAYS, days_known, scenarios
from models.paths.steps import Knots, path_steps
from models.spec import ForecastSpec
from models.zone_arrays import whose_turn

__all__ = ["IsNight", "Paths", "night_by_clock"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

IsNight = Callable[[I64], Bool]
"""Steps ahead ``[T]``, 0 is now -> whether it is night then at the zones' site, ``[T]``."""

RATED_ZONES = 32
"""At most this many zones at once have their nights forecast in advance, four times a day, to see how good scenarios
are; all zones take turns."""

EVENING, MORNING = 19, 7
"""Where the sun's position is unknown it is night between these hours of the site's clock."""


def night_by_clock(day_bin: I64, steps_per_day: int) -> Bool:
    """Whether it is night at a step of the local day, for sites of which the place is unknown."""
    hour = day_bin % steps_per_day * 24 // steps_per_day
    return np.asarray((hour >= EVENING) | (hour < MORNING))


class Paths:
    """What paths and scenarios of many zones are made from. Each step: :meth:`learn`, after the forecaster."""

    def __init__(self, spec: ForecastSpec, capacity: int = 16) -> None:
        self._spec = spec
        self.knots = Knots.of(path_steps(spec), spec)
        self.errors, self.nights = PastErrors(spec, capacity), PastNights(spec, capacity)
        self._error_knots = Knots.of(self.errors.steps, spec)

    def __len__(self) -> int:
        return len(self.errors)

    def add_zones(self, count: int = 1) -> None:
        """Make room for more zones."""
        for part in (self.errors, self.nights):
            part.add_zones(count)

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all. Call it often; see ``ZoneArrays.prepare``."""
        for part in (self.errors, self.nights):
            part.prepare(zones)

    def learn(self, forecaster: OnlineForecaster, learned: Learned, is_night: IsNight) -> None:
        """Take the rows of one site that ``forecaster`` has just ``learned``."""
        zones, step, day_bin, y = learned.zones, learned.step, learned.day_bin, learned.example.y
        now = np.zeros(1, dtype=np.int64)
        if learned.missed.any():
            self.nights.skip(zones[learned.missed > 0])
        known = np.isfinite(forecaster.features.held(zones, step))
        self.nights.learn(zones, y, day_bin, np.repeat(is_night(now), len(zones)), known)
        self.errors.learn(zones, step, y, day_bin)
        due = self.errors.due(day_bin)
        if not due.all():  # the zones of a site have one clock
            return
        quantiles = forecaster.predict(learned)
        path = forecaster.path(zones, step, day_bin, quantiles, self._error_knots)
        rated = np.arange(len(zones))[whose_turn(len(zones), RATED_ZONES, step // self._spec.steps_per_day)]
        whole = forecaster.path(zones[rated], step, day_bin[rated], quantiles[rated], self.knots)
        self._expect(zones[rated], step, day_bin[rated], whole, is_night)
        self.errors.issue(zones, step, day_bin, path)

    def scenarios(
        self, indices: I64, step: int, day_bin: int, path: F32, site: str, zones: Sequence[str],
        times: slice = slice(None),
    ) -> F32:  # fmt: skip
        """Joint scenarios ``[S, Z, T, M]`` of ``path [Z, T, M, Q]``, which is at those ``times`` of :attr:`knots`."""
        templates = self.errors.templates(indices, step, day_bin)
        return scenarios(path, self.knots.steps[times], templates, self.errors.steps, (site, step), zones, self._spec)

    def extremes(
        self, indices: I64, day_bin: I64, drawn: F32, kind: int, span: tuple[int, int, bool]
    ) -> tuple[F32, I64]:
        """The scenarios' minima of a night or maxima of a day, ``[S, Z, M]``, and at which time of the path.

        ``drawn [S, Z, T, M]`` are scenarios at the times of the ``span``, which :func:`next_span` found.
        """
        first, end, is_whole = span
        sign = -1 if kind == NIGHT else 1
        # That of half hours in the first hour, too, though its times lie closer: scenarios are too smooth there.
        beyond = self.nights.beyond(indices, day_bin, self.knots.steps[first:end], sign)
        values, at = extreme(np.moveaxis(drawn, 2, 3), sign, np.moveaxis(beyond, 1, 2))
        low, high = (np.array(side, dtype=np.float32) for side in zip(*self._spec.limits, strict=True))
        corrected = self.nights.corrected(kind, values) if is_whole else values
        return np.asarray(np.clip(corrected, low, high), dtype=np.float32), at + first

    def span(self, kind: int, is_night: IsNight) -> tuple[int, int, bool] | None:
        """The next night or day within the path, as :func:`next_span` gives it."""
        night = is_night(np.concatenate([[0], self.knots.steps]))
        inside = night if kind == NIGHT else ~night
        return next_span(inside[1:], bool(inside[0]))

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """Everything that was learned (see :meth:`ZoneArrays.state_dict`)."""
        return {"errors": self.errors.state_dict(copy), "nights": self.nights.state_dict(copy)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit. An empty state is that of
        zones of which nothing was learned yet.
        """
        if not state:
            return
        self.errors.load_state_dict(state["errors"])
        self.nights.load_state_dict(state["nights"])

    def _expect(self, zones: I64, step: int, day_bin: I64, path: F32, is_night: IsNight) -> None:
        """Say beforehand what the next night and day will be like, to learn how good that is; once, from the last of
        these origins before it begins. Of zones in their first days nobody asks: they are forecast in another way.
        """
        spans = {kind: self.span(kind, is_night) for kind in (NIGHT, DAY)}
        due = {
            kind: span for kind, span in spans.items()
            if span is not None and span[2] and self.knots.steps[span[0]] <= self.errors.every
        }  # fmt: skip
        if not due:
            return
        settled = days_known(self.errors.templates(zones, step, int(day_bin[0]))) >= SETTLED_DAYS
        zones, day_bin, path = zones[settled], day_bin[settled], path[settled]
        if not len(zones):
            return
        for kind, span in due.items():
            times = slice(span[0], span[1])
            names = [str(zone) for zone in zones.tolist()]
            drawn = self.scenarios(zones, step, int(day_bin[0]), path[:, times], "", names, times)
            values, _ = self.extremes(zones, day_bin, drawn, kind, (span[0], span[1], False))
            self.nights.expect(zones, kind, np.moveaxis(np.quantile(values, [0.1, 0.5, 0.9], axis=0), 0, -1))
