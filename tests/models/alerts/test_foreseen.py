"""What scenarios say of a rule."""

from __future__ import annotations

import numpy as np

from models.alerts.alert_rule import AlertRule
from models.alerts.foreseen import foresee
from tests.models.alerts.tracks import track

COLD = AlertRule(name="cold", kind="frost", limit=4.0, hysteresis=0.5, keep_min=60, lead_h=6)


def ahead(*scenarios: list[float]) -> object:
    """Scenarios of the air from 00:30 on."""
    return track(len(scenarios[0]), start=30, air_temp_c=np.array(scenarios))


def test_the_chance_is_the_share_of_scenarios_with_an_event() -> None:
    """Its span is where they agree, and what speaks for it are their values then."""
    past = track(4, air_temp_c=8.0)
    warm, cold = [8.0] * 12, [8.0, 6.0, 3.0, 3.0, 2.0, 6.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0]
    found = foresee(COLD, past, ahead(warm, warm, cold, cold))
    assert found is not None
    assert (found.chance, found.is_now, found.first, found.last) == (0.5, False, 3, 5)
    assert found.inputs == {"air": 3.0}


def test_beyond_the_lead_nothing_counts() -> None:
    """A frost in seven hours is none of a rule of six."""
    found = foresee(COLD, track(4, air_temp_c=8.0), ahead([8.0] * 13 + [0.0] * 3))
    assert found is not None
    assert found.chance == 0


def test_an_event_that_goes_on_is_now() -> None:
    """Its inputs are those of now where no scenario says that it will last."""
    found = foresee(COLD, track(4, air_temp_c=np.array([8.0, 8.0, 3.0, 2.0])), ahead([8.0] * 12))
    assert found is not None
    assert found.is_now
    assert found.chance == 0
    assert found.inputs == {"air": 2.0}


def test_what_goes_on_is_said_with_its_inputs() -> None:
    """Also where half hours do not show it: rows between them do."""
    past, none = track(4, air_temp_c=4.2), ahead([8.0] * 12)
    assert foresee(COLD, past, none).inputs == {}  # type: ignore[union-attr]
    assert round(foresee(COLD, past, none, goes_on=True).inputs["air"], 1) == 4.2  # type: ignore[union-attr]


def test_an_event_needs_to_last_also_in_scenarios() -> None:
    """Half an hour of cold is none of a rule that asks for an hour; what began before now counts towards it."""
    rule = AlertRule(name="cold", kind="frost", limit=4.0, for_min=60)
    short = [3.0, 8.0, 8.0, 8.0]
    before, during = track(2, air_temp_c=8.0), track(2, air_temp_c=np.array([8.0, 3.0]))
    assert foresee(rule, before, ahead(short)).chance == 0  # type: ignore[union-attr]
    assert foresee(rule, during, ahead(short)).chance == 1  # type: ignore[union-attr]


def test_the_limit_is_the_one_that_holds_at_that_time() -> None:
    """That of the night where the event is likeliest then, that of now where none is foreseen."""
    rule = AlertRule(name="dry", kind="vpd_high", limit=1.6, night_limit=1.2)
    evening = track(4, start=16 * 60 + 30, air_temp_c=20.0, rh_pct=70.0)
    wet, dry = [70.0] * 6, [30.0] * 6
    found = [
        foresee(rule, evening, track(12, start=18 * 60 + 30, air_temp_c=20.0, rh_pct=np.array([humid])))
        for humid in (wet * 2, dry + wet, wet + dry)
    ]
    assert [(event.at, event.limit) for event in found if event] == [(0, 1.6), (1, 1.6), (7, 1.2)]


def test_nothing_known_is_nothing_said() -> None:
    """None, and not a chance of 0."""
    assert foresee(COLD, track(4), ahead([np.nan] * 4)) is None


def test_a_sensor_that_was_taken_away_is_not_foreseen() -> None:
    """Scenarios go on with what was usual; of a number of which nothing was read for a day nothing is said."""
    rule = AlertRule(name="full", kind="co2_high", limit=1000)
    usual = track(12, start=30, co2_ppm=np.full((2, 12), 1200))
    assert foresee(rule, track(48, air_temp_c=20.0), usual) is None
    read = np.where(np.arange(48) == 3, 800.0, np.nan)
    assert foresee(rule, track(48, co2_ppm=read), usual).chance == 1  # type: ignore[union-attr]
