"""A recording's devices speak again."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.recordings.replay import RecordingSource
from edge.wire.plan import PlanMessage
from edge.wire.reading import decode, encode_message
from edge.wire.topic import sample_topic
from edge.wire.vocabulary import VOCABULARY, base_metric

LETTUCE = Path(__file__).parents[2] / "data" / "lettuce_2022"


def ids(source: RecordingSource, to_ms: int) -> list[tuple[int, str, str, int]]:
    return [(ts, s.zone, s.device, s.seq) for ts, samples in source.samples(to_ms) for s in samples]


def test_a_real_recording_speaks_whole(recording: Path) -> None:
    """Every sample of a real recording passes the gateway's check as it is, at its own time, in order."""
    source = RecordingSource(recording, timezone="Europe/Amsterdam", boot_seed=1)
    assert source.zones == ("Koala", "Reference")
    seen, last = set(), source.start_ms - 1
    for ts_ms, samples in source.samples(2**53):
        assert ts_ms > last
        last = ts_ms
        for sample in samples:
            decoded = decode(sample_topic(sample.site, sample.zone, sample.device), encode_message([sample]), ts_ms)
            assert decoded.samples == [sample]
            assert not decoded.refusals
            seen |= {base_metric(metric) for metric in sample.values}
    assert last == source.end_ms
    assert (
        {"air_temp_c", "rh_pct", "co2_ppm", "out_radiation_w_m2", "wind_dir_deg", "sp_heat_c"}
        <= seen
        <= set(VOCABULARY)
    )


def test_the_recordings_values_are_kept(recording: Path) -> None:
    """A zone's main sensors carry the recorded values at the recorded local time."""
    source = RecordingSource(recording, timezone="Europe/Amsterdam")
    ts_ms, samples = next(source.samples(2**53))
    assert ts_ms == 1643670000000  # 2022-02-01 00:00 in Amsterdam
    koala = next(s for s in samples if (s.zone, s.device) == ("Koala", "climate"))
    assert set(koala.values) >= {"air_temp_c", "rh_pct", "co2_ppm", "hd_g_m3"}
    weather = [s for s in samples if s.zone == "_site"]
    assert [s.device for s in weather] == ["weather"]


def test_the_main_device_is_primary() -> None:
    """Where a zone has a second sensor of a metric, its climate computer's is named as the zone's."""
    primary = RecordingSource(LETTUCE).primary
    assert primary["air_temp_c"] == primary["rh_pct"] == "climate"
    assert "co2_ppm" not in primary


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(cuts=st.lists(st.tuples(st.integers(0, 400), st.booleans(), st.integers(0, 20)), max_size=5))
@pytest.mark.thorough
def test_a_source_goes_on_where_it_stopped(recording: Path, cuts: list[tuple[int, bool, int]]) -> None:
    """However a source is read, in pieces or with skips, no sample comes twice, out of order or with another id."""
    source = RecordingSource(recording, boot_seed=1)
    whole = ids(RecordingSource(recording, boot_seed=1), 2**53)
    start = source.start_ms
    found, skipped = [], set()
    for step, skip, taken in sorted(cuts):
        to_ms = start + step * 300_000
        if skip:
            source.skip(to_ms)
            skipped |= {i for i in whole if i[0] <= to_ms}
        else:
            for _, (ts, samples) in zip(range(taken), source.samples(to_ms), strict=False):
                found += [(ts, s.zone, s.device, s.seq) for s in samples]
    found += ids(source, 2**53)
    assert found == sorted(found, key=lambda i: i[0])
    assert len(set(found)) == len(found)
    assert set(found) | skipped >= set(whole)


def test_plans_are_given_once_when_they_were_issued(recording: Path) -> None:
    """Each plan comes with the first instant at or after its issue, in order; skipped ones never come."""
    first_ms = RecordingSource(recording).start_ms
    issues = [first_ms + minutes * 60_000 for minutes in (61, -600, 0, 300)]
    plans = [PlanMessage("lettuce", "_site", "knmi", "weather", ms, {"out_temp_c": [(ms, 4.0)]}) for ms in issues]
    source = RecordingSource(recording, foreseen=plans)
    assert source.plans() == []
    came = [(ts_ms, plan.issued_ms) for ts_ms, _ in source.samples(first_ms + 7_200_000) for plan in source.plans()]
    assert came == [(first_ms, issues[1]), (first_ms, issues[2]), (first_ms + 3_900_000, issues[0])]
    source.skip(issues[3])
    assert [plan for _ in source.samples(issues[3] + 3_600_000) for plan in source.plans()] == []


def test_columns_without_a_metric_are_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is left out of a recording is one warning."""
    (tmp_path / "a.csv").write_text("time,t_air_c,mystery\n2022-02-01 00:00,20,1\n")
    (tmp_path / "b.csv").write_text("time,t_air_c,mystery\n2022-02-01 00:00,20,1\n")
    with caplog.at_level(logging.WARNING):
        source = RecordingSource(tmp_path)
    assert source.unmapped == ("mystery",)
    assert len(caplog.records) == 1


def test_the_demonstration_recording_needs_no_argument(caplog: pytest.LogCaptureFixture) -> None:
    """The recording for the demonstration says itself where it is from, and leaves nothing out unsaid."""
    with caplog.at_level(logging.WARNING):
        source = RecordingSource(LETTUCE)
    assert (source.site, source.timezone, source.latitude) == ("lettuce", "Europe/Amsterdam", 51.98)
    assert source.zones == ("CVA", "Koala", "Reference")
    assert not source.unmapped
    assert not caplog.records
