"""Sensor faults: each kind does what its name says, when its schedule says so, and to nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.simulator.faults import FAULT_KINDS, Fault, FaultySensors, random_faults

DAY_MS = 86_400_000
MINUTE_MS = 60_000


def run(fault, values, seed=0):
    """One sensor's values, a minute apart from time 0, through a fault; ``None`` where it was silent."""
    sensors = FaultySensors([fault], seed)
    out = [sensors.apply(i * MINUTE_MS, {"z": {"rh_pct": v, "co2_ppm": 1.0}}) for i, v in enumerate(values)]
    assert all(reading["z"]["co2_ppm"] == 1.0 for reading in out)
    return [reading["z"].get("rh_pct") for reading in out]


def fault(kind, first, last, size=0.0):
    return Fault(kind, "z", "rh_pct", first * MINUTE_MS, last * MINUTE_MS, size)


def test_stuck_holds_the_first_value():
    """A stuck sensor repeats what it showed when it stuck, then goes on."""
    assert run(fault("stuck", 1, 4), [1.0, 2.0, 3.0, 4.0, 5.0]) == [1.0, 2.0, 2.0, 2.0, 5.0]


def test_drop_out_is_silent():
    """A silent sensor gives no value at all."""
    assert run(fault("drop_out", 1, 3), [1.0, 2.0, 3.0, 4.0]) == [1.0, None, None, 4.0]


def test_offset_adds():
    """A constant is added while it lasts."""
    assert run(fault("offset", 1, 2, 5.0), [1.0, 2.0, 3.0]) == [1.0, 7.0, 3.0]


def test_drift_grows():
    """The size is the drift a day."""
    assert run(fault("drift", 0, 1441, 2.0), [10.0] * 1441)[720] == pytest.approx(11.0)


def test_spikes_are_rare_and_repeatable():
    """About a tenth of the readings jump by the size, the same ones for the same seed."""
    values = run(fault("spike", 0, 1000, 9.0), [50.0] * 1000, seed=3)
    assert set(values) == {41.0, 50.0, 59.0}
    assert 50 < sum(v != 50.0 for v in values) < 150
    assert values == run(fault("spike", 0, 1000, 9.0), [50.0] * 1000, seed=3)


def test_an_unknown_kind_is_named():
    """A fault that does not exist is refused when it is made."""
    with pytest.raises(ValueError, match="'melted' is not a fault"):
        FaultySensors([fault("melted", 0, 1)])


@given(st.integers(0, 1000), st.integers(0, 3 * DAY_MS))
def test_input_is_never_changed_and_the_rest_left_alone(seed, ts_ms):
    """Readings go in and come out as a copy; what is not faulty is equal."""
    faults = random_faults(seed, ["z"], 0, 3 * DAY_MS, a_day=2.0)
    readings = {"z": {"air_temp_c": 20.0, "par_umol_m2_s": 5.0}, "_site": {"out_temp_c": 3.0}}
    result = FaultySensors(faults, seed).apply(ts_ms, readings)
    assert readings == {"z": {"air_temp_c": 20.0, "par_umol_m2_s": 5.0}, "_site": {"out_temp_c": 3.0}}
    assert result["_site"] == readings["_site"]
    assert result["z"]["par_umol_m2_s"] == 5.0


def test_a_random_schedule_covers_zones_and_kinds():
    """Faults of every kind, within the time asked, repeatable by seed."""
    faults = random_faults(1, ["a", "b"], 0, 30 * DAY_MS, a_day=2.0)
    assert {f.kind for f in faults} == set(FAULT_KINDS)
    assert {f.zone for f in faults} == {"a", "b"}
    assert all(0 <= f.start_ms < f.end_ms <= 30 * DAY_MS for f in faults)
    assert faults == random_faults(1, ["a", "b"], 0, 30 * DAY_MS, a_day=2.0)
