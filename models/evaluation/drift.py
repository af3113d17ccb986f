"""Step 10 of the way of a reading: drift of inputs and of forecast errors.

:class:`PageHinkley` is River's detector of that name, over many signals at once and with a state of plain arrays.
:class:`Drift` feeds it once an hour, for each zone and for each site as a whole, and says in words what drifted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from models.durations import HOUR_MS
from models.features.weather_metrics import is_weather
from models.masked import masked_mean
from models.zone_arrays import ZoneArrays

__all__ = ["Drift", "Drifted", "PageHinkley"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]

WATCHED = (
    "air_temp_c", "rh_pct", "co2_ppm", "out_temp_c", "out_rh_pct", "out_radiation_w_m2", "wind_m_s", "vent_lee_pct",
    "screen_energy_pct", "screen_black_pct", "lamp_pct", "heat_pipe_low_c", "sp_heat_c", "sp_vent_c",
)  # fmt: skip
"""The inputs that are watched, as far as a schema has them."""

PROFILE_DAYS = 14.0
"""An input is compared with its mean at this hour of day over the last two weeks."""

WARM_UP_HOURS = 7 * 24
"""No drift is called in the first week: there is no usual value yet."""

CLIP = 4.0
"""Signals are cut here, in units of what is usual: one wild hour is no drift."""

INPUT_DELTA, INPUT_THRESHOLD = 0.75, 60.0
ERROR_DELTA, ERROR_THRESHOLD = 0.3, 30.0
"""Drift is called when the departures from the mean, each less ``delta``, add up to the threshold: an error that
doubles needs some two days, one that grows fourfold half a day."""

_HOURS = 24


class PageHinkley:
    """Cumulative sums of each signal's departures from its own mean, upwards and downwards (E. S. Page, 1954).

    The same definition as ``river.drift.PageHinkley`` with ``alpha=1``; ``state`` holds one array an entry, of any
    equal shape. A detector starts afresh after a detection.

    >>> state = {name: np.zeros(1) for name in PageHinkley.STATE}
    >>> detector = PageHinkley(delta=0.1, threshold=2.5, min_instances=3)
    >>> [bool(detector.update(state, np.array([x]), hour)[0][0]) for hour, x in enumerate([0.0] * 4 + [2.0] * 2)]
    [False, False, False, False, False, True]
    >>> state["up_since"].tolist()
    [3.0]
    """

    STATE = ("n", "mean", "up", "down", "up_min", "down_max", "up_since", "down_since", "called")

    def __init__(self, delta: F64 | float, threshold: F64 | float, min_instances: int = WARM_UP_HOURS) -> None:
        self._delta, self._threshold, self._least = delta, threshold, min_instances

    def update(self, state: dict[str, _Array], x: F64, hour: I64 | int) -> tuple[Bool, Bool]:
        """Take one value of each signal, NaN where there is none; which have drifted upwards, which downwards.

        ``up_since`` and ``down_since`` are the hours after which a drift that is called now began.
        """
        s, known = state, np.isfinite(x)
        fresh = known & (s["called"] > 0)
        for name in self.STATE:
            s[name] = np.where(fresh, 0.0, s[name])
        s["n"] = s["n"] + known
        departure = np.where(known, x - s["mean"], 0.0)
        s["mean"] = s["mean"] + departure / np.maximum(s["n"], 1)
        left = np.where(known, x - s["mean"], 0.0)
        first = known & (s["n"] == 1)
        s["up"] = s["up"] + np.where(known, left - self._delta, 0.0)
        s["down"] = s["down"] + np.where(known, left + self._delta, 0.0)
        lower, higher = known & (first | (s["up"] < s["up_min"])), known & (first | (s["down"] > s["down_max"]))
        s["up_min"], s["up_since"] = np.where(lower, s["up"], s["up_min"]), np.where(lower, hour, s["up_since"])
        s["down_max"] = np.where(higher, s["down"], s["down_max"])
        s["down_since"] = np.where(higher, hour, s["down_since"])
        enough = known & (s["n"] >= self._least)
        up = enough & (s["up"] - s["up_min"] > self._threshold)
        down = enough & (s["down_max"] - s["down"] > self._threshold)
        s["called"] = np.where(known, up | down, s["called"]).astype(np.float64)
        return up, down


@dataclass(frozen=True, slots=True)
class Drifted:
    """A signal of a zone (``None``: of its site as a whole) that is no longer what it was before ``since_step``.

    ``before`` and ``after`` are means: of an input how far it is from its usual value at that hour of day, in its
    unit; of errors their size in usual errors of the climatology.
    """

    site: str
    zone: int | None
    signal: str
    is_error: bool
    since_step: int
    before: float
    after: float

    def words(self, since: str, zone: str = "", unit: str = "") -> str:
        """One line for people; ``since`` is ``since_step`` as they write times, ``zone`` the zone's name.

        >>> Drifted("s", 3, "air_temp_c", True, 7, 1.0, 2.1).words("Tuesday", "z3")
        'air_temp_c errors of z3 are 2.1 times as large since Tuesday'
        >>> Drifted("s", None, "out_temp_c", False, 7, 0.2, -5.8).words("Tuesday", unit="degC")
        'out_temp_c is 6 degC below the two weeks before since Tuesday'
        """
        of = f" of {zone}" if zone else ""
        if self.is_error:
            return f"{self.signal} errors{of} are {self.after / self.before:.2g} times as large since {since}"
        size = self.after - self.before
        side = "above" if size > 0 else "below"
        return f"{self.signal}{of} is {abs(size):.2g}{unit and ' '}{unit} {side} the two weeks before since {since}"


class Drift:
    """Watches inputs and errors of zones and of their sites; :meth:`update` once a step and site.

    A zone costs about 5 KB. Rows and errors of an hour are averaged before a detector sees them.
    """

    def __init__(self, channels: Sequence[str], targets: Sequence[str], step_ms: int, capacity: int = 16) -> None:
        self.inputs = tuple(name for name in WATCHED if name in channels)
        self.signals = self.inputs + tuple(targets)
        self._columns = [channels.index(name) for name in self.inputs]
        # The same in all zones of a site: what happens to them is told once, of the site.
        self._weather = [k for k, name in enumerate(self.inputs) if is_weather(name)]
        self._an_hour = max(HOUR_MS // step_ms, 1)
        k, self._s = len(self.inputs), len(self.signals)
        self._is_error = np.arange(self._s) >= k
        self._detector = PageHinkley(
            np.where(self._is_error, ERROR_DELTA, INPUT_DELTA),
            np.where(self._is_error, ERROR_THRESHOLD, INPUT_THRESHOLD),
        )
        one = (self._s,)
        self._rows = ZoneArrays(
            capacity,
            hour=((), np.int64, -1), sum=(one, np.float64, 0), count=(one, np.int32, 0),
            profile=((_HOURS, self._s), np.float32, np.nan), usual=(one, np.float64, np.nan),
            seen=(one, np.int32, 0),
            **dict.fromkeys((*_SUMS, *_KNOWN_HOURS, *PageHinkley.STATE), (one, np.float64, 0)),
        )  # fmt: skip
        self._sites: dict[str, int] = {}  # rows of sites and zones
        self._zones: list[int] = []

    def add_zones(self, count: int = 1) -> int:
        """Make room for more zones and return the index of the first."""
        first, row = len(self._zones), self._rows.add(count)
        self._zones += range(row, row + count)
        return first

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all. Call it often; see ``ZoneArrays.prepare``."""
        self._rows.prepare(zones + len(self._sites))

    def update(self, site: str, indices: I64, step: int, values: F32, errors: F32) -> list[Drifted]:
        """Take one step of a site's zones: ``values [Z, C]``, ``errors [Z, M]`` that matured in it, as multiples of a
        usual error; NaN where there is none. What has drifted, when an hour is over.
        """
        if site not in self._sites:
            self._sites[site] = self._rows.add()
        rows = np.array([*(self._zones[i] for i in indices.tolist()), self._sites[site]], np.int64)
        x = np.concatenate([values[:, self._columns], np.abs(errors)], axis=1).astype(np.float64)
        x = np.where(np.isfinite(x), x, np.nan)
        of_site = masked_mean(x, axis=0)
        x[:, self._weather] = np.nan
        x = np.concatenate([x, of_site[None]])
        hour = step // self._an_hour
        over = np.flatnonzero((self._rows["hour"][rows] >= 0) & (self._rows["hour"][rows] < hour))
        found = self._close_hour(site, np.append(indices, -1)[over], rows[over]) if len(over) else []
        self._rows["hour"][rows] = hour
        self._rows["sum"][rows] += np.nan_to_num(x)
        self._rows["count"][rows] += np.isfinite(x)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Everything that was learned; copies."""
        return {"rows": self._rows.state_dict(), "sites": dict(self._sites), "zones": list(self._zones)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit."""
        self._rows.load_state_dict(_with_known_hours(state["rows"]))
        self._sites, self._zones = dict(state["sites"]), list(state["zones"])

    def _close_hour(self, site: str, zones: I64, rows: I64) -> list[Drifted]:
        """Give the means of the hour that is over to the detector: what has drifted. ``rows`` are those of ``zones``;
        zone -1 is the site.
        """
        s = {
            name: self._rows[name][rows]
            for name in ("hour", "sum", "count", "usual", "seen", *_SUMS, *_KNOWN_HOURS, *PageHinkley.STATE)
        }
        departure, signal = self._take_hour(s, rows)
        hour = s["hour"][:, None]
        up, down = self._detector.update(s, signal, hour)
        for side in _SIDES:
            began = s[f"{side}_since"] == hour
            s[f"{side}_sum"] = np.where(began, 0, s[f"{side}_sum"] + np.nan_to_num(departure))
            s[f"{side}_hours"] = np.where(began, 0, s[f"{side}_hours"] + np.isfinite(departure))
        s["sum"], s["count"] = np.zeros_like(s["sum"]), np.zeros_like(s["count"])
        for name, held in s.items():
            self._rows[name][rows] = held
        called = np.argwhere(up | (down & ~self._is_error)).tolist()  # errors that get smaller are no drift
        return [self._called(site, int(zones[r]), int(rows[r]), k, "up" if up[r, k] else "down") for r, k in called]

    def _take_hour(self, s: dict[str, _Array], rows: I64) -> tuple[F64, F64]:
        """How far the means of an hour are from the usual ones at this hour of day, of errors the means themselves; and
        the same as a multiple of what is usual, for the detector. NaN where it is not known. What is usual is learned
        from it then.
        """
        mean = np.where(s["count"] > 0, s["sum"] / np.maximum(s["count"], 1), np.nan)
        of_day = s["hour"] % _HOURS
        profile = self._rows["profile"][rows, of_day]
        departure = np.where(self._is_error, mean, mean - profile)
        size = np.abs(departure)
        ready = np.isfinite(departure) & (s["seen"] >= WARM_UP_HOURS / 2) & (s["usual"] > 0)
        signal = np.where(ready, np.clip(departure / np.where(ready, s["usual"], 1), -CLIP, CLIP), np.nan)
        days = 1 + s["seen"] / _HOURS
        gain = 1 / np.minimum(days, PROFILE_DAYS)
        moved = np.where(np.isnan(profile), mean, profile + gain * (mean - profile))
        self._rows["profile"][rows, of_day] = np.where(np.isfinite(mean), moved, profile)
        usual = np.where(np.isnan(s["usual"]), size, s["usual"] + gain / _HOURS * (size - s["usual"]))
        s["usual"] = np.where(np.isfinite(size), usual, s["usual"])
        s["seen"] = s["seen"] + np.isfinite(mean)
        return departure, signal

    def _called(self, site: str, zone: int, row: int, k: int, side: str) -> Drifted:
        """The drift of signal ``k`` of a row that was just called; ``zone`` is -1 for the site."""
        held = {name: self._rows[name][row, k] for name in ("usual", f"{side}_since", f"{side}_sum", f"{side}_hours")}
        after = float(held[f"{side}_sum"] / held[f"{side}_hours"])
        is_error = bool(self._is_error[k])
        if not is_error:
            # The new level is the usual one at once: else its slow learning would be called a drift back.
            self._rows["profile"][row, :, k] += np.float32(after)
        return Drifted(
            site, None if zone < 0 else zone, self.signals[k], is_error,
            (int(held[f"{side}_since"]) + 1) * self._an_hour, before=float(held["usual"]) if is_error else 0.0,
            after=after,
        )  # fmt: skip


_SIDES = ("up", "down")
_SUMS = tuple(f"{side}_sum" for side in _SIDES)
"""Departures since a drift that would be called now began."""
_KNOWN_HOURS = tuple(f"{side}_hours" for side in _SIDES)
"""How many hours they are of: one without a value counts in neither."""


def _with_known_hours(rows: Mapping[str, _Array]) -> Mapping[str, _Array]:
    """Adds these counts to the state of a release that kept none: all hours that passed stand for them.

    Raises ``ValueError`` if it does not fit.
    """
    if set(_KNOWN_HOURS) & set(rows):
        return rows
    if missing := {"hour", "up_since", "down_since"} - set(rows):
        raise ValueError(f"this state lacks {sorted(missing)}")
    passed = {f"{side}_hours": rows["hour"][:, None] - 1 - rows[f"{side}_since"] for side in _SIDES}
    return {**rows, **{name: np.maximum(hours, 0.0) for name, hours in passed.items()}}
