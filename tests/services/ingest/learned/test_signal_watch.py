"""What a partition tells of failing sensors and drift, and keeps out of learning."""

from dataclasses import replace

import numpy as np
import pytest

from edge.wire.vocabulary import VOCABULARY
from models.spec import ForecastSpec, Place
from services.ingest.forecasting import zone_forecasts
from services.ingest.learned.signal_watch import KEPT_EVENTS, SignalEvent, SignalWatch
from services.store.rows import SiteStep, UnitFault
from tests.services.ingest.samples import T0

SPEC = ForecastSpec(tuple(VOCABULARY), ("air_temp_c", "rh_pct"), (60, 120), 1_800_000, lookback_steps=48)
DAY = SPEC.steps_per_day
STUCK_AT = 5 * DAY + 20
ZONES = ("east", "south", "west")


def steps(days=8):
    """Three zones with a daily course; humidity in the south sticks on the sixth day."""
    rng = np.random.default_rng(0)
    for t in range(days * DAY):
        sun = max(np.sin((t / DAY - 0.25) * 2 * np.pi), 0)
        values = np.full((3, len(SPEC.channels)), np.nan, dtype=np.float32)
        values[:, SPEC.channels.index("air_temp_c")] = 18 + 5 * sun + rng.normal(0, 0.2, 3)
        values[:, SPEC.channels.index("rh_pct")] = 80 - 15 * sun + rng.normal(0, 0.5, 3)
        if t >= STUCK_AT:
            values[1, SPEC.channels.index("rh_pct")] = np.float32(71.3)
        yield SiteStep(0, "demo", T0 + t * SPEC.step_ms, ZONES, values, np.zeros_like(values))


def watch():
    made = SignalWatch(SPEC, lambda site: Place("Europe/Amsterdam"))
    for _ in ZONES:
        made.add_zones()
    return made


def take(made, step):
    indices = np.arange(3)
    bins = np.full(3, step.end_ms // SPEC.step_ms % DAY)
    seen = made.without_faults(step, indices, bins)
    made.learn(seen, indices, np.ones((3, 2), dtype=np.float32))
    return seen


def test_a_stuck_sensor_is_kept_out_and_named():
    """Learners see no value of it, the forecast is degraded and says why, and operators are told once."""
    made = watch()
    *_, last = [take(made, step) for step in steps()]
    column = SPEC.channels.index("rh_pct")
    assert np.isnan(last.values[1, column])
    assert np.isfinite(last.values[[0, 2], column]).all()
    words = "rh_pct: stuck at 71.3 % since 2022-03-06 11:00"
    assert last.faults == ((), (words,), ())
    published = zone_forecasts(SPEC, last, "online", np.zeros((3, 2, 2, 3), dtype=np.float32))
    assert [forecast["degraded"][-1:] == [words] for forecast in published] == [False, True, False]
    assert [(event.kind, event.zone, event.words) for event in made.events] == [("stuck", "south", words)]
    assert made.counts == {"stuck": 1}
    assert made.faults_now(np.arange(3), ()) == 1
    assert made.faults_now(np.array([0, 2]), ()) == 0


def test_a_sensor_of_another_unit_is_named():
    """In its own zone, the weather station's in every zone; operators are told once, also over a restart."""
    made, again = watch(), watch()
    share = UnitFault("south", "climate", "rh_pct", True, 0.62, 0.71, T0 + SPEC.step_ms)
    hot = UnitFault("_site", "weather", "out_temp_c", False, 46.0, 58.0, T0 + SPEC.step_ms)
    first, second, *_ = steps()
    take(made, first)
    told = take(made, replace(second, units=(share, hot)))
    assert told.faults == ((hot.words(),), (share.words(), hot.words()), (hot.words(),))
    assert [(event.kind, event.zone) for event in made.events] == [("unit", "south"), ("unit", None)]
    again.load(made.state())
    everywhere = np.arange(3), {first.site}
    assert again.faults_now(*everywhere) == made.faults_now(*everywhere) == 2
    take(again, replace(second, end_ms=second.end_ms + SPEC.step_ms, units=(share,)))
    assert again.counts == {"unit": 2}
    assert again.faults_now(*everywhere) == 1


def test_faults_do_not_push_out_a_drift():
    """A training may wait for days to answer it, while a bad sensor fails again and again."""
    made = watch()
    made._tell(SignalEvent(0, "demo", None, "input drift", "it drifts"))
    for at_ms in range(1, 2 * KEPT_EVENTS):
        made._tell(SignalEvent(at_ms, "demo", "south", "spike", "it spikes"))
    again = watch()
    again.load(made.state())
    for told in (made.events, again.events):
        assert [event.kind for event in told].count("input drift") == 1
        assert (len(told), told[0].at_ms, told[-1].at_ms) == (KEPT_EVENTS + 1, 0, 2 * KEPT_EVENTS - 1)


@pytest.mark.parametrize("cut", [STUCK_AT + 2, STUCK_AT + DAY])
def test_a_snapshot_goes_on_as_if_nothing_had_been(cut):
    """After a restart the same faults are known, and the same are found."""
    whole, first, second = watch(), watch(), watch()
    for number, step in enumerate(steps(7)):
        expected = take(whole, step)
        if number < cut:
            take(first, step)
            continue
        if number == cut:
            second.load(first.state())
            assert second.facts("demo") == first.facts("demo")  # for a tick before the next row
            assert bool(first.facts("demo")) == (cut == STUCK_AT + DAY)
        seen = take(second, step)
        assert seen.faults == expected.faults
        assert np.array_equal(seen.values, expected.values, equal_nan=True)
    assert second.events == whole.events
    assert second.counts == whole.counts
