"""Sensor faults: each kind is found in a made-up world, none in a sound one."""

import numpy as np
import pytest

from models.features.sensor_faults import LEAST, SensorFaults

CHANNELS = ("air_temp_c", "rh_pct", "co2_ppm", "lamp_pct", "out_temp_c")
STEP_MS = 900_000
DAY = 96
DAYS = 9
AT = 7 * DAY + 20
"""Where faults begin, in zone 1; at night."""


def world(zones=4, seed=0, days=DAYS):
    """A daily course with noise, ``[Z, T, C]``; the lamp stands still for days."""
    rng = np.random.default_rng(seed)
    t = np.arange(days * DAY)
    sun = np.maximum(np.sin((t / DAY - 0.25) * 2 * np.pi), 0)
    weather = np.cumsum(rng.normal(0, 0.1, len(t)))
    weather -= np.linspace(0, weather[-1], len(t))
    out = np.empty((zones, len(t), len(CHANNELS)), dtype=np.float32)
    for z in range(zones):
        air = 18 + z + 5 * sun + 0.3 * weather + rng.normal(0, 0.1, len(t))
        rh = 80 - 15 * sun + rng.normal(0, 0.6, len(t))
        co2 = 600 + 150 * sun + rng.normal(0, 8, len(t))
        lamp = np.zeros(len(t))
        out[z] = np.stack([air, rh, co2, lamp, 8 + 4 * sun + weather + rng.normal(0, 0.1, len(t))], axis=-1)
    out[:, :, 4] = out[0, :, 4]
    return out


def detector(zones):
    made = SensorFaults(CHANNELS, STEP_MS, 1)
    for _ in range(zones):
        made.add_zones()
    return made


def run(made, values, start=0, stop=None):
    """What was kept out ``[Z, T, C]``, and ``(step, fault)`` as found."""
    zones = np.arange(len(values))
    out, found = np.zeros(values.shape, dtype=bool), []
    for step in range(start, values.shape[1] if stop is None else stop):
        clean, new = made.learn(zones, step, values[:, step], step * 24 // DAY % 24)
        out[:, step] = np.isfinite(values[:, step]) & np.isnan(clean)
        found += [(step, fault) for fault in new]
    return out, found


@pytest.mark.parametrize("seed", range(2))
def test_a_sound_world_has_no_faults(seed):
    """Nothing is called faulty where nothing is, and rows are given back as they came."""
    values = world(seed=seed)
    out, found = run(detector(4), values)
    assert not out.any()
    assert not found


@pytest.mark.parametrize("seed", range(3))
def test_few_moves_a_day_make_no_sound_row_a_spike(seed):
    """Rows of half an hour are held against the moves of more hours: none of a CO2 that moves by chance is a spike,
    and one that is nothing like it still is.
    """
    values = 600 + 100 * np.random.default_rng(seed).laplace(size=14 * 48)
    made, kept_out = SensorFaults(("co2_ppm",), 1_800_000), []
    made.add_zones()
    values[-1] += 5000
    for step, value in enumerate(values):
        clean, _ = made.learn(np.arange(1), step, np.array([[value]], dtype=np.float32), step // 2 % 24)
        kept_out += [step] if np.isnan(clean[0, 0]) else []
    assert kept_out == [len(values) - 1]


def spoil(values, kind, channel, length):
    column = values[1, AT : AT + length, CHANNELS.index(channel)]
    if kind == "stuck":
        column[:] = column[0]
    elif kind == "spike":
        column[::5] += 12 * LEAST[channel]
    elif kind == "offset":
        column += 6 * LEAST[channel]
    else:
        column[:] = np.nan
    return values


@pytest.mark.parametrize("channel", ["air_temp_c", "rh_pct", "co2_ppm"])
@pytest.mark.parametrize(
    ("kind", "within", "least"), [("stuck", 14, 0.7), ("spike", 1, 0.19), ("offset", 8, 0.9), ("drop_out", 4, 0)]
)
@pytest.mark.thorough
def test_each_kind_is_found(kind, channel, within, least):
    """Each kind is called by its name in its zone and channel, soon, and what it spoils is kept out."""
    length = 60
    out, found = run(detector(4), spoil(world(), kind, channel, length))
    named = [(step, fault) for step, fault in found if fault.kind == kind]
    assert [(fault.zone, fault.channel) for _, fault in named[:1]] == [(1, channel)]
    assert AT <= named[0][0] <= AT + within
    assert out[1, AT : AT + length, CHANNELS.index(channel)].mean() >= least
    beside = out.copy()
    beside[1, AT : AT + length + 8, CHANNELS.index(channel)] = False
    assert beside.mean() < 1e-4


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("kind", "within", "least"), [("stuck", 30, 0.5), ("spike", 1, 0.19), ("offset", 8, 0.8)])
def test_faults_of_sensors_that_report_less_often_than_rows_close_are_found(kind, within, least, together):
    """Rows of five minutes, and a reading every fifteen, of all zones in one row or of each in its own: the same faults
    as in rows of fifteen minutes, as soon, and each told once; and none in sound zones.
    """
    zones, length = 4, 60
    values = spoil(world(days=9), kind, "air_temp_c", length)
    rows = np.full((zones, 3 * values.shape[1], len(CHANNELS)), np.nan, np.float32)
    for zone in range(zones):
        rows[zone, 0 if together else zone % 3 :: 3] = values[zone]
    made, out, found = SensorFaults(CHANNELS, 300_000, zones), np.zeros(rows.shape, bool), []
    made.add_zones(zones)
    for step in range(rows.shape[1]):
        clean, new = made.learn(np.arange(zones), step, rows[:, step], step * 24 // (3 * DAY) % 24)
        out[:, step] = np.isfinite(rows[:, step]) & np.isnan(clean)
        found += [(step // 3, fault) for fault in new if fault.kind == kind]
    assert [(fault.zone, fault.channel) for _, fault in found[:1]] == [(1, "air_temp_c")]
    assert AT <= found[0][0] <= AT + within
    assert kind == "spike" or len(found) == 1  # spikes come one at a time
    assert out[1, 3 * AT : 3 * (AT + length), 0].sum() >= least * length
    out[1, 3 * AT : 3 * (AT + length + 8), 0] = False
    assert out.sum() < 1e-3 * np.isfinite(rows).sum()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("lost", [True, False])
def test_moves_between_readings_that_are_further_apart_than_usual_are_no_spikes(lost, seed):
    """Two in five readings are lost, or one of every two rows comes now in this row and now in the next: what moved for
    longer may have moved further. What is nothing like it is still a spike.
    """
    values, rng = 2 * world(seed=seed, days=16), np.random.default_rng(seed)
    comes_late = rng.integers(0, 2, (4, values.shape[1] // 2))
    first = np.stack([comes_late == 0, comes_late == 1], axis=-1).reshape(4, -1)
    values[rng.random(first.shape) < 0.4 if lost else ~first] = np.nan
    out, _ = run(detector(4), values)
    assert out.sum() < 1e-3 * np.isfinite(values).sum()
    known = np.isfinite(values[1, :, 0])
    at = 12 * DAY + int(np.flatnonzero(known[12 * DAY :] & (known[12 * DAY - 2 : -2] | known[12 * DAY - 1 : -1]))[0])
    values[1, at, 0] += 20
    assert run(detector(4), values)[0][1, at, 0]


@pytest.mark.parametrize("every", [2, 3, 4])
def test_a_sensor_that_reports_less_often_from_a_day_on_does_not_spike(every):
    """Moves from one reading to the next become larger on that day; those that are known are of the pace before."""
    values, t = world(days=14), np.arange(14 * DAY)
    sun = np.maximum(np.sin((t / DAY - 0.25) * 2 * np.pi), 0)
    values[:, :, 0] += np.array([0, 0, 20, 40], np.float32)[:, None] * sun  # by day zones move apart
    slower = t % every > 0
    slower[: 10 * DAY] = False
    values[:, slower] = np.nan
    out, found = run(detector(4), values)
    assert not out.any()
    assert {fault.kind for _, fault in found} <= {"drop_out"}  # where an hour lies between its first two readings


def test_a_state_of_before_is_one_of_a_reading_in_each_step():
    """It did not know how often sensors report."""
    made, values = detector(4), world()
    run(made, values, stop=AT)
    before = made.state_dict()
    assert (before.pop("every") == 1).all()
    again = detector(0)
    again.load_state_dict(before)
    assert all(
        np.array_equal(held, made.state_dict()[name], equal_nan=True) for name, held in again.state_dict().items()
    )


def test_what_is_over_is_called_sound_again():
    """After a fault has ended the channel is used again, and nothing is reported any more."""
    made = detector(4)
    run(made, spoil(world(), "stuck", "rh_pct", 60), stop=AT + 50)
    (fault,) = made.active(np.arange(4))
    assert fault.words("02:10").startswith("rh_pct: stuck at ")
    assert AT <= fault.since_step <= AT + 1
    values = spoil(world(), "stuck", "rh_pct", 60)
    out, _ = run(made, values, start=AT + 50)
    assert not made.active(np.arange(4))
    assert not out[:, AT + 70 :].any()


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_sensor_that_reports_less_often_comes_back_from_an_offset(every):
    """Rows in which it says nothing do not begin the half hour anew in which it must be back in its range."""
    a_day = 288
    noise = np.random.default_rng(0).normal(0, 3, (4, 9 * a_day, 1))
    values = (600 + noise).astype(np.float32)
    off, back = slice(8 * a_day, 8 * a_day + 24), 8 * a_day + 72
    values[1, off] += 300
    values[1, off.stop : back, 0] += np.linspace(300, 0, 48)  # at once it would be a spike, which ends an offset
    values[:, np.arange(9 * a_day) % every > 0] = np.nan
    made = SensorFaults(("co2_ppm",), 300_000)
    made.add_zones(4)
    kept_out = np.zeros(values.shape[1], dtype=bool)
    for step in range(values.shape[1]):
        clean, _ = made.learn(np.arange(4), step, values[:, step], step * 24 // a_day % 24)
        kept_out[step] = np.isfinite(values[1, step, 0]) and np.isnan(clean[1, 0])
    assert kept_out[off][::every].mean() > 0.7
    assert not kept_out[back + 12 :].any()
    assert not made.active(np.arange(4))


def test_a_move_of_all_zones_is_no_fault():
    """What the neighbours do too is the weather or the control."""
    values = world()
    values[:, AT : AT + 30, 0] += 8
    out, found = run(detector(4), values)
    assert not out.any()
    assert not found


@pytest.mark.parametrize("zones", [2, 4])
def test_a_number_that_stands_for_missing_values_is_taken_for_them(zones):
    """Who collects readings may write 0 where he gets none, in all zones: nothing of a day of that is learned, sensors
    are called silent, and with the first value they are used again.
    """
    values = world(zones)
    climate = [CHANNELS.index(name) for name in ("air_temp_c", "rh_pct")]
    values[:, AT : AT + DAY, climate] = 0
    out, found = run(detector(zones), values)
    assert out[:, AT : AT + DAY, climate].all()
    assert out.sum() == zones * DAY * len(climate)
    assert {fault.kind for _, fault in found} == {"drop_out"}


def test_zones_of_one_sensor_may_say_the_same():
    """A house that has one sensor for all zones may also become what it never was."""
    values = np.repeat(world(1), 3, axis=0)
    values[:, AT:, 0] -= 8
    out, _ = run(detector(3), values)
    assert not out.any()


def test_a_row_that_is_lost_just_then_makes_no_missing_values_of_one_sensor():
    """A zone without the row of the jump has an older newest value than the others, and no sensor of its own."""
    values = np.repeat(world(1), 3, axis=0)
    values[:, AT:, 0] -= 8
    values[2, AT] = np.nan
    out, found = run(detector(3), values)
    assert not out[:, AT + 1 :].any()
    assert {fault.kind for _, fault in found} == {"spike"}  # two zones are no site, until the third is back


@pytest.mark.parametrize("end_ppm", [400, 2000])
def test_co2_sensors_of_all_zones_may_stand_at_the_end_of_their_scale(end_ppm):
    """Vents that are opened for the first time, or CO2 that is dosed: many sensors show no less than 400 ppm."""
    values, co2 = world(3), CHANNELS.index("co2_ppm")
    values[:, AT + 18 : AT + 20, co2] = (values[:, AT + 18 : AT + 20, co2] + end_ppm) / 2
    values[:, AT + 20 : AT + 40, co2] = end_ppm
    out, found = run(detector(3), values)
    assert not out[..., co2].any()
    assert not found


def test_nothing_of_a_jump_far_beyond_all_that_was_is_learned():
    """Also not the first value that was there for too long to be a spike."""
    values = world(zones=1)
    values[0, AT : AT + 8, CHANNELS.index("co2_ppm")] = 4500
    out, _ = run(detector(1), values)
    assert out[0, AT : AT + 8, CHANNELS.index("co2_ppm")].all()


@pytest.mark.parametrize("zones", [1, 4])
def test_a_number_that_stands_for_missing_values_of_one_zone_is_never_the_new_normal(zones):
    """0 for four days is no offset that has become usual after two: a sensor that stands there is stuck."""
    values, climate = world(zones, days=13), [0, 1]
    values[0, AT : AT + 4 * DAY, climate] = 0
    out, _ = run(detector(zones), values)
    assert out[0, AT : AT + 4 * DAY, climate].all()
    assert not out[0, AT + 4 * DAY + 12 :].any()


def test_what_may_stand_still_is_not_stuck():
    """Humidity at saturation, CO2 at the end of its range, and actuators stand as long as they like."""
    values = world()
    values[1, AT : AT + 40, 1] = 100.0
    top = values[2, :AT, 2].max()
    values[2, AT : AT + 40, 2] = top
    _, found = run(detector(4), values)
    assert not [fault for _, fault in found if fault.kind == "stuck"]


def test_a_constant_zone_and_a_silent_one_do_no_harm():
    """A zone whose sensors never moved, and one that never spoke, are not called faulty and spoil no other."""
    values = world(5)
    values[3, :, :3] = 20.0
    values[4] = np.nan
    out, found = run(detector(5), values)
    assert not found
    assert not out.any()


def test_a_zone_born_late_learns_first():
    """A new zone's first days are taken as they come, whatever they are."""
    values = world(4)
    values[3, : 4 * DAY] = np.nan
    values[3, 4 * DAY : 6 * DAY : 7, 0] += 20
    out, found = run(detector(4), values)
    assert not out[3, : 7 * DAY].any()
    assert not [fault for _, fault in found if fault.zone != 3]


def test_a_zone_that_comes_back_after_days_is_watched_anew():
    """Another level after two days of silence is how the zone is now, not an offset."""
    values = world(days=14)
    values[1, 8 * DAY : 10 * DAY + 1] = np.nan
    values[1, 10 * DAY :, CHANNELS.index("co2_ppm")] += 6 * LEAST["co2_ppm"]
    out, found = run(detector(4), values)
    assert not out[:, 10 * DAY :].any()
    assert {fault.kind for _, fault in found} == {"drop_out"}


def test_a_sensor_that_comes_back_with_the_same_value_is_not_stuck():
    """Nobody knows what it would have said in the hours between; they are no stand, and make no later one usual."""
    values, evening = world(), 7 * DAY + 76
    out, _ = run(made := detector(4), values, stop=evening)
    values[1, evening : evening + 16] = np.nan
    values[1, evening + 16] = values[1, evening - 1]  # four hours later
    out, found = run(made, values, evening, evening + 18)
    assert {fault.kind for _, fault in found} == {"drop_out"}
    assert not out.any()
    values[1, evening + 18 :] = values[1, evening + 18]
    assert "stuck" in {fault.kind for _, fault in run(made, values, evening + 18, evening + 28)[1]}


def test_a_lasting_offset_becomes_the_new_normal():
    """A sensor that was moved is believed again after two days."""
    out, _ = run(detector(4), spoil(world(days=11), "offset", "air_temp_c", 4 * DAY))
    assert out[1, AT + 10 : AT + DAY, 0].all()
    assert not out[1, AT + 3 * DAY :, 0].any()


def test_a_stream_may_be_cut_anywhere_and_clones_are_independent():
    """Saving and loading changes nothing that comes after, and what a clone learns stays with it."""
    values = spoil(world(), "offset", "air_temp_c", 60)
    whole, _ = run(detector(4), values)
    first = detector(4)
    run(first, values, stop=AT + 20)
    state = first.state_dict()
    second = detector(0)
    second.load_state_dict(state)
    assert np.array_equal(run(second, values, start=AT + 20)[0][:, AT + 20 :], whole[:, AT + 20 :])
    assert all(np.array_equal(held, first.state_dict()[name], equal_nan=True) for name, held in state.items())


def test_memory_is_small_and_bounded():
    """A zone costs less than 6 KB, as much at the end as at the start; and rows are not altered."""
    made, values = detector(4), world()
    before = {name: held.nbytes for name, held in made.state_dict().items()}
    copy = values.copy()
    run(made, values)
    assert {name: held.nbytes for name, held in made.state_dict().items()} == before
    assert sum(before.values()) / 4 < 6000
    assert np.array_equal(values, copy)
