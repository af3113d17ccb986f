"""Which metrics are the weather's: a site has one weather, and all of its zones the same."""

from __future__ import annotations

__all__ = ["is_weather"]

_WEATHER = ("out_", "wind_", "rain")


def is_weather(metric: str) -> bool:
    """Whether a metric is measured outside. ``edge.wire.vocabulary``, which is not imported here, says the same.

    >>> [name for name in ("air_temp_c", "out_temp_c", "wind_dir_deg", "rain", "irrigation_l_m2") if is_weather(name)]
    ['out_temp_c', 'wind_dir_deg', 'rain']
    """
    return metric.startswith(_WEATHER)
