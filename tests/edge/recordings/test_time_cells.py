"""Times as files have them: Unix time, a day and an hour apart, none at all."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edge.recordings.recording import RecordingError, load_recording
from edge.recordings.time_cells import moment

T0 = 1_643_670_000


def write(folder: Path, times: list[str], **said: str) -> None:
    (folder / "a.csv").write_text("time,t_air_c\n" + "".join(f"{time},20\n" for time in times))
    (folder / "recording.toml").write_text("".join(f'{name} = "{what}"\n' for name, what in said.items()))


@pytest.mark.parametrize(("unit", "scale"), [("unix_s", 1), ("unix_ms", 1000)])
def test_unix_time_is_named_and_then_read(tmp_path: Path, unit: str, scale: int) -> None:
    """The sentence says which line to write; what it says then works, whatever the clock of the site."""
    write(tmp_path, [str(T0 * scale), str((T0 + 300) * scale)])
    with pytest.raises(RecordingError, match=f'line 2: .* is Unix time; say time_format = "{unit}" in recording.toml'):
        load_recording(tmp_path, timezone="Europe/Amsterdam")
    write(tmp_path, [str(T0 * scale), str((T0 + 300) * scale)], time_format=unit)
    (table,) = (recording := load_recording(tmp_path, timezone="Europe/Amsterdam")).tables
    assert table.times_ms.tolist() == [T0 * 1000, (T0 + 300) * 1000]
    assert recording.sources[0].is_utc


def test_numbers_of_parquet_are_unix_time_too(tmp_path: Path) -> None:
    """Where nobody says what they count, the sentence does."""
    pq.write_table(pa.table({"time": [T0, T0 + 300], "t_air_c": [20.0, 21.0]}), tmp_path / "a.parquet")
    with pytest.raises(RecordingError, match=r'say time_format = "unix_s" in recording\.toml'):
        load_recording(tmp_path)
    (tmp_path / "recording.toml").write_text('time_format = "unix_s"\n')
    assert load_recording(tmp_path).tables[0].times_ms.tolist() == [T0 * 1000, (T0 + 300) * 1000]
    pq.write_table(pa.table({"time": [1.5, 2.5], "t_air_c": [20.0, 21.0]}), tmp_path / "a.parquet")
    (tmp_path / "recording.toml").unlink()
    with pytest.raises(RecordingError, match="holds numbers, not times; such as 2"):
        load_recording(tmp_path)


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("", "line 3: there is no time; remove that line"),
        ("00:05", "put both into one column"),
        ("12:05 AM", "put both into one column"),
        ("16:05:10.5", "put both into one column"),
        ("20220201", "line 3: '20220201' is no time as '%Y-%m-%d'"),
        ("1e400", "is no time"),
        ("Average", "line 3: 'Average' is no time; remove that line"),
        ("44593.0035", "'44593.0035' is a spreadsheet's number of a day"),
        ("2022/02/01 00:05", 'say how it is written: time_format = "%Y/%m/%d %H:%M", in recording.toml'),
        ("13.02.22 00:05", 'say how it is written: time_format = "%d.%m.%y %H:%M", in recording.toml'),
        ("3/1/2022 1:05 PM", '"%d/%m/%Y %I:%M %p", or "%m/%d/%Y %I:%M %p" if the month comes first, in recording.toml'),
        (
            "24-02-2022 24:00",
            "'24-02-2022 24:00' is no time such as 2022-02-01 00:05; say how it is written: time_format",
        ),
        ("9999-12-31 24:00", "'9999-12-31 24:00' is no time"),
        ("3/13/2022 1:05", 'say how it is written: time_format = "%m/%d/%Y %H:%M", in recording.toml'),
    ],
)
def test_a_cell_that_is_no_time_says_what_to_do(tmp_path: Path, cell: str, says: str) -> None:
    """Not how to write a format where a format would not help."""
    write(tmp_path, ["2022-02-01", cell], **({"time_format": "%Y-%m-%d"} if cell == "20220201" else {}))
    with pytest.raises(RecordingError) as error:
        load_recording(tmp_path)
    assert says in str(error.value)


def test_a_spreadsheets_day_with_a_decimal_comma_is_one() -> None:
    """No format reads it, whatever stands before its fraction."""
    with pytest.raises(RecordingError, match="'44593,0035' is a spreadsheet's number of a day"):
        moment("44593,0035", "a.csv", "")


@pytest.mark.parametrize(("number", "unit"), [("1e400", "unix_s"), ("nan", "unix_ms"), ("1e17", "unix_s")])
def test_a_number_that_no_calendar_has_is_no_time(tmp_path: Path, number: str, unit: str) -> None:
    """One sentence, no traceback."""
    write(tmp_path, [number], time_format=unit)
    with pytest.raises(RecordingError, match=f"line 2: '{number}' is no time as '{unit}'"):
        load_recording(tmp_path)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (pa.array([T0 * 1000, T0 * 1000 + 300_000]), 'time_format = "unix_s"'),  # they are milliseconds
        (pa.array([T0 * 1_000_000, T0 * 1_000_000 + 300_000], pa.timestamp("ms", tz="UTC")), ""),
    ],
)
def test_times_of_parquet_that_no_calendar_has_are_refused(tmp_path: Path, times: pa.Array, said: str) -> None:
    """One sentence, no traceback."""
    pq.write_table(pa.table({"time": times, "t_air_c": [20.0, 21.0]}), tmp_path / "a.parquet")
    (tmp_path / "recording.toml").write_text(said)
    with pytest.raises(RecordingError, match=r"a\.parquet: some times are of no year from 2 to 9998; .* time_format"):
        load_recording(tmp_path)


@pytest.mark.parametrize("none", ["0001-01-01 00:00", "9999-12-31 23:59"])
def test_a_program_writes_its_first_or_last_time_for_none(tmp_path: Path, none: str) -> None:
    """In UTC it may be of the year 0 or 10000, which no calendar has."""
    write(tmp_path, ["2022-02-01", none])
    with pytest.raises(RecordingError, match=r"a\.csv: some times are of no year from 2 to 9998; remove their rows"):
        load_recording(tmp_path, timezone="Europe/Amsterdam" if none < "2" else "America/New_York")


def test_parquet_may_hold_days_and_must_hold_a_time_in_each_row(tmp_path: Path) -> None:
    """A day is its midnight, as in CSV; rows without a time are counted."""
    days = pa.array([date(2022, 2, 1), date(2022, 2, 2)])
    pq.write_table(pa.table({"time": days, "t_air_c": [20.0, 21.0]}), tmp_path / "a.parquet")
    (source,) = load_recording(tmp_path).sources
    assert (source.first_ms, source.last_ms) == (1_643_673_600_000, 1_643_760_000_000)
    pq.write_table(
        pa.table({"time": [None, datetime(2022, 2, 1, tzinfo=UTC)], "t_air_c": [20.0, 21.0]}), tmp_path / "a.parquet"
    )
    with pytest.raises(RecordingError, match=r"a\.parquet: 1 of 2 rows have no time; remove them"):
        load_recording(tmp_path)


def test_a_line_that_names_the_separator_is_taken_at_its_word(tmp_path: Path) -> None:
    """Spreadsheets read `sep=;` in the first line, and some programs write it."""
    (tmp_path / "a.csv").write_text('"sep=;"\r\ntime;t_air_c\r\n2022-02-01 00:05;20\r\n2022-02-01 00:10;21\r\n')
    (table,) = load_recording(tmp_path).tables
    assert table.values.tolist() == [[20.0], [21.0]]
