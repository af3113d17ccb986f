"""Clocks that are put forward and back."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.recordings.local_time import I64, to_utc_ms
from models.spec import Place

AMSTERDAM = zoneinfo.ZoneInfo("Europe/Amsterdam")
MINUTES_5 = 300_000


def shown(*times: str) -> I64:
    """What a clock showed, as milliseconds of a calendar without zones."""
    return np.array([round(datetime.fromisoformat(t).replace(tzinfo=UTC).timestamp() * 1000) for t in times])


def utc(*times: str) -> list[int]:
    return [round(datetime.fromisoformat(t).replace(tzinfo=UTC).timestamp() * 1000) for t in times]


def test_the_repeated_hour_is_read_twice() -> None:
    """In autumn the rows after the clock went back belong to the second pass of the hour."""
    times = shown("2021-10-31 02:30", "2021-10-31 02:55", "2021-10-31 02:00", "2021-10-31 02:55", "2021-10-31 03:00")
    rows, found = to_utc_ms(times, AMSTERDAM)
    assert rows.tolist() == [0, 1, 2, 3, 4]
    assert found.tolist() == utc(
        "2021-10-31 00:30", "2021-10-31 00:55", "2021-10-31 01:00", "2021-10-31 01:55", "2021-10-31 02:00"
    )


def test_pairs_of_the_repeated_hour_are_two_passes() -> None:
    """A file sorted by local time holds each time of the repeated hour twice in a row: one of each pass."""
    times = shown("2021-10-31 02:00", "2021-10-31 02:00", "2021-10-31 02:30", "2021-10-31 02:30", "2021-10-31 03:00")
    rows, found = to_utc_ms(times, AMSTERDAM)
    assert rows.tolist() == [0, 2, 1, 3, 4]
    assert found.tolist() == utc(
        "2021-10-31 00:00", "2021-10-31 00:30", "2021-10-31 01:00", "2021-10-31 01:30", "2021-10-31 02:00"
    )


def test_a_repeated_hour_that_is_there_once_is_the_first_pass() -> None:
    """A regular local grid has the hour once; an hour of UTC is then missing, and time still rises."""
    _, found = to_utc_ms(
        shown("2021-10-31 01:55", "2021-10-31 02:00", "2021-10-31 02:55", "2021-10-31 03:00"), AMSTERDAM
    )
    assert found.tolist() == utc("2021-10-30 23:55", "2021-10-31 00:00", "2021-10-31 00:55", "2021-10-31 02:00")


def test_the_skipped_hour_is_left_out() -> None:
    """In spring the hour that the clock never showed is left out instead of running over the next one."""
    times = shown("2022-03-27 01:55", "2022-03-27 02:00", "2022-03-27 02:55", "2022-03-27 03:00")
    rows, found = to_utc_ms(times, AMSTERDAM)
    assert rows.tolist() == [0, 3]
    assert found.tolist() == utc("2022-03-27 00:55", "2022-03-27 01:00")


def test_a_standard_clock_has_no_odd_days() -> None:
    """A clock that leaves daylight saving out loses no row on either day."""
    for day in ("2022-03-27", "2021-10-31"):
        start = shown(f"{day} 00:00")[0]
        times = start + MINUTES_5 * np.arange(288)
        rows, found = to_utc_ms(times, AMSTERDAM, "standard")
        assert rows.size == 288
        assert (found == times - 3_600_000).all()


def test_a_repeated_time_is_left_out() -> None:
    """Of two rows at one instant the first stays."""
    rows, _ = to_utc_ms(shown("2022-02-01 00:00", "2022-02-01 00:05", "2022-02-01 00:05"), AMSTERDAM)
    assert rows.tolist() == [0, 1]


@given(
    start=st.datetimes(datetime(2000, 1, 1), datetime(2035, 1, 1)),  # noqa: DTZ001 (of a calendar)
    step_min=st.sampled_from([1, 5, 10, 15, 60]),
    zone=st.sampled_from(["Europe/Amsterdam", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"]),
    reverse=st.booleans(),
)
def test_what_a_civil_clock_showed_is_read_back(start: datetime, step_min: int, zone: str, reverse: bool) -> None:
    """Three days of UTC, written by the site's clock in either order, come back exactly where the clock is whole hours.

    Where a clock goes back by other than an hour time still rises strictly.
    """
    info = zoneinfo.ZoneInfo(zone)
    begin = start.replace(minute=0, second=0, microsecond=0, tzinfo=UTC)
    instants = [begin + timedelta(minutes=step_min * i) for i in range(3 * 1440 // step_min)]
    local = np.array(
        [round(t.astimezone(info).replace(tzinfo=UTC).timestamp() * 1000) for t in instants], dtype=np.int64
    )
    expected = [round(t.timestamp() * 1000) for t in instants]
    rows, found = to_utc_ms(local[::-1] if reverse else local, info)
    assert (np.diff(found) > 0).all()
    if zone != "Australia/Lord_Howe" and not (step_min == 60 and zone != "UTC"):
        assert found.tolist() == expected
        assert rows.size == local.size


@pytest.mark.parametrize("timezone", ["Europe/Dublin", "Europe/Amsterdam", "Africa/Casablanca", "America/New_York"])
def test_a_standard_clock_is_read_as_models_show_it(timezone: str) -> None:
    """Of any day of the year, also where the law's standard time is that of summer."""
    at = utc(*(f"2026-{month:02}-05 12:00" for month in range(1, 13)))
    place = Place(timezone, "standard")
    _, found = to_utc_ms(np.array([place.local_ms(ms) for ms in at]), zoneinfo.ZoneInfo(timezone), "standard")
    assert found.tolist() == at
