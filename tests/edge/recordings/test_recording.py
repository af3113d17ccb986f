"""Reading folders of recordings."""

from __future__ import annotations

import gzip
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edge.recordings import packed_file
from edge.recordings.recording import DeviceTable, Recording, RecordingError, load_recording
from edge.recordings.zone_file import MOST_CELLS

CSV = """time,t_air_c,rh_pct,Tair_sigrow,out_t_c,mystery
2022-02-01 00:00:00,20.1,70,19.9,5.0,1
2022-02-01 00:05:00,20.2,,19.8,,2
2022-02-01 00:10:00,,,,,3
"""


def table(recording: Recording, zone: str, device: str) -> DeviceTable:
    return next(t for t in recording.tables if (t.zone, t.device) == (zone, device))


def test_a_csv_becomes_tables(tmp_path: Path) -> None:
    """A file's columns become its devices' tables, in UTC, without empty rows; a column without a metric is listed."""
    (tmp_path / "north.csv").write_text(CSV)
    recording = load_recording(tmp_path, timezone="Europe/Amsterdam", site="s")
    assert (recording.site, recording.zones, recording.interval_ms) == ("s", ("north",), 300_000)
    climate = table(recording, "north", "climate")
    assert climate.metrics == ("air_temp_c", "rh_pct")
    assert climate.times_ms.tolist() == [1643670000000, 1643670300000]
    np.testing.assert_array_equal(climate.values, [[20.1, 70], [20.2, np.nan]])
    assert table(recording, "_site", "weather").times_ms.tolist() == [1643670000000]
    assert table(recording, "north", "sigrow").metrics == ("air_temp_c",)
    assert recording.unmapped == ("mystery",)


def test_all_formats_read_alike(tmp_path: Path) -> None:
    """CSV, CSV.xz, CSV.gz and Parquet (its time a timestamp) give the same tables."""
    pandas = pytest.importorskip("pandas")
    found = []
    for ending in ("csv", "csv.xz", "csv.gz", "parquet"):
        folder = tmp_path / ending.replace(".", "-")
        folder.mkdir()
        path = folder / f"north.{ending}"
        if ending == "parquet":
            frame = pandas.read_csv(tmp_path / "csv" / "north.csv", parse_dates=["time"])
            frame.to_parquet(path)
        else:
            opener = {"csv": open, "csv.xz": lzma.open, "csv.gz": gzip.open}[ending]
            with opener(path, "wt") as file:
                file.write(CSV)
        found.append(load_recording(folder, timezone="Europe/Amsterdam").tables)
    for tables in found[1:]:
        for ours, first in zip(tables, found[0], strict=True):
            assert (ours.zone, ours.device, ours.metrics) == (first.zone, first.device, first.metrics)
            np.testing.assert_array_equal(ours.times_ms, first.times_ms)
            np.testing.assert_array_equal(ours.values, first.values)


def test_times_with_an_offset_are_utc_already(tmp_path: Path) -> None:
    """A time that carries its UTC offset needs no time zone."""
    (tmp_path / "z.csv").write_text("time,t_air_c\n2022-02-01T00:00:00+01:00,20\n2022-02-01T00:05:00+01:00,20\n")
    recording = load_recording(tmp_path, timezone="America/New_York")
    assert recording.tables[0].times_ms.tolist() == [1643670000000, 1643670300000]


def test_the_weather_is_the_sites(tmp_path: Path) -> None:
    """Outside columns of all zones make one station: at each instant the first zone that has a value gives it."""
    (tmp_path / "a.csv").write_text("time,out_t_c,out_wind_ms\n2022-02-01 00:00,1,\n2022-02-01 00:05,,3\n")
    (tmp_path / "b.csv").write_text("time,out_t_c,out_wind_ms\n2022-02-01 00:00,9,2\n2022-02-01 00:10,9,\n")
    (station,) = load_recording(tmp_path).tables
    assert (station.zone, station.device) == ("_site", "weather")
    np.testing.assert_array_equal(station.values, [[1, 2], [np.nan, 3], [9, np.nan]])


def test_the_valves_coding_is_that_of_all_zones(tmp_path: Path) -> None:
    """A valve that one zone has at 1 throughout is per cent where another zone's shows per cent."""
    (tmp_path / "a.csv").write_text("time,co2_valve\n2022-02-01 00:00,1\n2022-02-01 00:05,1\n")
    (tmp_path / "b.csv").write_text("time,co2_valve\n2022-02-01 00:00,0\n2022-02-01 00:05,60\n")
    recording = load_recording(tmp_path)
    assert table(recording, "a", "control").values.tolist() == [[1], [1]]


def test_the_valves_coding_does_not_depend_on_the_future(tmp_path: Path) -> None:
    """What comes after the first day says what numbers mean from then on, and changes nothing before."""
    lines = [f"2022-02-0{day} {hour:02}:00,{1 + hour % 2}\n" for day in (1, 2, 3) for hour in range(24)]
    (tmp_path / "a.csv").write_text("time,co2_valve\n" + "".join(lines))
    before = table(load_recording(tmp_path), "a", "control").values[:, 0]
    assert before.tolist() == [100.0, 0.0] * 36
    lines[60:] = [line.replace(",1", ",40").replace(",2", ",0") for line in lines[60:]]
    (tmp_path / "a.csv").write_text("time,co2_valve\n" + "".join(lines))
    after = table(load_recording(tmp_path), "a", "control").values[:, 0]
    assert after[:60].tolist() == before[:60].tolist()
    assert after[60:].tolist() == [40.0, 0.0] * 6


def test_what_lies_beside_recordings_is_left_out_and_noted(tmp_path: Path) -> None:
    """A list of columns, an empty export and what a system hides there do not stop the rest."""
    (tmp_path / "a.csv").write_text("time,t_air_c\n2022-02-01 00:00,20\n,\n")
    (tmp_path / "columns.csv").write_text("column,unit\nt_air_c,degC\n")
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "late.csv").write_text("time,t_air_c\n")
    (tmp_path / "._a.csv").write_bytes(b"\x00\x05\x16\x07")
    recording = load_recording(tmp_path)
    assert [source.name for source in recording.sources] == ["a"]
    assert [note.split()[0] for note in recording.notes] == ["columns.csv", "empty.csv", "late.csv"]


def test_what_an_export_writes_is_read_without_a_word(tmp_path: Path) -> None:
    """It was said of its columns site and zone that no metric is known for them, and to name them."""
    (tmp_path / "2.1.csv").write_text("site,zone,time,air_temp_c\ndemo,2.1,2022-02-01 00:05:00+00:00,20.0\n")
    recording = load_recording(tmp_path)
    assert (recording.zones, recording.unmapped, recording.notes) == (("2.1",), (), ())


def test_times_that_no_clock_showed_are_no_recording(tmp_path: Path) -> None:
    """A file of the hour alone that spring skips."""
    (tmp_path / "a.csv").write_text("time,t_air_c\n2022-03-27 02:30,20\n")
    with pytest.raises(RecordingError, match="no row of a time that the clock showed"):
        load_recording(tmp_path, timezone="Europe/Amsterdam")


def test_names_of_any_script_are_zones(tmp_path: Path) -> None:
    """A name without a Latin letter becomes a number; the file's own name is kept beside it."""
    folder = tmp_path / "温室"
    folder.mkdir()
    (folder / "北.csv").write_text("time,t_air_c\n2022-02-01 00:00,20\n")
    recording = load_recording(folder)
    assert (recording.site, recording.zones, recording.sources[0].name) == ("site", ("zone-1",), "北")


def test_parquet_of_words_reads_as_csv_does(tmp_path: Path) -> None:
    """Text and dictionaries of text, for times and for numbers."""
    times, said = ["2022-02-01 00:00:00+01:00", "2022-02-01 00:05:00+01:00"], ["20", "NULL"]
    columns = {
        "time": pa.array(times).dictionary_encode(),
        "t_air_c": pa.array(said, pa.large_string()),
        "rh_pct": [7, 8],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    (found,) = load_recording(tmp_path).tables
    assert found.times_ms.tolist() == [1643670000000, 1643670300000]
    np.testing.assert_array_equal(found.values, [[20, 7], [np.nan, 8]])


def test_two_columns_of_a_metric_keep_apart(tmp_path: Path) -> None:
    """A second column of a device's metric becomes ``metric.2``."""
    (tmp_path / "a.csv").write_text("time,t_air_c,air_temp_c\n2022-02-01 00:00,20,21\n")
    assert load_recording(tmp_path).tables[0].metrics == ("air_temp_c", "air_temp_c.2")


def test_two_columns_with_one_name_are_refused(tmp_path: Path) -> None:
    """One of them would be lost, and nobody knows which is meant."""
    (tmp_path / "a.csv").write_text("time,rh_pct,RH_pct\n2022-02-01 00:00,20,90\n2022-02-01 00:05,21,91\n")
    with pytest.raises(RecordingError, match="two columns are called 'RH_pct'"):
        load_recording(tmp_path)


def test_words_for_nothing_are_missing_values(tmp_path: Path) -> None:
    """A word in place of a number is a missing value."""
    (tmp_path / "a.csv").write_text("time,t_air_c,rh_pct\n2022-02-01 00:00,NULL,70\n2022-02-01 00:05,inf,71\n")
    assert load_recording(tmp_path).tables[0].values[:, 1].tolist() == [70, 71]


def test_rows_that_are_left_out_are_noted(tmp_path: Path) -> None:
    """A row whose time was never shown, or is there twice, is left out and counted in a note."""
    (tmp_path / "a.csv").write_text(
        "time,t_air_c\n2022-03-27 01:55,1\n2022-03-27 02:30,2\n2022-03-27 03:00,3\n2022-03-27 03:00,4\n"
        + "".join(f"2022-03-27 {hour:02}:00,5\n" for hour in range(4, 16))
    )
    recording = load_recording(tmp_path, timezone="Europe/Amsterdam")
    assert recording.tables[0].values.tolist() == [[1], [3], *[[5]] * 12]
    assert "2 of 16 rows left out" in recording.notes[0]


def test_zones_that_share_a_file_are_refused(tmp_path: Path) -> None:
    """More than a tenth of rows that say something else at a time that is there is an error, however long each zone is;
    rows that are there twice as they are do no harm.
    """
    first = [f"2022-02-01 {hour:02}:00,20,70" for hour in range(24)]
    for more, is_error in (([row.replace("20,70", "21,") for row in first[:4]], True), (first, False)):
        (tmp_path / "all.csv").write_text("\n".join(["time,t_air_c,rh_pct", *first, *more]))
        if is_error:
            with pytest.raises(RecordingError, match=r"4 of 28 rows have a time that is there twice.* a file a zone"):
                load_recording(tmp_path)
        else:
            assert load_recording(tmp_path).notes[0].startswith("all.csv: 24 of 48 rows left out")


def test_what_is_said_beside_the_files_is_used(tmp_path: Path) -> None:
    """``recording.toml`` names site, place and columns; what is given by hand wins."""
    (tmp_path / "Zone 1.csv").write_text("stamp,T\n2022-02-01 00:00,20\n")
    (tmp_path / "recording.toml").write_text(
        'site = "north"\ntimezone = "Asia/Tokyo"\nlatitude = 35.0\nlongitude = 139.0\ntime = "stamp"\n'
        '[columns]\nt = "air_temp_c"\n'
    )
    recording = load_recording(tmp_path, latitude=36.0)
    assert (recording.site, recording.timezone, recording.latitude, recording.longitude) == (
        "north", "Asia/Tokyo", 36.0, 139.0,
    )  # fmt: skip
    assert recording.zones == ("Zone-1",)
    assert recording.tables[0].times_ms.tolist() == [1643641200000]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", b"", "no column 'time'"),
        ("a.csv", b"when,t_air_c\n", 'say which one holds the time, as time = "timestamp", in recording.toml'),
        ("a.csv", b"Export of house 1\ntime,t_air_c\n", "names its columns in line 2, not in its first; remove the"),
        ("a.csv", b"Export,,\n,,\ntime,t_air_c\n", "names its columns in line 3, not in its first; remove the lines"),
        ("a.csv", b"Export of house 1\ntime;t_air_c\n", "its first line must name the columns"),
        ("a.csv", b"sep=;\ntime;t_air_c\n2022-02-01 00:00;1\n2022-02-01 0", "damaged: line 4 has 1 cells"),
        ("a.csv", b"PK\x03\x04 and so on", "is a spreadsheet or an archive: open it where it was made"),
        ("a.parquet", b"\xd0\xcf\x11\xe0 and so on", "is a spreadsheet or an archive: open it where it was made"),
        ("a.xlsx", b"PK\x03\x04 and so on", 'of a.xlsx: open it where it was made, and save it as "CSV UTF-8"'),
        ("a.csv", b"time,t_air_c\n", "no row"),
        ("a.csv", b"time,t_air_c\n2022-02-01 00:00,1\n2022-02-01 0", "damaged: line 3 has 1 cells"),
        ("a.csv", b"time,t_air_c\nyesterday,1\n", "line 2: 'yesterday' is no time"),
        ("a.csv", b"time,t_air_c,\xb0C\n2022-02-01 00:00,1,\n", "is not in UTF-8, or damaged: save it as"),
        ("a.csv", b"time,\xb0C\n", "iconv -f WINDOWS-1252 -t UTF-8"),
        ("a.csv", "time,t_air_c\n".encode("utf-16"), "iconv -f UTF-16 -t UTF-8"),
        ("a.csv", b"time,mystery\n2022-02-01 00:00,1\n", "no value of a column that is understood"),
        ("a.csv.xz", b"not xz", "damaged"),
        ("a.csv.xz", lzma.compress(CSV.encode())[:-30], "damaged"),
        ("a.csv.gz", gzip.compress(CSV.encode())[:-12], "damaged"),
        ("a.parquet", b"PAR1 and so on", "damaged"),
        ("a.txt", b"hello", "holds no recording"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    """A damaged, empty or foreign file is refused with one clear sentence, not a traceback of something else."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RecordingError) as error:
        load_recording(tmp_path)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_no_folder_and_no_such_zone_are_refused(tmp_path: Path) -> None:
    """A folder that is not there and a time zone that is not one are named."""
    with pytest.raises(RecordingError, match="there is no folder"):
        load_recording(tmp_path / "nowhere")
    with pytest.raises(RecordingError, match="Mars/Olympus"):
        load_recording(tmp_path, timezone="Mars/Olympus")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The edge install has no pyarrow; a Parquet file then says how to get it."""
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RecordingError, match="pip install pyarrow"):
        load_recording(tmp_path)


@pytest.mark.parametrize(("ending", "pack"), [(".csv.xz", lzma.compress), (".csv.gz", gzip.compress)])
@pytest.mark.parametrize("line", [b"", b",,,,,\n"], ids=["one line", "many lines"])
def test_a_small_file_that_unpacks_to_a_memory_full_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, pack: Callable[[bytes], bytes], line: bytes
) -> None:
    """Reading stops at a bound, whether the file has lines or not: behind it are bytes that cannot be unpacked."""
    monkeypatch.setattr(packed_file, "MOST_BYTES", 8_000_000)
    part = pack(line * 170_000 or bytes(1_000_000))
    (tmp_path / f"a{ending}").write_bytes(pack(CSV.encode()) + 20 * part + b"no more")
    assert (tmp_path / f"a{ending}").stat().st_size < 80_000
    with pytest.raises(RecordingError, match=f"a{ending} unpacks to more than 8 MB"):
        load_recording(tmp_path, timezone="UTC", site="s")


def test_parquet_of_billions_of_cells_is_refused(tmp_path: Path) -> None:
    """A megabyte says of many million times that they are the same; they are counted before they are read."""
    rows = MOST_CELLS // 2 + 1
    same = pa.repeat(pa.scalar(1_643_670_000_000, pa.timestamp("ms")), 1_000_000)
    value = pa.repeat(pa.scalar(20.5), 1_000_000)
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema({"time": same.type, "t_air_c": value.type})) as writer:
        batch = pa.table({"time": same, "t_air_c": value})
        for _ in range(-(-rows // len(same))):
            writer.write_table(batch)
    assert (tmp_path / "a.parquet").stat().st_size < 2_000_000
    with pytest.raises(RecordingError, match="cells, at most 250,000,000 are read"):
        load_recording(tmp_path, timezone="UTC", site="s")


def test_reading_tells_how_far_it_is(tmp_path: Path) -> None:
    """In bytes of all files, also of one that is packed: on the way, never back, and never more than there are."""
    lines = "\n".join(f"2022-02-01 00:00:{n // 1000:02d}.{n % 1000:03d},{n % 30}" for n in range(5000))
    text = f"time,t_air_c\n{lines}\n".encode()
    (tmp_path / "a.csv").write_bytes(text)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(text))
    told: list[tuple[int, int]] = []
    load_recording(tmp_path, progress=lambda done, total: told.append((done, total)))
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert {of for _, of in told} == {total}
    done = [bytes_read for bytes_read, _ in told]
    assert done == sorted(done)
    assert 0 == done[0] < done[5] < len(text) < done[-1] <= total


def test_a_folder_of_recordings_names_one_of_them(tmp_path: Path) -> None:
    """Who names the folder above it is not told to convert a file that happens to lie beside it."""
    (tmp_path / "README.md").write_text("Recordings")
    (tmp_path / "tomatoes").mkdir()
    (tmp_path / "tomatoes" / "z1.csv").write_text("time,air_temp_c\n")
    with pytest.raises(RecordingError, match=f"holds no recording: .*; name {tmp_path / 'tomatoes'}$"):
        load_recording(tmp_path)
