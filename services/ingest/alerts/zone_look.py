"""Step 9 of the way of a reading: what alert rules get of a site's zones: the past day, and scenarios of the next.

The scenarios here are those of the learners alone, without a network. So they are a function of rows and of forecasts
that were kept, and a shard that reads its log again gets the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from models.alerts.alert_desk import Clock
from models.alerts.foreseen import STEP_MS
from models.alerts.rule_watch import METRICS, SiteAhead, with_held
from models.durations import DAY_MS, MINUTE_MS
from models.features.inputs import day_bins
from models.features.regressors import HOLD_MS
from models.features.weather_metrics import is_weather
from models.online.basis import Basis
from models.online.online_forecaster import OnlineForecaster
from models.paths.paths import Paths
from models.spec import ForecastSpec, Place
from services.ingest.learned.rings import Rings
from services.ingest.learned.signal_watch import SignalWatch
from services.ingest.paths.outlook import night_at
from services.ingest.plans.intake import PartitionPlans
from services.messages import F32
from services.store.rows import SiteStep

__all__ = ["PartitionView", "can_foresee", "clock_of", "known_share", "look_at", "rows_of_day", "silent_since"]

Bool = npt.NDArray[np.bool_]

AIR = "air_temp_c"


class PartitionView(NamedTuple):
    """What rules read of a partition; they change none of it."""

    forecaster: OnlineForecaster
    paths: Paths
    rings: Rings
    plans: PartitionPlans
    watch: SignalWatch
    latest: Mapping[str, SiteStep]
    bases: Mapping[str, Basis]


def can_foresee(spec: ForecastSpec) -> bool:
    """Whether rules of the climate can be watched: they need air and humidity, and rows that fill half hours."""
    return {AIR, "rh_pct"} <= set(spec.targets) and STEP_MS % spec.step_ms == 0


def rows_of_day(view: PartitionView, spec: ForecastSpec, step: SiteStep, zones: Sequence[str]) -> F32:
    """The rows ``[Z, L, C]`` of the day that ends with a step, of zones that have rows, as rules read them."""
    indices = np.array([view.rings.index(step.site, zone) for zone in zones])
    rows = view.rings.window(indices, np.full(len(zones), step.end_ms, np.int64), spec.steps_per_day)
    return with_held(rows, spec)


def look_at(view: PartitionView, spec: ForecastSpec, place: Place, site: str, zones: Sequence[str]) -> SiteAhead | None:
    """Scenarios of these zones for the time ahead, drawn from the site's newest step.

    ``None`` until the site's next row if what was learned of the site was lost.
    """
    step, basis = view.latest[site], view.bases.get(site)
    if basis is None or basis.step != step.end_ms // spec.step_ms:
        return None
    where = {zone: z for z, zone in enumerate(step.zones)}
    at = np.array([where[zone] for zone in zones])
    mine = Basis(basis.step, basis.zones[at], basis.day_bin[at], basis.experts[at])
    knots = view.paths.knots
    path = view.forecaster.path(mine.zones, mine.step, mine.day_bin, view.forecaster.quantiles(mine), knots)
    drawn = view.paths.scenarios(mine.zones, mine.step, int(mine.day_bin[0]), path, site, zones)
    times = np.flatnonzero(knots.steps % (STEP_MS // spec.step_ms) == 0)
    back, ahead = np.arange(1 - spec.steps_per_day, 1), knots.steps[times]
    is_night, minute_ms = night_at(place, step.end_ms, spec), spec.step_ms / MINUTE_MS
    minutes = [
        (day_bins(place, step.end_ms + steps * spec.step_ms, spec) * minute_ms).astype(np.int64)
        for steps in (back, ahead)
    ]
    half_hour, late_ms = divmod(step.end_ms, STEP_MS)
    return SiteAhead(
        half_hour, {target: drawn[:, :, times, m] for m, target in enumerate(spec.targets)},
        (is_night(back), is_night(ahead)), (minutes[0], minutes[1]), late_ms,
    )  # fmt: skip


def known_share(rows: F32, spec: ForecastSpec) -> F32:
    """The share of the day of which anything that rules read in a zone is known, ``[Z]``: where the thermometer fails
    CO₂ is still watched.
    """
    return np.asarray(_known(rows, spec).mean(axis=1))


def silent_since(rows: F32, spec: ForecastSpec, end_ms: int, zones: Sequence[str]) -> dict[str, int]:
    """When something of what rules read was last read, of zones where that is over an hour ago, but no day; ``rows
    [Z, L, C]`` end with ``end_ms`` and are as :func:`rows_of_day` gives them.
    """
    known, held_ms = _known(rows, spec), HOLD_MS - HOLD_MS % spec.step_ms
    back = np.where(known.any(axis=1), known[:, ::-1].argmax(axis=1), 0)
    return {zones[z]: end_ms - int(back[z]) * spec.step_ms - held_ms for z in np.flatnonzero(back).tolist()}


def _known(rows: F32, spec: ForecastSpec) -> Bool:
    """In which rows anything that rules read in a zone is known, ``[Z, L]``."""
    columns = [spec.channels.index(name) for name in METRICS if name in spec.channels and not is_weather(name)]
    return np.asarray(np.isfinite(rows[:, :, columns]).any(axis=2))


def clock_of(place: Place, now_ms: int) -> Clock:
    """Times as people at the site write them, with their date where they are a day before ``now_ms`` or more."""
    zone = ZoneInfo(place.timezone)

    def written(ms: int) -> str:
        form = "%Y-%m-%d %H:%M" if now_ms - ms >= DAY_MS else "%H:%M"
        return datetime.fromtimestamp(ms / 1000, UTC).astimezone(zone).strftime(form)

    return written
