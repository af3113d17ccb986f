"""Forecasts of your own DataFrames, without a running system: pandas in, pandas out (docs/library.md)."""

try:
    import pandas as pd  # noqa: F401  # asked for here, so that who lacks it reads one sentence
except ModuleNotFoundError as error:
    raise ImportError("models.frames needs pandas: pip install '.[library]' in Hothouse's folder") from error

from models.frames.frame_forecaster import FrameForecaster
from models.frames.frame_samples import MetricMeaning

__all__ = ["FrameForecaster", "MetricMeaning"]
