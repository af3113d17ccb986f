"""Regime changes of a simulated greenhouse: changes that last, after which the past is a bad guide."""

from __future__ import annotations

from typing import Literal, get_args

from edge.simulator.greenhouse import Greenhouse

__all__ = ["REGIMES", "Regime", "change_regime"]

Regime = Literal["screens_removed", "vent_stuck", "crop_stage"]
REGIMES: tuple[Regime, ...] = get_args(Regime)

NEXT_STAGE_LEAF_AREA = 0.3
"""Share of the leaf area after a young crop has replaced an old one."""


def change_regime(greenhouse: Greenhouse, regime: Regime, like: Greenhouse | None = None) -> None:
    """From now on, in all zones: the screens are gone, the lee vents stay where they are, or the crop is young.

    With ``like``, a greenhouse of the same zones, vents stick where its own stand now. Setpoints stay: climate computer
    and grower know nothing of it. Raises ``ValueError`` for an unknown regime.
    """
    if regime == "screens_removed":
        greenhouse.controller.has_screens = False
    elif regime == "vent_stuck":
        greenhouse.controller.lee_vents_move = False
        if like is not None:
            greenhouse.controller.actuators.vent_lee = like.controller.actuators.vent_lee.copy()
    elif regime == "crop_stage":
        greenhouse.house.replant(NEXT_STAGE_LEAF_AREA)
    else:
        raise ValueError(f"{regime!r} is not a regime; one of {', '.join(REGIMES)}")
