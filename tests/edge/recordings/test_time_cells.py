"""Times as files have them: Unix time, a day and an hour apart, none at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edge.recordings.recording import RecordingError, load_recording

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
    ],
)
def test_a_cell_that_is_no_time_says_what_to_do(tmp_path: Path, cell: str, says: str) -> None:
    """Not how to write a format where a format would not help."""
    write(tmp_path, ["2022-02-01", cell], **({"time_format": "%Y-%m-%d"} if cell == "20220201" else {}))
    with pytest.raises(RecordingError) as error:
        load_recording(tmp_path)
    assert says in str(error.value)


@pytest.mark.parametrize(("number", "unit"), [("1e400", "unix_s"), ("nan", "unix_ms"), ("1e17", "unix_s")])
def test_a_number_that_no_calendar_has_is_no_time(tmp_path: Path, number: str, unit: str) -> None:
    """One sentence, no traceback."""
    write(tmp_path, [number], time_format=unit)
    with pytest.raises(RecordingError, match=f"line 2: '{number}' is no time as '{unit}'"):
        load_recording(tmp_path)
