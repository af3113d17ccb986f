"""Regime changes of the simulated greenhouse last, and do what they say."""

import numpy as np
import pytest

from edge.simulator.simulated_site import SimulatedSite

START_MS = 1_646_092_800_000  # 2022-03-01T00:00Z
DAY_MS = 86_400_000


def series(regime=None, metric="rh_pct", days=1):
    """A metric of every zone, ``[T, Z]``, from noon on the first day, when the regime changes."""
    site = SimulatedSite("s", 3, START_MS, zones=3, step_ms=900_000)
    for _ in site.instants(START_MS + DAY_MS // 2):
        pass
    if regime:
        site.change(regime)
    rows = [[readings[zone][metric] for zone in site.zones] for _, readings in site.instants(START_MS + days * DAY_MS)]
    return np.array(rows)


@pytest.mark.thorough
def test_screens_that_are_removed_stay_open():
    """Nights close no screen any more, and are colder for it."""
    assert series(metric="screen_energy_pct").max() > 50
    assert series("screens_removed", "screen_energy_pct")[8:].max() == 0
    assert series("screens_removed", "leaf_temp_c")[-16:].mean() < series(metric="leaf_temp_c")[-16:].mean()


@pytest.mark.thorough
def test_a_stuck_vent_stays_where_it_is():
    """The lee vents keep the position that they had, whatever the setpoints ask for."""
    assert np.ptp(series(metric="vent_lee_pct"), axis=0).min() > 1
    assert np.ptp(series("vent_stuck", "vent_lee_pct"), axis=0).max() == 0


@pytest.mark.thorough
def test_vents_stick_where_those_of_another_greenhouse_stand():
    """Two greenhouses are alike whenever their vents stuck."""
    at_noon, at_midnight = (SimulatedSite("s", 3, START_MS, zones=3, step_ms=900_000) for _ in range(2))
    for _ in at_noon.instants(START_MS + DAY_MS // 2):
        pass
    at_noon.change("vent_stuck")
    at_midnight.change("vent_stuck", like=at_noon)
    stuck = [next(site.instants(START_MS + DAY_MS))[1] for site in (at_noon, at_midnight)]
    lee = [[readings[zone]["vent_lee_pct"] for zone in at_noon.zones] for readings in stuck]
    assert lee[0] == lee[1]
    assert max(lee[0]) > 1


@pytest.mark.thorough
def test_a_young_crop_makes_drier_air():
    """Less leaf evaporates less."""
    assert series("crop_stage").mean() < series().mean() - 3


def test_an_unknown_regime_is_named():
    """What does not exist is refused."""
    with pytest.raises(ValueError, match="'flooded' is not a regime"):
        series("flooded")
