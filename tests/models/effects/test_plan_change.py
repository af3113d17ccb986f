"""A change of a plan: when it holds, and by how much it moves a metric."""

from __future__ import annotations

import numpy as np
import pytest

from models.effects.plan_change import GRID_MIN, HOWS, PlanChange


def test_it_holds_after_its_beginning_until_its_end() -> None:
    """The row that ends when it begins is as it was; parts of five minutes count as shares."""
    active = PlanChange("sp_heat_c", "add", 1.0, 10.0, 22.5).active()
    assert dict(zip(GRID_MIN[active > 0].tolist(), active[active > 0].tolist(), strict=True)) == {15: 1, 20: 1, 25: 0.5}


@pytest.mark.parametrize(
    ("how", "moved"), [("add", [16, 16, 16]), ("set", [6, -4, np.nan]), ("least", [6, 0, np.nan]),
                       ("most", [0, -4, np.nan])],
)  # fmt: skip
def test_it_moves_a_metric_from_what_is_usual(how: str, moved: list[float]) -> None:
    """Added always; set, at least and at most need to know from where."""
    usual = np.array([10, 20, np.nan], np.float32)
    np.testing.assert_array_equal(PlanChange("sp_heat_c", how, 16.0, 0, 60).moved(usual), moved)  # type: ignore[arg-type]


def test_what_makes_no_sense_is_refused() -> None:
    """With a sentence."""
    with pytest.raises(ValueError, match="'times' is no way to change a plan"):
        PlanChange("sp_heat_c", "times", 1.0, 0, 60)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ends before it has begun"):
        PlanChange("sp_heat_c", "add", 1.0, 60, 60)
    with pytest.raises(ValueError, match="has no number"):
        PlanChange("sp_heat_c", "add", np.nan, 0, 60)
    assert len(HOWS) == 4
