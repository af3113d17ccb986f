"""Quantiles become a DataFrame: one line a zone, target and time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from models.spec import QUANTILES

__all__ = ["QUANTILE_COLUMNS", "forecast_frame"]

QUANTILE_COLUMNS = tuple(f"p{round(100 * level)}" for level in QUANTILES)


def forecast_frame(
    zones: Sequence[str], targets: Sequence[str], times_ms: npt.NDArray[np.int64], timezone: str,
    quantiles: npt.NDArray[np.float32],
) -> pd.DataFrame:  # fmt: skip
    """``quantiles [Z, T, M, Q]`` at the times ``[T]`` as a frame in the order of its index; what is NaN is left out.

    >>> times = np.array([1646136000000])
    >>> quantiles = np.array([[[[17.5, 18, 19]]]], dtype=np.float32)
    >>> made = forecast_frame(["north"], ["air_temp_c"], times, "Europe/Amsterdam", quantiles)
    >>> made  # doctest: +NORMALIZE_WHITESPACE
                                                  p10   p50   p90
    zone  target     time
    north air_temp_c 2022-03-01 13:00:00+01:00  17.5  18.0  19.0
    """
    time = pd.DatetimeIndex(times_ms.astype("datetime64[ms]"), tz="UTC").tz_convert(timezone)
    index = pd.MultiIndex.from_product([zones, targets, time], names=["zone", "target", "time"])
    values = quantiles.transpose(0, 2, 1, 3).reshape(-1, len(QUANTILE_COLUMNS))
    return pd.DataFrame(values.astype(np.float64), index, QUANTILE_COLUMNS).dropna().sort_index()
