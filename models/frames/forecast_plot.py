"""A forecast as a picture: the median, the band around it, and what was measured before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from models.frames.forecast_frame import QUANTILE_COLUMNS
from models.frames.frame_samples import ONLY_ZONE, MetricMeaning, ZoneSamples, plausible
from models.psychrometrics import vpd_kpa

try:
    import matplotlib.pyplot as plt
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
except ModuleNotFoundError as error:
    raise ImportError("a plot needs matplotlib: pip install '.[library]' in Hothouse's folder") from error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

HISTORY = pd.Timedelta("48h")
"""How much of the past is drawn, at most."""

MEASURED, FORECAST = "#3b4a54", "#0072b2"


def draw(
    forecast: pd.DataFrame, history: Mapping[str, ZoneSamples] | None, metrics: Mapping[str, MetricMeaning],
    timezone: str, zone: str | None = None, target: str | None = None, ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """See :meth:`models.frames.FrameForecaster.plot`; raises ``ValueError`` where it is not clear what to draw."""
    if (
        not (isinstance(forecast, pd.DataFrame) and isinstance(forecast.index, pd.MultiIndex))
        or not set(QUANTILE_COLUMNS) <= set(forecast.columns)
        or list(forecast.index.names) != ["zone", "target", "time"]
    ):
        raise ValueError(
            "this is no forecast: give the frame that predict() returned, and say what to draw with zone= and target="
        )
    if forecast.empty:
        raise ValueError("the forecast has no row: no target was measured within the past day")
    zone, target = _chosen(forecast, "zone", zone), _chosen(forecast, "target", target)
    if (zone, target) not in forecast.index.droplevel("time"):
        raise ValueError(f"the forecast has no {target} of {zone}: choose another zone or target")
    lines = forecast.xs((zone, target), level=("zone", "target"))
    times = pd.DatetimeIndex(lines.index).tz_convert(timezone)
    if ax is None:
        _, ax = plt.subplots(figsize=(9, 4), layout="constrained")
    low, median, high = (lines[column].to_numpy() for column in QUANTILE_COLUMNS)
    if history is not None:
        _draw_history(ax, history, metrics, zone, target, times)
    ax.fill_between(times, low, high, color=FORECAST, alpha=0.2, linewidth=0, label="p10 to p90")
    ax.plot(times, median, color=FORECAST, marker="o", markersize=3, label="forecast (median)")
    locator = AutoDateLocator(tz=times.tz)  # type: ignore[no-untyped-call]  # matplotlib's dates have no types
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=times.tz))  # type: ignore[no-untyped-call]
    metric = metrics.get(target)
    ax.set_ylabel(f"{metric.label} ({metric.unit})" if metric is not None else "VPD (kPa)")
    ax.set_title("" if zone == ONLY_ZONE else zone, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.3)
    ax.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0, ncols=3)
    return ax


def _chosen(forecast: pd.DataFrame, level: str, name: str | None) -> str:
    there = [str(each) for each in forecast.index.unique(level)]
    if name is None and len(there) != 1:
        raise ValueError(f"the forecast has {len(there)} {level}s ({', '.join(there)}): say which with {level}=")
    if name is not None and name not in there:
        raise ValueError(f"the forecast has no {level} {name!r}: it has {', '.join(there)}")
    return there[0] if name is None else name


def _draw_history(
    ax: Axes, history: Mapping[str, ZoneSamples], metrics: Mapping[str, MetricMeaning], zone: str, target: str,
    times: pd.DatetimeIndex,
) -> None:  # fmt: skip
    if zone not in history:
        raise ValueError(f"the history has no zone {zone!r}: it has {', '.join(history)}")
    samples = history[zone]
    measured = pd.Series(
        _measured(samples, metrics, target),
        pd.DatetimeIndex(samples.times_ms.astype("datetime64[ms]"), tz="UTC").tz_convert(times.tz),
    ).dropna()
    measured = measured[measured.index >= times[0] - HISTORY]
    ax.plot(measured.index, measured, color=MEASURED, linewidth=1.2, label="measured")


def _measured(samples: ZoneSamples, metrics: Mapping[str, MetricMeaning], target: str) -> npt.NDArray[np.float64]:
    def column(name: str) -> npt.NDArray[np.float64]:
        return plausible(samples.values[:, list(metrics).index(name)], metrics[name])

    if target in metrics:
        return column(target)
    return np.asarray(vpd_kpa(column("air_temp_c"), column("rh_pct")), dtype=np.float64)
