"""Step 7 of the way of a reading: closed steps -> one request to the Forecaster, its reply -> what is published."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from models.durations import MINUTE_MS
from models.features.inputs import targets_of
from models.features.regressors import HOLD_MS
from models.features.report_gaps import silent_after_s
from models.online.basis import EXPERTS, Basis
from models.online.online_forecaster import OnlineForecaster
from models.paths.steps import path_steps
from models.spec import ForecastSpec
from services.ingest.learned.rings import Rings
from services.ingest.readings import Readings, inputs_of, readings_of_row
from services.messages import DECIMALS, ForecastPath, ForecastPoint, ForecastRequest, ZoneForecast, ZoneMixture
from services.observe.duration import in_words, utc_text
from services.store.rows import SiteStep

__all__ = [
    "MAX_ORIGINS",
    "STALE_AFTER_S",
    "ForecastOrigin",
    "build_request",
    "degraded_reasons",
    "zone_forecasts",
    "zone_mixtures",
]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

MAX_ORIGINS = 12
"""How many steps of a site may wait for their forecast; older ones are left out."""
STALE_AFTER_S = 900
"""A forecast is degraded when an input of its target is older than this, or than two steps if they are longer.

An input that usually comes less often is given its own time, but no longer than its last value holds."""


@dataclass(frozen=True, slots=True)
class ForecastOrigin:
    """A closed step of a site, with all that a forecast from it needs besides the rings; ``Z`` zones."""

    partition: int
    site: str
    end_ms: int
    zones: tuple[str, ...]
    indices: I64  # [Z], the zones' places in the partition's rings
    values: F32  # [Z, C]
    ages_s: F32  # [Z, C]
    baseline: F32  # [Z, H, M, Q], the climatology's forecast
    day_bin: I64  # [Z]
    experts: F32  # [Z, H, M, K]; the network's place is NaN
    faults: Sequence[Sequence[str]] = ()  # [Z]

    @property
    def step(self) -> SiteStep:
        """The closed step, without its devices."""
        return SiteStep(
            self.partition, self.site, self.end_ms, self.zones, self.values, self.ages_s, faults=self.faults
        )  # fmt: skip

    def basis(self, step_ms: int) -> Basis:
        """What the forecast is mixed from."""
        return Basis(self.end_ms // step_ms, self.indices, self.day_bin, self.experts)


def build_request(
    spec: ForecastSpec, origins: Sequence[ForecastOrigin], rings: Sequence[Rings], with_rows: bool
) -> ForecastRequest:
    """One request for all zones of all ``origins``, in their order; ``rings[i]`` are those of ``origins[i]``.

    Only a network needs rows, and they are nearly all of a request: 225 KB a zone with rows of a minute.
    """
    length = spec.lookback_steps if with_rows else 0
    windows, origin_ms, sites = [], [], []
    for origin, ring in zip(origins, rings, strict=True):
        at = np.full(len(origin.zones), origin.end_ms, np.int64)
        windows.append(ring.window(origin.indices, at, length))
        origin_ms.append(at)
        sites += [origin.site] * len(origin.zones)
    return ForecastRequest(
        schema_hash=spec.hash, sites=sites, values=np.concatenate(windows), origin_ms=np.concatenate(origin_ms),
        baseline=np.concatenate([origin.baseline for origin in origins]),
    )  # fmt: skip


def zone_forecasts(
    spec: ForecastSpec, origin: SiteStep, version: str, quantiles: F32, path: F32 | None = None,
    readings: Readings | None = None,
) -> list[ZoneForecast]:  # fmt: skip
    """The forecasts to publish: ``quantiles [Z, H, M, Q]`` from the step ``origin``, without targets that cannot be
    forecast at all; with their ``path [Z, T, M, Q]`` and the newest ``readings`` where they are given.
    """
    readings = readings or readings_of_row(spec, origin)
    sources = {target: inputs_of(spec, target) for target in spec.targets}
    now, targets_now = _numbers(readings.values), _numbers(targets_of(readings.values, spec))
    ages_s, freshness_s = np.rint(readings.ages_s).astype(np.int64).tolist(), _numbers(origin.ages_s)
    forecasts = _forecasts(spec, origin.end_ms, quantiles)
    paths = None if path is None else _paths(spec, path)
    columns = [spec.channels.index(channel) for channel in inputs_of(spec)]
    is_late = np.asarray((origin.ages_s[:, columns] > _least_s(spec)).any(axis=1))
    published = []
    for z, zone in enumerate(origin.zones):
        known = dict(zip(spec.channels, now[z], strict=True)) | dict(zip(spec.targets, targets_now[z], strict=True))
        ages = dict(zip(spec.channels, ages_s[z], strict=True))
        ages.update({target: max(ages[channel] for channel in sources[target]) for target in spec.targets})
        late = degraded_reasons(spec, origin.ages_s[z], readings.gaps_s[z]) if is_late[z] else ()
        published.append(
            ZoneForecast(
                site=origin.site, zone=zone, origin_ms=origin.end_ms, origin=utc_text(origin.end_ms),
                step_s=spec.step_ms // 1000, model_version=version, now=known,
                now_age_s={metric: age_s for metric, age_s in ages.items() if age_s and known[metric] is not None},
                degraded=[*late, *(origin.faults[z] if origin.faults else ())],
                reports_every_s=int(readings.zone_gaps_s[z]),
                freshness_s=dict(zip(spec.channels, freshness_s[z], strict=True)), forecasts=forecasts[z],
            )
        )  # fmt: skip
        if paths is not None:
            horizon_min, bands = paths
            said = {target: bands[z][target] for target in forecasts[z]}
            published[-1]["path"] = ForecastPath(horizon_min=horizon_min, targets=said)
    return published


def zone_mixtures(
    forecaster: OnlineForecaster, spec: ForecastSpec, origin: ForecastOrigin, version: str, network: F32,
    zones: Collection[str],
) -> list[ZoneMixture]:  # fmt: skip
    """What the issued forecast of an origin was mixed from, of these of its zones, without the trees' version."""
    weights = forecaster.weights(origin.basis(spec.step_ms), network)  # [Z, H, M, K]
    answered = weights.any(axis=-1).sum(axis=2)  # a target of which a zone has no forecast has no mixture
    weights = weights.sum(axis=2) / np.maximum(answered, 1)[..., None]  # [Z, H, K]
    found = []
    for z, zone in enumerate(origin.zones):
        if zone not in zones:
            continue
        shares = {
            expert: dict(zip(map(str, spec.horizons_min), weights[z, :, k].round(4).tolist(), strict=True))
            for k, expert in enumerate(EXPERTS)
            if weights[z, :, k].any()
        }
        found.append(ZoneMixture(
            site=origin.site, zone=zone, origin_ms=origin.end_ms, serving={"network": version}, weights=shares
        ))  # fmt: skip
    return found


def degraded_reasons(spec: ForecastSpec, ages_s: F32, gaps_s: I64) -> list[str]:
    """Why a zone's forecast is weaker than it should be, a sentence a channel; ``ages_s [C]``. That a channel was never
    read is no reason: not every zone has each sensor, and what it lacks weakens no forecast of the others.

    ``gaps_s [K]`` is how often the targets' inputs usually come, as ``report_gaps_s`` gives it.
    """
    least_s = _least_s(spec)
    most_s = max(least_s, (HOLD_MS + spec.step_ms) // 1000)
    reasons = []
    for channel, gap_s in zip(inputs_of(spec), gaps_s.tolist(), strict=True):
        age_s = float(ages_s[spec.channels.index(channel)])
        if age_s > min(silent_after_s(gap_s, least_s), most_s):
            reasons.append(f"{channel}: last reading {in_words(age_s)} before the origin")
    return reasons


def _least_s(spec: ForecastSpec) -> int:
    """An input that is no older weakens no forecast, however often it comes."""
    return max(STALE_AFTER_S, 2 * spec.step_ms // 1000)


def _forecasts(spec: ForecastSpec, end_ms: int, quantiles: F32) -> list[dict[str, list[ForecastPoint]]]:
    """Target -> its points, of each zone; a zone lacks targets that cannot be forecast at each horizon."""
    times = [end_ms + horizon * MINUTE_MS for horizon in spec.horizons_min]
    at = [(horizon, ms, utc_text(ms)) for horizon, ms in zip(spec.horizons_min, times, strict=True)]
    can_be = np.asarray(np.isfinite(quantiles).all(axis=(1, 3)))  # [Z, M]
    said = _rounded(quantiles).swapaxes(1, 2).tolist()  # [Z, M, H, Q]
    return [
        {
            target: [
                # A TypedDict that is called takes twice the time, and there are forty points a zone.
                {"horizon_min": horizon, "time_ms": ms, "time": time, "p10": p10, "p50": p50, "p90": p90}
                for (horizon, ms, time), (p10, p50, p90) in zip(at, said[z][m], strict=True)
            ]
            for m, target in enumerate(spec.targets) if can_be[z, m]
        }
        for z in range(len(quantiles))
    ]  # fmt: skip


def _paths(spec: ForecastSpec, path: F32) -> tuple[list[int], list[dict[str, dict[str, list[float]]]]]:
    """The path's minutes, and of each zone target -> p10, p50, p90."""
    minutes: list[int] = (path_steps(spec) * spec.step_ms // MINUTE_MS).tolist()
    said = _rounded(path).transpose(0, 2, 3, 1).tolist()  # [Z, M, Q, T]
    bands = [
        {
            target: dict(zip(("p10", "p50", "p90"), of, strict=True))
            for target, of in zip(spec.targets, zone, strict=True)
        }
        for zone in said
    ]
    return minutes, bands


def _rounded(values: F32) -> npt.NDArray[np.float64]:
    exact: npt.NDArray[np.float64] = np.asarray(values, np.float64)  # else digits of single precision would be shown
    return np.round(exact, DECIMALS)


def _numbers(values: F32) -> list[list[float | None]]:
    """Rows of numbers; JSON knows no NaN."""
    numbers = _rounded(values).astype(object)
    numbers[~np.isfinite(values)] = None
    rows: list[list[float | None]] = numbers.tolist()
    return rows
