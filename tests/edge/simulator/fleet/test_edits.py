"""Changes of setpoints by hand, as they act and as plans know them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge.simulator.fleet.draws import chance, draw_site
from edge.simulator.fleet.edits import FIELDS, How, SetpointEdit, SetpointEdits, bounded, draw_edits

NAMES = list(FIELDS)
USUAL = np.array([18.0, 21.0, 85.0, 700.0, 5.0, 30.0, 0.0, 0.0, 0.0])[:, None]


@pytest.mark.parametrize(
    ("how", "value", "found"), [("add", -1.5, 16.5), ("set", 12.0, 12.0), ("least", 19.0, 19.0), ("most", 19.0, 18.0)]
)
def test_an_edit_acts_after_its_begin_until_its_end(how: How, value: float, found: float) -> None:
    """The minute of its begin is as it was; that of its end is the last one."""
    edits = SetpointEdits([[SetpointEdit("sp_heat_c", 10, 20, how, value)]])
    heat = {minute: edits.applied(USUAL, minute)[0, 0] for minute in (9, 10, 11, 20, 21)}
    assert heat == {9: 18.0, 10: 18.0, 11: found, 20: found, 21: 18.0}


def test_edits_at_the_same_time_add_up_and_the_last_that_sets_counts() -> None:
    """An edit that ends leaves the others."""
    first, then = SetpointEdit("sp_heat_c", 0, 30, "add", 1.0), SetpointEdit("sp_heat_c", 5, 10, "add", 0.5)
    edits = SetpointEdits([[first, then, SetpointEdit("sp_lamp_pct", 5, 10, "set", 100.0)]])
    assert edits.applied(USUAL, 3)[0, 0] == 19.0
    both = edits.applied(USUAL, 8)
    assert (both[0, 0], both[NAMES.index("sp_lamp_pct"), 0]) == (19.5, 100.0)
    after = edits.applied(USUAL, 12)
    assert (after[0, 0], after[NAMES.index("sp_lamp_pct"), 0]) == (19.0, 0.0)


def test_a_plan_knows_what_is_planned_or_has_begun() -> None:
    """In the middle of each half-hour; what nobody has thought of is not in it."""
    edits = SetpointEdits([[
        SetpointEdit("sp_heat_c", 100, 130, "add", 1.0, planned=True),
        SetpointEdit("sp_vent_c", 100, 160, "add", 1.0),
        SetpointEdit("sp_rh_pct", 20, 80, "add", -5.0),
    ]])  # fmt: skip
    said = edits.planned(np.repeat(USUAL[None], 6, axis=0), np.array([30]), 30)
    assert said[:, 0, 0].tolist() == [18.0, 18.0, 19.0, 18.0, 18.0, 18.0]
    assert (said[:, 1, 0] == 21.0).all()
    assert said[:, 2, 0].tolist() == [80.0, 80.0, 85.0, 85.0, 85.0, 85.0]


def test_setpoints_stay_possible() -> None:
    """Percents within 0 and 100, vents above the heating, no lamps where there are none."""
    allowed = np.ones((len(FIELDS), 1))
    allowed[NAMES.index("sp_lamp_pct")] = 0.0
    found = bounded(USUAL + np.array([9.0, 0.0, 40.0, -900.0, 120.0, 90.0, 100.0, -5.0, 0.0])[:, None], allowed)
    assert found[:, 0].tolist() == [27.0, 27.3, 100.0, 0.0, 100.0, 90.0, 0.0, 0.0, 0.0]


def test_a_change_that_makes_no_sense_is_refused() -> None:
    """With a sentence that names what is wrong."""
    with pytest.raises(ValueError, match="'air_temp_c' is no setpoint"):
        SetpointEdit("air_temp_c", 0, 10, "add", 1.0)
    with pytest.raises(ValueError, match="ends at minute 10, before it has begun"):
        SetpointEdit("sp_heat_c", 10, 10, "add", 1.0)


def test_drawn_edits_do_not_follow_the_hour() -> None:
    """Begins spread over the day; both signs, many sizes and lengths; no size that goes with the hour."""
    site = draw_site(1, 0)
    zone = replace(site.zones[0], setpoint_edits_a_day=3.0)
    edits = [edit for n in range(40) for edit in draw_edits(chance(5, n), zone, 20 * 1440, 0.7)]
    begins = np.array([edit.begin_min % 1440 for edit in edits])
    share = np.histogram(begins, bins=24, range=(0, 1440))[0] / len(begins)
    assert share.min() > 0.03
    assert share.max() < 0.055
    heat = [edit for edit in edits if edit.metric == "sp_heat_c"]
    sizes, lengths = np.array([e.value for e in heat]), np.array([e.end_min - e.begin_min for e in heat])
    assert abs((sizes > 0).mean() - 0.5) < 0.06
    assert np.percentile(abs(sizes), [10, 90]) == pytest.approx([1.0, 4.0], rel=0.5)
    assert np.percentile(lengths, 10) < 60 < 480 < np.percentile(lengths, 90)
    hours = np.array([e.begin_min % 1440 // 60 for e in heat])
    assert abs(np.corrcoef(np.cos(hours * np.pi / 12), sizes)[0, 1]) < 0.1
    assert 0.6 < np.mean([edit.planned for edit in edits]) < 0.8
