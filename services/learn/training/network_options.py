"""Step 13 of the way of a reading: the settings of a training, as the training takes them."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from models.families import FAMILIES
from services.config import LearnSettings

if TYPE_CHECKING:
    from models.network.training import TrainingConfig

__all__ = ["NETWORK", "TUNABLE", "network_options", "training_config"]

NETWORK = ("hidden", "mixes", "dropout", "silence")
"""Settings of the network's shape. A network that was trained with others cannot be continued."""

TUNABLE = ("learning_rate", "weight_decay", *NETWORK)
"""Settings that ``hothouse tune`` looks for."""


def training_config(learn: LearnSettings, kind: str = "network") -> TrainingConfig:
    """Every setting that has the name of one of a training's options; the others are the training's own."""
    from models.network.pretrained_family import fine_tuning
    from models.network.training import TrainingConfig  # not above: a recipe is read without torch

    names = {field.name for field in fields(TrainingConfig)} & set(LearnSettings.model_fields)
    config = TrainingConfig(**{name: getattr(learn, name) for name in names})
    return fine_tuning(config, learn.fine_tuning_rate) if FAMILIES[kind].begins else config


def network_options(learn: LearnSettings) -> dict[str, Any]:
    """The arguments of :class:`models.network.quantile.QuantileNetwork` besides its spec."""
    return {name: getattr(learn, name) for name in NETWORK}
