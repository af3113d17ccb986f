"""Disturbances, judged by the gateway's own check."""

from __future__ import annotations

import pytest

from edge.simulator.publisher.disturb import KINDS, Disturbance, parse_rates
from edge.wire.reading import Sample, decode
from edge.wire.topic import sample_topic

START_MS = 1_643_673_600_000


def sample(minute: int) -> Sample:
    return Sample("s", "z", "d", "0011223344556677", minute, START_MS + minute * 60_000, {"rh_pct": 70.0})


@pytest.mark.parametrize("kind", ["malformed", "future_ts", "out_of_range", "unknown_metric"])
def test_nonsense_is_refused_for_its_reason(kind: str) -> None:
    """What a disturbance is called is the reason that the gateway refuses it for."""
    ((told, payload),) = Disturbance({kind: 1.0}).after(sample(0))
    decoded = decode(sample_topic("s", "z", "d"), payload, sample(0).ts_ms)
    assert told == kind
    assert [(r.reason, r.whole) for r in decoded.refusals] == [(kind, True)]
    assert not decoded.samples


def test_what_a_broker_kept_for_days_is_nonsense_still() -> None:
    """A time ahead is refused whenever it is received: a gateway that was away gets it late, or a second time."""
    ((_, payload),) = Disturbance({"future_ts": 1.0}).after(sample(0))
    decoded = decode(sample_topic("s", "z", "d"), payload, START_MS + 20 * 86_400_000)
    assert [refusal.reason for refusal in decoded.refusals] == ["future_ts"]


def test_a_duplicate_is_the_same_sample() -> None:
    """A duplicate carries the id and values of the true sample."""
    ((_, payload),) = Disturbance({"duplicates": 1.0}).after(sample(0))
    assert decode(sample_topic("s", "z", "d"), payload, sample(0).ts_ms).samples == [sample(0)]


def test_a_latecomer_is_hours_old_and_new() -> None:
    """A late sample was never seen before and belongs to a row that was there and has closed."""
    disturbance = Disturbance({"late": 1.0})
    found = [(minute, list(disturbance.after(sample(minute)))) for minute in (0, 60, 359, 360)]
    assert [minute for minute, extra in found if extra] == [360]
    (late,) = decode(sample_topic("s", "z", "d"), found[-1][1][0][1], sample(360).ts_ms).samples
    assert START_MS < late.ts_ms <= sample(360).ts_ms - 3 * 3_600_000
    assert late.boot != sample(0).boot


def test_the_rate_is_kept_and_the_seed_repeats() -> None:
    """About the share of samples that was asked for is disturbed, the same ones for the same seed."""
    draws = []
    for _ in range(2):
        disturbance = Disturbance({"malformed": 0.1}, seed=3)
        draws.append([len(list(disturbance.after(sample(minute)))) for minute in range(2000)])
    assert draws[0] == draws[1]
    assert 140 < sum(draws[0]) < 260


@pytest.mark.parametrize("text", ["gremlins=0.1", "late", "late=often", "late=2", "late=-1", "late=nan"])
def test_a_wrong_rate_is_named(text: str) -> None:
    """What is no KIND=RATE is refused with what is allowed."""
    with pytest.raises(ValueError, match=f"{text}.*{KINDS[0]}"):
        parse_rates([text])
