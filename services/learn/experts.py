"""Step 15 of the way of a reading: which experts of the mixture are registered models, and how each is trained.

An *expert* is a place in the mixture that models take turns in; a *kind* is what a model is made of. Any kind that
takes what the expert takes may hold the place. Each expert has a registered model in MLflow, with aliases, gate, shadow
and watch of its own, and all have them by the same code.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from models.families import takes_of
from models.online.corrections.tuned_correction import KEPT_DAYS
from models.trees.forest import GROW_DAYS
from services.config import LearnSettings
from services.errors import PromotionRefusedError

__all__ = [
    "EXPERTS",
    "LEAST_EXAMPLES",
    "NETWORK",
    "TREES",
    "TUNED",
    "Expert",
    "expert_for",
    "expert_in",
    "expert_of",
    "learn_settings",
    "number_of",
]

TREES_WINDOW_DAYS = 35.0
"""Trees are fitted on so much history: four weeks of examples, after one in which the learners before them settle."""

TUNED_MIN_DAYS = 2.0
"""With fewer days of examples a network is not fine-tuned."""

LEAST_EXAMPLES = 256
"""Nor with fewer of them before those that are held back: a batch of its training."""

TREES_COOL_DOWN_S = 120.0
"""Where too few zones make a history of days too short for trees, it is looked at this often."""


@dataclass(frozen=True, slots=True)
class Expert:
    """A place in the mixture. Versions of its models are called ``{prefix}1``, ``{prefix}2`` ..."""

    name: str
    takes: str  # of models.families.ModelFamily: what a model must take to hold the place
    registered: str  # its registered model in MLflow
    prefix: str
    reach_min: int = 0  # beyond this horizon it says what the climatology says; 0: it has an opinion on all

    def number(self, version: str) -> str:
        """MLflow's number of a version; raises :class:`PromotionRefusedError` if it is not one of this expert.

        >>> TREES.number("trees-v3"), NETWORK.number("v3")
        ('3', '3')
        """
        number = version.removeprefix(self.prefix)
        if number == version or not number.isdigit():
            raise PromotionRefusedError(f"{version!r} is not a model version", "`hothouse models list` shows them.")
        return number


NETWORK = Expert("network", "windows", "hothouse", "v")
TREES = Expert("trees", "examples", "hothouse-trees", "trees-v", reach_min=180)
TUNED = Expert("tuned", "forecasts", "hothouse-tuned", "tuned-v")
"""No expert of the mixture, but what corrects its forecast; its models are kept and moved as those of the others."""
EXPERTS = {expert.name: expert for expert in (NETWORK, TREES, TUNED)}


def expert_of(version: str) -> Expert | None:
    """The expert that a version belongs to; ``None`` if it belongs to none, as ``online`` does.

    >>> expert_of("trees-v3").name, expert_of("v3").name, expert_of("online")
    ('trees', 'network', None)
    """
    return next((one for one in EXPERTS.values() if version.removeprefix(one.prefix).isdigit()), None)


def expert_for(kind: str) -> Expert:
    """The expert whose place models of a kind take; raises :class:`models.families.UnknownFamilyError`."""
    takes = takes_of(kind)
    return next(one for one in EXPERTS.values() if one.takes == takes)


def expert_in(folder: str) -> Expert:
    """The expert that the artefact in a folder is for. If the folder cannot be read it is the network, whose loading
    then says why.
    """
    try:
        manifest = json.loads((Path(folder) / "manifest.json").read_bytes())
        return expert_for(manifest.get("kind", NETWORK.name))
    except (OSError, ValueError, AttributeError, TypeError):
        return NETWORK


def number_of(version: str) -> int:
    """The number that a version ends with: later ones are newer."""
    return int(version.rpartition("v")[2])


def learn_settings(learn: LearnSettings, expert: Expert) -> LearnSettings:
    """How an expert's models are trained and judged: the settings of networks, with what is another's for trees.

    Trees are trained by the days of the stream alone. They are always fitted anew, so that newer rows are what a
    challenger brings: it may be worse by a little, chance included, and is not asked to be better. So it is with the
    network that is fine-tuned; its share is learned online, so that held-back rows are proof enough.
    """
    if expert is NETWORK:
        return learn
    by_days = {"retrain_every_s": 0.0, "retrain_cron": "", "retrain_rows": 0, "retrain_on_drift": "never"}
    cool_down_s = max(learn.cool_down_s, TREES_COOL_DOWN_S)
    if expert is TUNED:
        return learn.model_copy(
            update={
                **by_days, "kind": "tuned", "retrain_days": learn.tuned_every_days, "min_days": TUNED_MIN_DAYS,
                "cool_down_s": cool_down_s, "window_days": float(KEPT_DAYS), "shadow_hours": 0.0, "watch_hours": 0.0,
            }
        )  # fmt: skip
    return learn.model_copy(
        update={
            **by_days, "kind": "trees", "retrain_days": learn.trees_every_days,
            # So that the twin, which does without the rows that are held back, has days enough.
            "min_days": GROW_DAYS / (1 - learn.held_back), "cool_down_s": cool_down_s,
            "window_days": TREES_WINDOW_DAYS, "gate_margin": -learn.trees_tolerance,
        }
    )  # fmt: skip
