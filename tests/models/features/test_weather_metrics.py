"""What is said to be the weather's in two places, because neither may import the other."""

from __future__ import annotations

import edge.wire.vocabulary
from edge.simulator.simulated_site import WEATHER_METRICS
from edge.wire.vocabulary import VOCABULARY
from models.features.weather_metrics import is_weather


def test_devices_and_models_agree_on_what_is_the_weathers() -> None:
    """For every metric of the vocabulary and a second sensor of it; the simulated station measures all of them."""
    names = [name for metric in VOCABULARY for name in (metric, f"{metric}.2")]
    assert [name for name in names if is_weather(name)] == [n for n in names if edge.wire.vocabulary.is_weather(n)]
    assert {name for name in VOCABULARY if is_weather(name)} == set(WEATHER_METRICS)
