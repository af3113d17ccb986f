"""The numbers that rules watch."""

from __future__ import annotations

import numpy as np
import pytest

from models.alerts.alert_rule import COURSES, AlertRule
from models.alerts.measures import evidence, margin, measure
from models.psychrometrics import dew_point_c
from tests.models.alerts.tracks import track


def rule(kind: str, **said: object) -> AlertRule:
    """A rule of this kind."""
    return AlertRule(name="a rule", kind=kind, **said)  # type: ignore[arg-type]


def test_a_margin_is_positive_on_the_bad_side() -> None:
    """Frost is below its limit, heat above."""
    air = track(2, air_temp_c=np.array([1.0, 5.0]))
    assert margin(rule("frost", limit=3.0), air).tolist() == [2.0, -2.0]
    assert margin(rule("heat", limit=3.0), air).tolist() == [-2.0, 2.0]


def test_a_limit_of_the_night_holds_at_night() -> None:
    """VPD of 1.2 kPa is too much by night alone."""
    climate = track(2, start=6 * 60 + 45, air_temp_c=20.0, rh_pct=50.0)
    found = margin(rule("vpd_high", limit=1.5, night_limit=1.0), climate)
    assert (found > 0).tolist() == [True, False]


def test_outside_of_its_hours_a_rule_is_silent() -> None:
    """Hours may go over midnight."""
    air = track(48, air_temp_c=0.0)
    found = margin(rule("frost", limit=3.0, hours=(22 * 60, 6 * 60)), air)
    assert set(air.minute[found > 0] // 60) == {22, 23, 0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize("hours", [(480, 480), (0, 0), (1440, 1440), (1440, 0), (0, 1440)])
def test_hours_that_end_as_they_begin_are_the_whole_day(hours: tuple[int, int]) -> None:
    """From 8 to 8 o'clock is a day, as 18 to 7 o'clock is a night; 24:00 is 00:00."""
    assert (margin(rule("frost", limit=3.0, hours=hours), track(48, air_temp_c=0.0)) > 0).all()


def test_the_coldest_surface_counts() -> None:
    """In a morning that warms the fruit is behind the air, and colder than the leaf."""
    air = np.linspace(10, 20, 12)
    climate = track(12, air_temp_c=air, rh_pct=90.0, leaf_temp_c=air + 1)
    wet = rule("condensation", fruit_mm=60.0)
    found = evidence(wet, climate)
    assert list(found) == ["air", "leaf", "fruit", "dew_point"]
    assert np.allclose(
        measure(wet, climate), np.minimum(found["leaf"], found["fruit"]) - dew_point_c(air, 90.0), atol=1e-4
    )
    assert (margin(wet, climate)[6:] > 0).all()
    assert (margin(rule("condensation"), climate) < 0).all()  # the leaf alone is warm


def test_where_the_leaf_falls_silent_the_air_stands_for_it() -> None:
    """From then on condensation is what it is without a leaf; until then the leaf, which is colder, counts."""
    leaf = np.where(np.arange(48) < 30, 15.0, np.nan)
    with_leaf, without = (
        measure(rule("condensation"), track(48, air_temp_c=18.0, rh_pct=88.0, **more))
        for more in ({"leaf_temp_c": leaf}, {})
    )
    assert (with_leaf[:30] < 0).all()
    assert (without > 0).all()
    assert np.array_equal(with_leaf[30:], without[30:])


def test_saturated_air_condenses_at_any_temperature() -> None:
    """Where nothing colder is measured the air itself is at its dew point then: rounding must not decide it."""
    climate = track(3000, air_temp_c=np.linspace(0, 30, 3000), rh_pct=100.0)
    assert (margin(rule("condensation"), climate) > 0).all()
    steady = track(3000, air_temp_c=18.0, rh_pct=100.0)
    assert (margin(rule("condensation", fruit_mm=60.0), steady) > 0).all()
    assert (margin(rule("condensation"), track(48, air_temp_c=18.0, rh_pct=99.9)) < 0).all()


def test_beside_a_fruit_a_silent_leaf_says_nothing() -> None:
    """The fruit is measured by the air alone, and goes on."""
    air, leaf = np.linspace(10, 20, 12), np.where(np.arange(12) < 6, 5.0, np.nan)
    climate = track(12, air_temp_c=air, rh_pct=90.0, leaf_temp_c=leaf)
    wet = rule("condensation", fruit_mm=60.0)
    found = evidence(wet, climate)
    assert np.isnan(found["leaf"][6:]).all()
    assert np.allclose(measure(wet, climate)[6:], (found["fruit"] - found["dew_point"])[6:], atol=1e-4)


def test_hours_count_as_wet_in_the_temperature_band_alone() -> None:
    """Ten wet hours at 18 °C and ten at 10 °C are ten hours of grey mould weather."""
    air = np.where(np.arange(48) < 20, 18.0, 10.0)
    humidity = np.where(np.arange(48) < 40, 95.0, 70.0)
    found = measure(rule("botrytis"), track(48, air_temp_c=air, rh_pct=humidity))
    assert np.isnan(found[30])  # a day is not yet known
    assert found[-1] == 10.0


def test_wet_hours_are_those_of_the_last_day() -> None:
    """What was wet two days ago does not count."""
    humidity = np.where(np.arange(96) < 48, 95.0, 70.0)
    found = measure(rule("botrytis"), track(96, air_temp_c=18.0, rh_pct=humidity))
    assert found[47] == 24.0
    assert found[-1] == 0.0


def test_a_bright_day_asks_for_more_warmth() -> None:
    """1,000 J/cm² of light ask for 2 °C more at 0.2 °C a 100 J/cm²."""
    watts = 1000 * 10_000 / 86_400
    dark, bright = (track(48, air_temp_c=18.0, out_radiation_w_m2=light) for light in (0.0, watts))
    said = rule("mean_low", base_c=16.0, per_100_j_cm2=0.2)
    assert np.isclose(measure(said, dark)[-1], 2.0)
    assert np.isclose(measure(said, bright)[-1], 0.0, atol=1e-3)
    assert np.isnan(measure(said, track(48, air_temp_c=18.0))[-1])  # the light is unknown


@pytest.mark.parametrize("kind", COURSES)
def test_what_is_unknown_stays_unknown(kind: str) -> None:
    """Without a single value no kind says anything, and evidence has the same length."""
    nothing = track(48)
    assert np.isnan(margin(rule(kind), nothing)).all()
    assert all(values.shape == (48,) for values in evidence(rule(kind), nothing).values())


def test_scenarios_are_measured_as_rows_are() -> None:
    """An axis of scenarios before time changes nothing but the last bit, which is the processor's."""
    air, humidity = np.linspace(5, 25, 48), np.linspace(99, 60, 48)
    one = track(48, air_temp_c=air, rh_pct=humidity, co2_ppm=400.0, out_radiation_w_m2=100.0)
    many = track(48, air_temp_c=np.tile(air, (3, 1)), rh_pct=np.tile(humidity, (3, 1)), co2_ppm=400.0,
                 out_radiation_w_m2=100.0)  # fmt: skip
    for kind in COURSES:
        said = rule(kind, fruit_mm=50.0)
        alone, together = (np.broadcast_to(measure(said, each), (3, 48)) for each in (one, many))
        np.testing.assert_allclose(together, alone, rtol=1e-6, atol=1e-6, err_msg=kind)


def test_a_rule_of_a_state_watches_no_number() -> None:
    """Whoever asks for one is told."""
    with pytest.raises(ValueError, match="watches no number"):
        measure(rule("drift"), track(2))
