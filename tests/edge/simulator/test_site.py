"""A simulated site: what its sensors give."""

import itertools
import statistics
import time

import pytest

from edge.simulator.simulated_site import WEATHER_METRICS, SimulatedSite
from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import VOCABULARY
from tests.patience import core_slowness

START_MS = 1_646_092_800_000
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def whole():
    """Six hours in one run."""
    return list(SimulatedSite("demo", 5, START_MS).instants(START_MS + 6 * HOUR_MS))


def test_one_run_equals_many(whole):
    """However the time is cut into calls, the same readings come."""
    site = SimulatedSite("demo", 5, START_MS)
    pieces = []
    for to_ms in (START_MS - 1, START_MS, START_MS + 90_000, START_MS + HOUR_MS, START_MS + 6 * HOUR_MS):
        pieces += list(site.instants(to_ms))
    assert pieces == whole


def test_an_iterator_left_halfway_goes_on(whole):
    """A consumer that stops early loses nothing."""
    site = SimulatedSite("demo", 5, START_MS)
    first = next(iter(site.instants(START_MS + HOUR_MS)))
    assert [first, *site.instants(START_MS + HOUR_MS)] == whole[:61]


@pytest.mark.thorough
def test_every_reading_is_in_the_vocabulary_and_its_range():
    """Metric names are known and values plausible, on a summer and a winter day."""
    for start in (START_MS, START_MS + 140 * 24 * HOUR_MS):
        for _, readings in SimulatedSite("demo", 7, start, step_ms=300_000).instants(start + 24 * HOUR_MS):
            for values in readings.values():
                for name, value in values.items():
                    assert VOCABULARY[name].low <= value <= VOCABULARY[name].high, name


def test_instants_stand_on_the_grid():
    """The first instant is the start, the others a step apart, the end included."""
    site = SimulatedSite("demo", 1, START_MS + 12_345, zones=2, step_ms=300_000)
    stamps = [ts for ts, _ in site.instants(START_MS + HOUR_MS)]
    assert stamps == list(range(START_MS, START_MS + HOUR_MS + 1, 300_000))


def test_a_site_names_its_zones_and_its_weather():
    """Each instant has every zone and the weather station."""
    site = SimulatedSite("demo", 1, START_MS, zones=4)
    _, readings = next(site.instants(START_MS))
    assert tuple(readings) == (*site.zones, SITE_ZONE)
    assert tuple(readings[SITE_ZONE]) == WEATHER_METRICS
    assert len(site.zones) == len(set(site.zones)) == 4


def test_seeds_differ(whole):
    """Another seed is another year."""
    assert next(SimulatedSite("demo", 6, START_MS).instants(START_MS)) != whole[0]


@pytest.mark.parametrize("wrong", [{"step_ms": 30_000}, {"step_ms": 0}, {"zones": 0}])
def test_wrong_arguments_are_named(wrong):
    """A step that is no whole number of minutes, or no zone, is refused."""
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        SimulatedSite("demo", 1, START_MS, **wrong)


@pytest.mark.thorough
def test_radiation_sum_starts_at_local_midnight():
    """The day's sum is zero at midnight, rises, and ends at the integral of radiation."""
    start = START_MS + 100 * 24 * HOUR_MS - 2 * HOUR_MS  # midnight of a summer's day in Amsterdam
    rows = [r[SITE_ZONE] for _, r in SimulatedSite("demo", 3, start).instants(start + 24 * HOUR_MS - 60_000)]
    sums = [row["out_rad_sum_j_cm2"] for row in rows]
    assert sums[0] == 0
    assert all(b >= a for a, b in itertools.pairwise(sums))
    assert sums[-1] == pytest.approx(sum(row["out_radiation_w_m2"] for row in rows) * 60 / 1e4, rel=0.02)


@pytest.mark.slow
@pytest.mark.thorough
def test_fourteen_days_of_three_zones_take_ten_seconds():
    """Of the CPU time of a core as quick as the budget's, weather and sensors included; the median day counts.

    What else runs on the machine only adds to a time: one of up to four runs that keeps to the budget will do.
    """
    spent_s = [fourteen_days_s()]
    while spent_s[-1] >= 10.0 and len(spent_s) < 4:
        spent_s.append(fourteen_days_s())
    assert min(spent_s) < 10.0


def fourteen_days_s():
    """14 times the median day, each by how quick the core was right before and after it, whichever was quicker."""
    site = SimulatedSite("demo", 1, START_MS, step_ms=300_000)
    spent_s = []
    before = core_slowness()
    for day in range(1, 15):
        began_s = time.process_time()
        rows = list(site.instants(START_MS + day * 24 * HOUR_MS))
        day_s = time.process_time() - began_s
        after = core_slowness()
        spent_s.append(day_s / min(before, after))
        before = after
        assert len(rows) == 288 + (day == 1)
    return 14 * statistics.median(spent_s)
