"""What a reader of recordings leaves out, guesses or cuts is said once a file, with the line that mends it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.recordings.findings import numbers
from edge.recordings.recording import Recording, RecordingError, load_recording

ROWS = 200


def write(
    folder: Path, columns: dict[str, Callable[[int], str]], separator: str = ",", name: str = "north.csv"
) -> None:
    """A file of five-minute rows; each column's cell is a function of the row's number."""
    lines = [separator.join(["time", *columns])]
    for n in range(ROWS):
        cells = [cell(n) for cell in columns.values()]
        quoted = [f'"{cell}"' if separator in cell else cell for cell in cells]
        lines.append(separator.join([f"2022-02-01 {n // 12:02d}:{n % 12 * 5:02d}", *quoted]))
    (folder / name).write_text("\n".join(lines) + "\n")


def say(folder: Path, text: str) -> None:
    """What lies beside the files."""
    (folder / "recording.toml").write_text(text)


def values(recording: Recording, metric: str) -> np.ndarray:
    """A metric's values, of the first device that has it."""
    table = next(t for t in recording.tables if metric in t.metrics)
    return table.values[:, table.metrics.index(metric)]


def fixed(value: str) -> Callable[[int], str]:
    """A column that says one thing."""
    return lambda _: value


def warm(n: int) -> float:
    """A house by day and night, in °C."""
    return 20 + 5 * math.sin(n / 40)


@pytest.mark.parametrize(
    ("cell", "said", "fix"),
    [
        ("21.4°C", "", "without a unit"), ("1,021.5", "", "without a comma between thousands"),
        ("21.4", 'decimal = ","', 'say decimal = "."'), ("broken", "", 'missing = ["broken"]'),
    ],
)  # fmt: skip
def test_cells_that_are_no_numbers_are_told_with_what_mends_them(
    tmp_path: Path, cell: str, said: str, fix: str
) -> None:
    """Numbers with something beside them are no word for a missing value."""
    write(tmp_path, {"t_air_c": fixed(cell)})
    say(tmp_path, said)
    with pytest.raises(RecordingError) as error:
        load_recording(tmp_path)
    assert f"200 of 200 cells are no numbers, such as {cell!r}; " in str(error.value)
    assert fix in str(error.value)


def test_decimal_commas_of_a_target_are_an_error_that_says_what_to_write(tmp_path: Path) -> None:
    """Also one of many: Excel writes 21 and 21,4. With the line that the error names it is read."""
    write(tmp_path, {"t_air_c": lambda n: "21" if n else "21,4", "rh_pct": fixed("70")})
    with pytest.raises(RecordingError) as error:
        load_recording(tmp_path)
    assert str(error.value) == (
        f"north.csv: column t_air_c: 1 of {ROWS} cells have a decimal comma, such as '21,4'; "
        'say decimal = "," in recording.toml'
    )
    say(tmp_path, 'decimal = ","')
    recording = load_recording(tmp_path)
    assert values(recording, "air_temp_c")[:2].tolist() == [21.4, 21.0]
    assert recording.notes == ()


@pytest.mark.parametrize(
    ("names", "said"),
    [("ab", "a.csv, b.csv"), ("abcd", "a.csv, b.csv, c.csv, d.csv"), ("abcde", "a.csv, b.csv, c.csv and 2 more files")],
)
def test_decimal_commas_of_another_column_are_said_once(tmp_path: Path, names: str, said: str) -> None:
    """It is left out, by name and with the fix, in every file."""
    for name in names:
        columns = {"t_air_c": fixed("20"), "out_t_c": fixed("5,1"), "par_in_umol": fixed("9")}
        write(tmp_path, columns, name=f"{name}.csv")
    (note,) = load_recording(tmp_path).notes
    assert note.startswith(f"{said}: column out_t_c: ")
    assert 'decimal = ","' in note


def test_another_separator_is_named_and_then_read(tmp_path: Path) -> None:
    """Files with decimal commas have their columns parted by semicolons."""
    write(tmp_path, {"t_air_c": lambda n: f"{warm(n):.1f}".replace(".", ",")}, ";")
    with pytest.raises(RecordingError, match=r'say separator = ";" in recording\.toml'):
        load_recording(tmp_path)
    say(tmp_path, 'separator = ";"\ndecimal = ","')
    assert values(load_recording(tmp_path), "air_temp_c")[1] == round(warm(1), 1)


def test_a_target_in_fahrenheit_is_an_error_that_says_what_to_write(tmp_path: Path) -> None:
    """Its hottest hours would be cut off, the others be taken for °C. With the line it is °C."""
    write(tmp_path, {"t_air_c": lambda n: f"{warm(n) * 1.8 + 32:.2f}"})
    with pytest.raises(RecordingError) as error:
        load_recording(tmp_path)
    said = str(error.value)
    assert said.startswith("north.csv: column t_air_c looks like °F (59 to 77); say ")
    line = said.partition("say ")[2].partition(" in recording.toml")[0]
    assert line == 't_air_c = { metric = "air_temp_c", unit = "°F" }'
    say(tmp_path, f"[columns]\n{line}")
    recording = load_recording(tmp_path)
    assert recording.notes == ()
    np.testing.assert_allclose(values(recording, "air_temp_c"), [warm(n) for n in range(ROWS)], atol=0.01)


def test_a_target_in_shares_is_an_error_that_says_what_to_write(tmp_path: Path) -> None:
    """Humidity that is never above 1 is one in shares."""
    write(tmp_path, {"rh_pct": lambda n: f"{0.6 + n / 1000:.3f}"})
    with pytest.raises(RecordingError, match=r"looks like a share \(0.6 to 0.799\).*rh_pct.*unit = \"share\""):
        load_recording(tmp_path)
    say(tmp_path, '[columns]\nrh_pct = { metric = "rh_pct", unit = "share" }')
    assert values(load_recording(tmp_path), "rh_pct")[0] == pytest.approx(60.0)


def test_another_column_of_another_unit_is_left_out_and_said(tmp_path: Path) -> None:
    """Weather in °F and in shares: no value of it is used."""
    write(tmp_path, {"t_air_c": fixed("20"), "out_t_c": lambda n: str(55 + n % 20), "out_rh_pct": fixed("0.8")})
    recording = load_recording(tmp_path)
    assert [("°F" in note, "a share" in note) for note in recording.notes] == [(True, False), (False, True)]
    assert [table.device for table in recording.tables] == ["climate"]


def test_what_is_left_out_is_told_by_the_first_day(tmp_path: Path) -> None:
    """A backtest must not know of later values: percents that begin on the second day change nothing of the first."""
    found = []
    for later in ("0.8", "80"):
        lines = [f"2022-02-{1 + n // 24:02d} {n % 24:02d}:00,20,{'0.8' if n < 24 else later}" for n in range(72)]
        (tmp_path / "a.csv").write_text("\n".join(["time,t_air_c,out_rh_pct", *lines]))
        recording = load_recording(tmp_path)
        found.append([table.device for table in recording.tables])
        assert "looks like a share" in recording.notes[0]
    assert found == [["climate"], ["climate"]]


@pytest.mark.parametrize(("bad", "is_error"), [(2, False), (ROWS // 10, False), (ROWS // 10 + 1, True)])
@pytest.mark.parametrize(
    ("cell", "says"),
    [("-99", "values are not within -20 to 60 °C, such as -99"), ("ERR", "cells are no numbers, such as 'ERR'")],
)
def test_a_few_values_that_cannot_be_are_said_and_many_are_an_error(
    tmp_path: Path, bad: int, is_error: bool, cell: str, says: str
) -> None:
    """A couple of -99 of a sensor that was away are no error; more than a tenth of a target is."""
    write(tmp_path, {"t_air_c": lambda n: cell if n < bad else "20", "co2_ppm": fixed("600")})
    if is_error:
        with pytest.raises(RecordingError, match=f"t_air_c: {bad} of {ROWS} {says}"):
            load_recording(tmp_path)
        return
    (note,) = load_recording(tmp_path).notes
    assert f"t_air_c: {bad} of {ROWS} {says}" in note


def test_what_a_person_says_is_right_is_read(tmp_path: Path) -> None:
    """With its unit a column is taken as it is and what is cut is said; a word may be said to mean a missing value."""
    write(tmp_path, {"t_air_c": lambda n: "999" if n < 100 else "48", "rh_pct": lambda n: "off" if n < 100 else "70"})
    say(tmp_path, 'missing = ["OFF"]\n[columns]\nt_air_c = { metric = "air_temp_c", unit = "°C" }')
    recording = load_recording(tmp_path)
    (note,) = recording.notes
    assert "100 of 200 values are not within" in note
    assert "rh_pct" not in note


def test_a_hot_few_hours_are_said_with_the_unit_that_they_may_be_in(tmp_path: Path) -> None:
    """Setpoints in °F are above what °C may be: it is not a target, the sentence names the line."""
    write(tmp_path, {"t_air_c": fixed("20"), "sp_heating_temp_vip": fixed("64")})
    (note,) = load_recording(tmp_path).notes
    assert 'if they are °F: sp_heating_temp_vip = { metric = "sp_heat_c", unit = "°F" }' in note
    write(tmp_path, {"t_air_c": fixed("20"), "sp_heating_temp_vip": fixed("291.2")})
    (note,) = load_recording(tmp_path).notes
    assert 'if they are K: sp_heating_temp_vip = { metric = "sp_heat_c", unit = "K" }' in note


@pytest.mark.parametrize(
    ("cell", "taken"),
    [
        (lambda n: str(1 + n % 2), "a code of 1 dosing and 2 off"),
        (lambda n: str(n % 2 / 2), "a share of the time"),
        (lambda n: str(n % 100), ""),
    ],
)
def test_what_a_valves_numbers_are_taken_for_is_said(tmp_path: Path, cell: Callable[[int], str], taken: str) -> None:
    """Unless they are percents, or somebody said that they are to be told by themselves."""
    write(tmp_path, {"t_air_c": fixed("20"), "CO2_valve": cell})
    assert [taken in note for note in load_recording(tmp_path).notes] == ([True] if taken else [])
    say(tmp_path, '[columns]\nco2_valve = { metric = "co2_dosing_pct", coding = "dosing" }')
    assert not load_recording(tmp_path).notes


def test_directions_that_are_no_sectors_are_said(tmp_path: Path) -> None:
    """Degrees in a column that usually has sectors are missing, and the sentence says how to read them."""
    write(tmp_path, {"t_air_c": fixed("20"), "out_winddir": lambda n: str(n + 100)})
    (note,) = load_recording(tmp_path).notes
    assert "199 of 200 directions are none of the sectors" in note
    say(tmp_path, '[columns]\nout_winddir = { metric = "wind_dir_deg", unit = "°" }')
    assert values(load_recording(tmp_path), "wind_dir_deg")[:2].tolist() == [100, 101]


def test_irrigation_of_each_row_is_said_and_then_summed(tmp_path: Path) -> None:
    """Read as a meter's readings, half of it was lost without a word. A meter that begins anew each day is one."""
    write(tmp_path, {"air_temp_c": fixed("20"), "drip": lambda n: "0.25" if n % 12 < 3 else "0"})
    say(tmp_path, '[columns]\ndrip = "irrigation_l_m2"\n')
    (note,) = load_recording(tmp_path).notes
    assert note.startswith("north.csv: column drip falls 17 times and is read as a meter that goes up")
    line = 'drip = { metric = "irrigation_l_m2", coding = "gained" }'
    assert line in note
    say(tmp_path, f"[columns]\n{line}\n")
    summed = load_recording(tmp_path)
    assert not summed.notes
    assert values(summed, "irrigation_l_m2")[[0, 1, 2, 3, 12, -1]].tolist() == [0.25, 0.5, 0.75, 0.75, 1.0, 12.75]
    say(tmp_path, '[columns]\ndrip = { metric = "irrigation_l_m2", scale = 0.001 }\n')
    assert 'metric = "irrigation_l_m2", scale = 0.001, coding = "gained" }' in load_recording(tmp_path).notes[0]
    write(tmp_path, {"air_temp_c": fixed("20"), "drip": lambda n: f"{n % 20 / 4}"})
    say(tmp_path, '[columns]\ndrip = "irrigation_l_m2"\n')
    assert not load_recording(tmp_path).notes


def test_times_are_read_as_they_are_said_to_be_written(tmp_path: Path) -> None:
    """Another order of day and month is named by the file that has it, and then read."""
    (tmp_path / "a.csv").write_text("time,t_air_c\n01-02-2022 00:05,20\n02-02-2022 00:05,21\n")
    with pytest.raises(
        RecordingError, match=r"line 2: '01-02-2022 00:05' is no time .* say how it is written: time_format"
    ):
        load_recording(tmp_path)
    say(tmp_path, 'time_format = "%d-%m-%Y %H:%M"')
    (source,) = load_recording(tmp_path).sources
    assert (source.last_ms - source.first_ms, source.is_utc) == (86_400_000, False)
    say(tmp_path, 'time_format = "%Y"')
    with pytest.raises(RecordingError, match="is no time as '%Y'"):
        load_recording(tmp_path)


def test_parquet_of_words_is_told_as_text_is(tmp_path: Path) -> None:
    """A column of strings with decimal commas, as some exports have it."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    times = [f"2022-02-01 00:{n:02d}" for n in range(10)]
    pq.write_table(pa.table({"time": times, "t_air_c": ["20,5"] * 10}), tmp_path / "a.parquet")
    with pytest.raises(RecordingError, match="10 of 10 cells have a decimal comma"):
        load_recording(tmp_path)
    say(tmp_path, 'decimal = ","')
    assert values(load_recording(tmp_path), "air_temp_c").tolist() == [20.5] * 10


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("separator = '\"'", "separator"),
        ('separator = ";;"', "separator"),
        ('decimal = "x"', "decimal"),
        ('[columns]\nx = { metric = "rh_pct", unit = "°F" }', "the unit '°F', not one of %, pct, percent, share"),
        ('[columns]\nx = { metric = "air_temp_c", unit = "K", offset = 1 }', "a unit and a scale"),
    ],
)
def test_a_mapping_that_makes_no_sense_is_refused(tmp_path: Path, text: str, says: str) -> None:
    """In one sentence that names the key."""
    write(tmp_path, {"t_air_c": fixed("20")})
    say(tmp_path, text)
    with pytest.raises(RecordingError, match=says):
        load_recording(tmp_path)


@given(st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 3)), max_size=20), st.booleans())
def test_numbers_with_commas_are_those_with_points(expected: list[float], grouped: bool) -> None:
    """Whatever is written with a decimal comma, with or without points between thousands, is read as itself."""
    written = [
        f"{x:,.3f}".translate(str.maketrans(",.", ".,")) if grouped else f"{x:.3f}".replace(".", ",") for x in expected
    ]
    found, cells = numbers(written, ",")
    assert found.tolist() == expected
    assert (cells.said, cells.commas, cells.words) == (len(expected), 0, 0)


@given(st.lists(st.text(max_size=8) | st.none(), max_size=20))
def test_every_cell_is_a_number_missing_or_counted(cells: list[str | None]) -> None:
    """No text stops the reader, and none is left out without being counted."""
    for decimal in (".", ","):
        found, counted = numbers(cells, decimal)
        read = sum(1 for value, cell in zip(found, cells, strict=True) if not math.isnan(value) and cell)
        assert counted.said >= counted.commas + counted.words
        assert read <= counted.said - counted.commas - counted.words
