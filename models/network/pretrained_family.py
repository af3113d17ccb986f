"""Step 13 of the way of a reading: the family of networks that were pre-trained on a fleet, and their fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from models.families import Model
from models.network.pretrained import PretrainedNetwork
from models.network.residual_network import check_finite
from models.network.training import TrainingConfig, fit
from models.spec import ForecastSpec

if TYPE_CHECKING:
    from models.families import I64, Arrays
    from models.features.windows import WindowSet

__all__ = ["FINE_TUNING_RATE", "PretrainedFamily", "fine_tuning"]

FINE_TUNING_RATE = 5e-4
"""The highest rate of a training that goes on from a pre-trained network."""

_OPTIONS = ("shared", "silence", "noise", "dropout", "hidden")
_TRAINING = {field.name for field in fields(TrainingConfig)}


def fine_tuning(config: TrainingConfig, rate: float = FINE_TUNING_RATE) -> TrainingConfig:
    """``config`` for a training that goes on from a pre-trained network: it moves in small steps, and what it says
    counts in full however few days there are, for it was not learned from these alone.
    """
    return replace(config, learning_rate=rate, trust_days=0.0)


class PretrainedFamily:
    """See :class:`models.families.ModelFamily`. Without a ``start`` it learns from nothing, as any network."""

    refits = False

    def make(self, spec: ForecastSpec, options: Mapping[str, Any]) -> PretrainedNetwork:
        """A new network; ``options`` are its sizes, those that are left out have defaults."""
        network = PretrainedNetwork(spec, **{name: options[name] for name in _OPTIONS if name in options})
        network.eval()
        return network

    def fit(
        self, cases: WindowSet, origins: I64, settings: Mapping[str, Any], *, cut_ms: int, start: Model | None = None
    ) -> Model:
        """Fine-tune ``start`` for ``settings["epochs"]``; its sizes, where it is given, are those that count."""
        options = {**settings, **(start.options if start is not None else {})}
        config = TrainingConfig(**{name: value for name, value in settings.items() if name in _TRAINING})
        if start is not None:
            config = fine_tuning(config, settings.get("fine_tuning_rate", FINE_TUNING_RATE))
        fitted = fit(
            cases, origins, config, cut_ms=cut_ms, initial_state=None if start is None else start.arrays(),
            make=partial(_made, self, options),
        )  # fmt: skip
        return self.load(cases.spec, options, fitted.state)

    def load(self, spec: ForecastSpec, options: Mapping[str, Any], arrays: Arrays) -> PretrainedNetwork:
        """The network with these weights, which fit any schema; raises ``ValueError`` where one is not finite."""
        check_finite(arrays)
        network = self.make(spec, options)
        network.load_arrays(arrays)
        return network


def _made(
    family: PretrainedFamily, options: Mapping[str, Any], spec: ForecastSpec, config: TrainingConfig
) -> PretrainedNetwork:
    return family.make(spec, options)
