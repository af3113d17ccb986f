"""Step 7 of the way of a reading: joint scenarios of paths, whose errors belong together as past ones did.

Each time of a path has a distribution of its own, through p10, p50 and p90. A scenario takes one value of each. Which
values belong together is what a set of templates says: past days' errors where the zone has them (the Schaake shuffle,
Clark and others 2004, with errors of forecasts in place of observations, as in ensemble copula coupling, Schefzik,
Thorarinsdottir and Gneiting 2013), and for the rest draws of a stated dependence: a Gaussian copula with errors that
fade out over time and are partly the same in all zones. In a zone's first days errors fade out slowly: what is off
then is a level, which nobody knows yet. Only the templates' ranks count, so each time's distribution stays what the
path says. VPD follows from air temperature and humidity: its values are in the order of what theirs make.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from models.durations import HOUR_MS
from models.psychrometrics import vpd_kpa
from models.spec import ForecastSpec

__all__ = ["SCENARIOS", "SETTLED_DAYS", "days_known", "quantile_at", "scenarios", "seed_of"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

SCENARIOS = 100

FADING_MS, FADING_FIRST_MS = 6 * HOUR_MS, 24 * HOUR_MS
"""The stated dependence: two errors this far apart in time have a correlation of 1 / e; the second is that of zones
without a past, and holds ..."""

FIRST_DAYS, SETTLED_DAYS = 3.0, 9.0
"""... up to so many past days; from so many on the first does, and between them what lies between."""

ROWS_A_DAY = 2
"""Templates that are taken from one past day."""

SHARED = 0.25
"""Errors of two zones of a site have a correlation of this."""

P90_NORMAL = 1.2816
"""p90 of a standard normal distribution."""


def seed_of(*names: str | int) -> int:
    """A seed that depends on nothing else: the same origin has the same scenarios, wherever they are made."""
    return int.from_bytes(hashlib.sha256(repr(names).encode()).digest()[:8])


def scenarios(
    path: F32, steps: I64, templates: F32, template_steps: I64, seed: tuple[str, int], zones: Sequence[str],
    spec: ForecastSpec,
) -> F32:  # fmt: skip
    """``path [Z, T, M, Q]`` -> ``[SCENARIOS, Z, T, M]``, within what is physically possible.

    ``steps [T]`` ahead; ``templates [R, Z, J, M]`` are past errors as of :class:`models.paths.past_errors.PastErrors`
    at ``template_steps [J]``, NaN where unknown. ``seed`` is the site and the origin: the zones of a site are drawn
    together, each the same whichever are asked for.

    >>> spec = ForecastSpec(channels=("air_temp_c",), targets=("air_temp_c",))
    >>> path = np.array([[[[18.0, 20.0, 21.0]], [[17.0, 20.0, 22.0]]]], dtype=np.float32)
    >>> none = np.empty((0, 1, 1, 1), dtype=np.float32)
    >>> drawn = scenarios(path, np.array([6, 12]), none, np.array([6]), ("s", 0), ["z"], spec)
    >>> drawn.shape, np.quantile(drawn[:, 0, 1, 0], [0.1, 0.5, 0.9]).round().tolist()
    ((100, 1, 2, 1), [17.0, 20.0, 22.0])
    >>> scenarios(path, np.array([6, 12]), none[:, :, :0], np.array([], np.int64), ("s", 0), ["z"], spec).shape
    (100, 1, 2, 1)
    """
    rank_of = _stated(steps, seed, zones, path.shape[2], spec.step_ms / _fading_ms(templates))
    if len(template_steps):  # forecasts that end within the hour have no time at which errors are kept
        past = _at(templates[:SCENARIOS], template_steps, steps)
        rank_of[: len(past)] = np.where(np.isfinite(past), past, rank_of[: len(past)])
    low, high = (np.array(side, dtype=np.float32) for side in zip(*spec.limits, strict=True))
    drawn = np.clip(_in_order(np.argsort(rank_of, axis=0, kind="stable"), path), low, high)
    if {"air_temp_c", "rh_pct", "vpd_kpa"} <= set(spec.targets) and "vpd_kpa" not in spec.channels:
        air, humidity, m = (spec.targets.index(name) for name in ("air_temp_c", "rh_pct", "vpd_kpa"))
        made = vpd_kpa(drawn[..., air], drawn[..., humidity])
        # Where air is saturated it is 0 in many scenarios: these keep the order in which VPD itself was drawn.
        order = np.lexsort((drawn[..., m], made), axis=0)
        drawn[..., m] = np.clip(_in_order(order, path[:, :, m]), low[m], high[m])
    return np.asarray(drawn, dtype=np.float32)


def quantile_at(path: F32, level: float) -> F32:
    """Any quantile of forecasts ``[..., Q]``, as scenarios have them: ``[...]``.

    >>> said = np.array([18.0, 20.0, 21.0])
    >>> [round(float(quantile_at(said, level)), 2) for level in (0.1, 0.25, 0.5, 0.9, 0.95)]
    [18.0, 19.0, 20.0, 21.0, 21.34]
    """
    return np.asarray(_value(path, _scaled(np.array(level))), dtype=np.float32)


def days_known(templates: F32) -> npt.NDArray[np.float64]:
    """Of how many past days zones have errors, ``[R, Z, J, M] -> [Z]``.

    >>> days_known(np.array([[[[0.5]], [[np.nan]]], [[[0.1]], [[0.2]]]], dtype=np.float32)).tolist()
    [1.0, 0.5]
    """
    return np.asarray(np.isfinite(templates).any(axis=(2, 3)).sum(axis=0) / ROWS_A_DAY)


def _in_order(order: I64, path: F32) -> F32:
    """Values of ``path [..., Q]`` at evenly spaced levels: ``order [SCENARIOS, ...]`` names the scenario that gets the
    smallest, then the others, as ``argsort`` does.
    """
    rank = np.argsort(order, axis=0, kind="stable")
    return _value(path, _scaled((np.arange(SCENARIOS) + 0.5) / SCENARIOS)[rank])


def _scaled(level: npt.NDArray[np.float64]) -> F32:
    """How far a quantile lies from the median, in distances to p10 or p90: of a logistic distribution, whose tails are
    longer than a normal one's, as those of forecasts are.
    """
    return np.asarray(np.log(level / (1 - level)) / np.log(9), dtype=np.float32)


def _value(path: F32, scaled: F32) -> F32:
    p10, p50, p90 = np.moveaxis(path, -1, 0)
    return np.asarray(p50 + np.where(scaled > 0, p90 - p50, p50 - p10) * scaled)


def _fading_ms(templates: F32) -> npt.NDArray[np.float64]:
    """How slowly errors fade out by the stated dependence, ``[Z]``, of zones with these templates."""
    settled = np.clip((days_known(templates) - FIRST_DAYS) / (SETTLED_DAYS - FIRST_DAYS), 0, 1)
    return np.asarray(FADING_FIRST_MS * (FADING_MS / FADING_FIRST_MS) ** settled)


def _stated(
    steps: I64, seed: tuple[str, int], zones: Sequence[str], targets: int, step: npt.NDArray[np.float64]
) -> F32:
    """Draws of the stated dependence, ``[SCENARIOS, Z, T, M]``; 1 is the distance to p90. ``step [Z]`` is one in shares
    of the time over which errors fade out.
    """
    shape = (SCENARIOS, len(steps), targets)
    shared = np.random.default_rng(seed_of(*seed)).standard_normal(shape, dtype=np.float32)
    own = [np.random.default_rng(seed_of(*seed, zone)).standard_normal(shape, dtype=np.float32) for zone in zones]
    drawn = np.float32(np.sqrt(1 - SHARED)) * np.stack(own, axis=1) + np.float32(np.sqrt(SHARED)) * shared[:, None]
    keep = np.exp(-np.diff(steps, prepend=steps[:1])[:, None] * step).astype(np.float32)[..., None]
    for t in range(1, len(steps)):
        drawn[:, :, t] = keep[t] * drawn[:, :, t - 1] + np.sqrt(1 - keep[t] ** 2) * drawn[:, :, t]
    return np.asarray(drawn / np.float32(P90_NORMAL))


def _at(templates: F32, known: I64, steps: I64) -> F32:
    """Templates at other times, on a line between those there are: ``[R, Z, T, M]``."""
    after = np.clip(np.searchsorted(known, steps), 1, max(len(known) - 1, 1))
    if len(known) == 1:
        return np.repeat(templates, len(steps), axis=2)
    share = np.clip((steps - known[after - 1]) / (known[after] - known[after - 1]), 0, 1).astype(np.float32)[:, None]
    before = templates[:, :, after - 1]
    # At a time that is known, what is unknown beside it does not count.
    line = np.where(share == 0, before, before + share * (templates[:, :, after] - before))
    return np.asarray(np.where(share == 1, templates[:, :, after], line))
