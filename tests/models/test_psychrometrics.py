"""Psychrometrics against published tables and against itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import psychrometrics as air


@pytest.mark.parametrize(("temp_c", "kpa"), [(15.0, 1.705), (24.5, 3.075)])
def test_saturation_agrees_with_fao_56(temp_c, kpa):
    """The saturation vapour pressure is that of FAO 56, chapter 3, example 3."""
    assert air.saturation_vapour_pressure_pa(temp_c) / 1000 == pytest.approx(kpa, abs=0.0005)


@given(st.floats(-20, 60), st.floats(1, 100))
def test_dew_point_is_where_the_vapour_saturates(temp_c, rh_pct):
    """At the dew point, the air's vapour pressure is the saturation pressure."""
    dew = air.dew_point_c(temp_c, rh_pct)
    assert air.saturation_vapour_pressure_pa(dew) == pytest.approx(air.vapour_pressure_pa(temp_c, rh_pct), rel=1e-9)
    assert dew <= temp_c + 1e-9


@given(st.floats(-20, 60), st.floats(0, 100))
def test_vpd_and_vapour_pressure_add_up_to_saturation(temp_c, rh_pct):
    """What the air holds and what it lacks are what it can hold."""
    held = air.vapour_pressure_pa(temp_c, rh_pct) + 1000 * air.vpd_kpa(temp_c, rh_pct)
    assert held == pytest.approx(air.saturation_vapour_pressure_pa(temp_c))
    assert air.relative_humidity_pct(air.vapour_pressure_pa(temp_c, rh_pct), temp_c) == pytest.approx(rh_pct, abs=1e-9)


def test_missing_stays_missing_and_float32_stays_float32():
    """NaN in, NaN out, element by element, in the precision given."""
    temp, humidity = np.array([20, np.nan, 20], dtype=np.float32), np.array([50, 50, np.nan], dtype=np.float32)
    for function in (air.vpd_kpa, air.dew_point_c, air.absolute_humidity_g_m3, air.vapour_pressure_pa):
        out = function(temp, humidity)
        assert out.dtype == np.float32
        assert np.isfinite(out).tolist() == [True, False, False]


def test_perfectly_dry_air_has_a_finite_dew_point():
    """A humidity of zero gives a number, not minus infinity."""
    assert np.isfinite(air.dew_point_c(20.0, 0.0))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("temp_c", [-90.0, 60.0])
def test_no_temperature_that_air_has_warns(temp_c):
    """Nor does any humidity, in single precision."""
    temp, humidity = np.full(3, temp_c, np.float32), np.array([0, 100, np.nan], np.float32)
    for function in (air.vpd_kpa, air.dew_point_c, air.absolute_humidity_g_m3, air.vapour_pressure_pa):
        assert np.isfinite(function(temp, humidity)).tolist() == [True, True, False]
    assert air.relative_humidity_pct(np.float32(100), temp).min() > 0
