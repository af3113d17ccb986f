"""Examples as shards would have kept them beside :func:`tests.services.learn.synthetic.write_history`."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.features.inputs import targets_of
from models.network.house_features import HouseFeatures
from models.network.tuned_network import CorrectionInputs
from models.online.corrections.house_memory import channels_of
from services.config import Settings
from services.forecast_spec import forecast_spec
from services.store.examples.shown_examples import KeptExamples, ShownExamples
from services.store.history import History
from tests.services.tuned import arrays

__all__ = ["WIDTH", "saying", "write_examples"]

WIDTH = 2.0
"""Of every interval."""


def write_examples(settings: Settings, zones: tuple[str, ...], low_by: float = 0.5, partition: int = 0) -> int:
    """Of all rows of the history whose truths are known, one an hour and zone: forecasts that are too low by so many
    widths, and nothing to see it by. Returns how many.
    """
    spec = forecast_spec(settings)
    table = History(settings.storage_folder, spec.channels, settings.stream.step_s).read()
    ends, names = table["end_ms"].to_numpy(), np.array(table["zone"].to_pylist())
    values = np.stack([table[name].to_numpy() for name in spec.channels], axis=-1)
    features = HouseFeatures(spec, channels_of(spec))
    h, kept = len(spec.horizons_min), []
    by_zone = {zone: (ends[names == zone], targets_of(values[names == zone], spec)) for zone in zones}
    length, every = len(by_zone[zones[0]][0]), 3_600_000 // spec.step_ms
    for at in range(0, length - max(spec.horizon_steps), every):
        truth = np.stack([y[at + np.array(spec.horizon_steps)] for _, y in by_zone.values()])  # [Z, H, M]
        baseline = truth[..., None] + np.float32([-low_by - 0.5, -low_by, -low_by + 0.5]) * np.float32(WIDTH)
        inputs = CorrectionInputs(
            np.zeros((len(zones), features.width), np.float16),
            np.zeros((len(zones), h, features.ahead_width), np.float16), baseline.astype(np.float32),
        )  # fmt: skip
        kept.append(KeptExamples("demo", int(by_zone[zones[0]][0][at]), zones, inputs))
    ShownExamples(settings.storage_folder, spec).put(partition, kept)
    return sum(map(len, kept))


def saying(bias: float, seen: list[Any] | None = None) -> Any:
    """What fine-tunes in no time: to a network that says so many widths more, whatever it is shown."""

    def tune(start: Any, spec: Any, examples: Any, config: Any) -> Any:
        if seen is not None:
            seen.append((examples, config))
        return arrays(bias)

    return tune
