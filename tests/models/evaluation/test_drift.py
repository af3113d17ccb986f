"""Drift: River's Page-Hinkley in arrays, and what it says of inputs and errors."""

import numpy as np
import pytest

from models.evaluation.drift import Drift, PageHinkley

CHANNELS = ("air_temp_c", "rh_pct", "out_temp_c")
TARGETS = ("air_temp_c", "rh_pct")
STEP_MS = 3_600_000
DAY = 24


def state(*shape):
    return {name: np.zeros(shape) for name in PageHinkley.STATE}


@pytest.mark.parametrize("seed", range(3))
def test_it_is_rivers_page_hinkley(seed):
    """Every signal is called drifted at the very values at which River's detector calls it."""
    river = pytest.importorskip("river.drift")
    rng = np.random.default_rng(seed)
    levels = np.repeat(rng.uniform(-2, 2, (6, 3)), 150, axis=0)
    signals = levels + rng.normal(0, 1, levels.shape)
    ours, held = PageHinkley(0.3, 30.0, min_instances=40), state(3)
    theirs = [river.PageHinkley(min_instances=40, delta=0.3, threshold=30.0, alpha=1.0) for _ in range(3)]
    calls = 0
    for hour, values in enumerate(signals):
        up, down = ours.update(held, values, hour)
        for detector, value in zip(theirs, values, strict=True):
            detector.update(float(value))
        assert (up | down).tolist() == [detector.drift_detected for detector in theirs]
        calls += int((up | down).sum())
    assert calls >= 3


def watched(zones):
    made = Drift(CHANNELS, TARGETS, STEP_MS, 1)
    for _ in range(zones):
        made.add_zones()
    return made


def world(zones=3, days=40, seed=0):
    """Rows ``[Z, T, C]`` and errors ``[Z, T, M]`` of a quiet world."""
    rng = np.random.default_rng(seed)
    t = np.arange(days * DAY)
    sun = np.maximum(np.sin((t / DAY - 0.25) * 2 * np.pi), 0)[None, :, None]
    rows = np.array([20.0, 75.0, 8.0]) + sun * np.array([5.0, -15.0, 6.0]) + rng.normal(0, 1, (zones, len(t), 3))
    return rows.astype(np.float32), np.abs(rng.normal(0, 1, (zones, len(t), 2))).astype(np.float32)


def run(made, rows, errors, start=0, stop=None):
    found = []
    for step in range(start, rows.shape[1] if stop is None else stop):
        found += made.update("s", np.arange(len(rows)), step, rows[:, step], errors[:, step])
    return found


def test_a_quiet_world_does_not_drift():
    """In forty days like each other nothing is called."""
    assert not run(watched(3), *world())


def test_an_input_that_drifts_is_named():
    """Weather that turns six degrees colder is called once for the site, with its size and when."""
    rows, errors = world()
    at = 25 * DAY
    rows[:, at:, 2] -= 6
    found = run(watched(3), rows, errors)
    assert [(d.zone, d.signal) for d in found] == [(None, "out_temp_c")]
    assert abs(found[0].since_step - at) <= DAY // 4
    assert -8 < found[0].after - found[0].before < -4
    assert found[0].words("Tuesday", unit="degC").startswith("out_temp_c is ")


def test_errors_that_grow_are_named_with_their_zone():
    """A zone whose forecasts became three times as wrong is called within two days, its quiet neighbours are not."""
    rows, errors = world()
    at = 20 * DAY
    errors[1, at:, 0] *= 3
    found = [d for d in run(watched(3), rows, errors, stop=at + 2 * DAY) if d.zone is not None]
    assert [(d.zone, d.signal, d.is_error) for d in found] == [(1, "air_temp_c", True)]
    assert 2 < found[0].after / found[0].before < 4


def test_errors_that_shrink_are_no_drift():
    """Forecasts that get better alarm nobody."""
    rows, errors = world()
    errors[:, 20 * DAY :] *= 0.2
    assert not [d for d in run(watched(3), rows, errors) if d.is_error]


def test_constant_and_missing_signals_do_no_harm():
    """A channel that never moves, one that never comes, and a zone born late are not called."""
    rows, errors = world()
    rows[:, :, 0] = 20.0
    rows[:, :, 1] = np.nan
    rows[2, : 15 * DAY], errors[2, : 15 * DAY] = np.nan, np.nan
    assert not run(watched(3), rows, errors)


def test_a_stream_may_be_cut_anywhere_and_memory_is_bounded():
    """Saving and loading changes nothing that comes after; the state is as large at the end as at the start."""
    rows, errors = world()
    rows[:, 25 * DAY :, 2] -= 6
    cut = 25 * DAY + 8
    first = watched(3)
    run(first, rows, errors, stop=1)
    size = {name: held.nbytes for name, held in first.state_dict()["rows"].items()}
    run(first, rows, errors, start=1, stop=cut)
    second = Drift(CHANNELS, TARGETS, STEP_MS)
    second.load_state_dict(first.state_dict())
    assert run(second, rows, errors, start=cut) == run(first, rows, errors, start=cut)
    assert {name: held.nbytes for name, held in second.state_dict()["rows"].items()} == size


def test_days_without_values_do_not_make_a_drift_smaller():
    """Weather that is six degrees colder is told as such, though its sensor said nothing for five of the days since."""
    rows, errors = world()
    at = 25 * DAY
    rows[:, at:, 2] -= 6
    rows[:, at + 6 : at + 6 + 5 * DAY, 2] = np.nan
    (found,) = [d for d in run(watched(3), rows, errors) if d.zone is None]
    assert found.signal == "out_temp_c"
    assert found.since_step <= at + 6
    assert -8 < found.after - found.before < -4


def test_a_state_that_counted_no_hours_is_loaded():
    """All that have passed stand for them: without gaps nothing changes; half a state is refused."""
    rows, errors = world()
    rows[:, 25 * DAY :, 2] -= 6
    cut = 25 * DAY + 8
    first, second = watched(3), watched(3)
    run(first, rows, errors, stop=cut)
    kept = first.state_dict()
    old = {name: held for name, held in kept["rows"].items() if name not in ("up_hours", "down_hours")}
    assert len(old) == len(kept["rows"]) - 2
    second.load_state_dict(kept | {"rows": old})
    later = run(second, rows, errors, start=cut)
    assert later
    assert later == run(first, rows, errors, start=cut)
    for lacks in ("up_since", "up_sum"):
        with pytest.raises(ValueError, match=lacks):
            second.load_state_dict(kept | {"rows": {name: held for name, held in old.items() if name != lacks}})
