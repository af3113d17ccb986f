"""Sources whose sensors fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.recordings.replay import RecordingSource
from edge.simulator.faults import Fault
from edge.simulator.faulty import FaultySource, parse_fault
from tests.edge.recordings.list_source import START_MS, ListSource, sample


def test_a_fault_befalls_the_main_sensor_only(recording: Path) -> None:
    """A stuck sensor repeats itself while the fault lasts; every other value of the recording stays as it is."""
    source = RecordingSource(recording, boot_seed=1)
    begin_ms = source.start_ms + 3_600_000
    fault = parse_fault("stuck:Koala:air_temp_c:60:120", source.zones, source.start_ms)
    faulty = FaultySource(source, [fault])
    stuck = set()
    true = RecordingSource(recording, boot_seed=1).samples(begin_ms + 86_400_000)
    for (ts_ms, found), (_, expected) in zip(faulty.samples(begin_ms + 86_400_000), true, strict=True):
        for ours, theirs in zip(found, expected, strict=True):
            if (ours.zone, ours.device) == ("Koala", "climate") and begin_ms <= ts_ms < begin_ms + 7_200_000:
                stuck.add(ours.values["air_temp_c"])
                assert {**ours.values, "air_temp_c": 0} == {**theirs.values, "air_temp_c": 0}
            else:
                assert ours == theirs
    assert len(stuck) == 1


def test_a_device_that_lost_its_only_value_is_silent() -> None:
    """A sample without any value left is not sent."""
    lone = sample(0, START_MS, rh_pct=70)
    climate = type(lone)(lone.site, lone.zone, "climate", lone.boot, lone.seq, lone.ts_ms, lone.values)
    faulty = FaultySource(ListSource([(START_MS, [climate])]), [Fault("drop_out", "z", "rh_pct", 0, START_MS + 1)])
    assert list(faulty.samples(START_MS)) == [(START_MS, [])]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("melted:z:rh_pct:0:1", "'melted' is not a fault; one of stuck"),
        ("stuck:y:rh_pct:0:1", "no zone 'y'; one of z, _site"),
        ("stuck:z:joy:0:1", "'joy' is not in the vocabulary"),
        ("stuck", "no zone ''"),
        ("stuck:z:rh_pct", "AFTER_MIN"),
        ("stuck:z:rh_pct:0:soon", "AFTER_MIN"),
        ("stuck:z:rh_pct:0:0", "AFTER_MIN"),
        ("stuck:z:rh_pct:0:inf", "AFTER_MIN"),
        ("stuck:z:rh_pct:0:1:2:3", "AFTER_MIN"),
    ],
)
def test_a_wrong_fault_is_named(text: str, says: str) -> None:
    """What is no fault is refused with what is allowed, in one sentence."""
    with pytest.raises(ValueError, match=r"^'") as error:
        parse_fault(text, ["z"], 0)
    assert says in str(error.value)
    assert repr(text) in str(error.value)
