"""The backtest: nothing from the future, the same file twice, and recordings of every kind."""

import csv
import lzma
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from edge.log.memory import MemoryLog
from edge.recordings.importing import import_samples
from edge.recordings.replay import RecordingSource
from edge.wire.vocabulary import VOCABULARY
from models.network.training import TrainingConfig
from models.trees import tree_grower as trees
from services.backtest import retraining as network
from services.backtest.prequential import BacktestOptions, replay
from services.backtest.report import predictions, scores, write
from services.backtest.table import read_table, sun_sine
from services.cli import app
from services.errors import HothouseError
from services.ingest.windows.partition_windows import PartitionWindows

pytestmark = pytest.mark.thorough

RECORDING = Path(__file__).parents[2] / "data" / "lettuce_2022"
DAY_MS = 86_400_000
PLACE = {"latitude": 52.0, "longitude": 4.5, "timezone": "Europe/Amsterdam"}
OPTIONS = BacktestOptions(warmup_ms=2 * DAY_MS, every_ms=3_600_000, network=False, **PLACE)


def hourly(day, hour):
    """A made-up greenhouse: warm by day, with something that remembers."""
    return 18 + 5 * np.sin((hour - 6) * np.pi / 12) + 0.5 * np.sin(day)


def made_up(
    folder, zones=("a", "b"), days=6, step_min=15, start="2022-03-25", leave_out=(), columns=("t_air_c", "rh_pct")
):
    """Write a recording on a naive clock; ``leave_out`` are days that are not there at all."""
    first = np.datetime64(start, "m")
    folder.mkdir(exist_ok=True)
    for z, zone in enumerate(zones):
        with (folder / f"{zone}.csv").open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["time", *columns])
            for i in range(days * 1440 // step_min):
                day, minute = divmod(i * step_min, 1440)
                if day not in leave_out:
                    value = hourly(day, minute / 60) + z
                    row = {
                        "t_air_c": value,
                        "rh_pct": 100 - 2 * value,
                        "co2_ppm": 500 - value,
                        "sp_heat_c": 20 + hourly(day, minute // 60),
                    }
                    out.writerow([str(first + i * step_min).replace("T", " "), *(round(row[c], 3) for c in columns)])
    return folder


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Four days of two real zones, and their forecasts."""
    folder = tmp_path_factory.mktemp("lettuce")
    for zone in ("Koala", "Reference"):
        with lzma.open(RECORDING / f"{zone}.csv.xz", "rt") as file:
            (folder / f"{zone}.csv").write_text("".join(file.readlines()[: 4 * 288 + 1]))
    table = read_table(folder)
    return folder, table, replay(table, OPTIONS)


def test_its_rows_are_those_of_a_stream(real):
    """The same files, published, logged and windowed, give the same rows, bit for bit."""
    folder, table, _ = real
    source, log = RecordingSource(folder, timezone="UTC"), MemoryLog()
    import_samples(source, log, source.end_ms)
    windows = PartitionWindows(table.step_ms, 0, 60_000, VOCABULARY, {source.site: source.primary})
    steps = [step for number in range(log.partitions) for step in windows.feed(log.read(number, 0, 10**6)).steps]
    assert len(steps) > 1000
    for step in steps:
        zones = [source.zones.index(zone) for zone in step.zones]
        np.testing.assert_array_equal(step.values, table.values[zones, (step.end_ms - table.start_ms) // table.step_ms])


def test_a_long_pause_has_the_rows_that_a_stream_has(tmp_path):
    """Of a silence of weeks a running system makes rows for three days, and neither learns nor forecasts in the rest.
    After it, forecasts are made again; a silence of three days is none of these.
    """
    folder = made_up(tmp_path / "r", days=45, step_min=30, leave_out={2, 3, 4, *range(8, 40)})
    table, source, log = read_table(folder), RecordingSource(folder, timezone="UTC"), MemoryLog()
    import_samples(source, log, source.end_ms)
    windows = PartitionWindows(table.step_ms, 0, 60_000, VOCABULARY, {source.site: source.primary})
    ends = {step.end_ms for number in range(log.partitions) for step in windows.feed(log.read(number, 0, 10**6)).steps}
    assert table.in_pause.sum() == 29 * 48
    assert ends <= set(table.end_ms[~table.in_pause].tolist()) <= ends | {int(table.end_ms[-1])}
    assert "no zone says anything until 2022-05-04 00:00: rows from 2022-04-05 00:00 on are left out" in table.notes
    learned = []
    forecasts = replay(table, OPTIONS, watch=lambda t, *_: learned.append(t))
    assert learned == np.flatnonzero(~table.in_pause)[:-1].tolist()  # nothing is asked of the last row
    row = (forecasts.origin_ms - table.start_ms) // table.step_ms
    assert not table.in_pause[row].any()
    assert np.isfinite(forecasts.quantiles[row > 41 * 48]).all()


def test_empty_lines_at_both_ends_of_a_recording_are_pauses(tmp_path):
    """Nothing is said for weeks before the first value and after the last one; a forecast from there is refused."""
    folder = made_up(tmp_path / "r", zones=("a",), days=30, step_min=30)
    header, *lines = (folder / "a.csv").read_text().splitlines()
    empty = [line.split(",")[0] + ",," if not 10 * 48 <= i < 18 * 48 else line for i, line in enumerate(lines)]
    (folder / "a.csv").write_text("\n".join([header, *empty]))
    table = read_table(folder)
    assert table.pauses == ((3 * 48 + 1, 10 * 48), (21 * 48, 30 * 48))
    assert [note for note in table.notes if "left out" in note] == [
        "no zone says anything until 2022-04-04 00:00: rows from 2022-03-28 00:30 on are left out",
        "no zone says anything any more: rows from 2022-04-15 00:00 on are left out",
    ]
    learned = []
    replay(table, replace(OPTIONS, warmup_ms=12 * DAY_MS), watch=lambda t, *_: learned.append(t))
    assert learned == np.flatnonzero(~table.in_pause).tolist()
    with pytest.raises(HothouseError, match="no zone says anything from the end of the warm-up on"):
        replay(table, replace(OPTIONS, warmup_ms=22 * DAY_MS))


def test_what_is_sent_once_holds(tmp_path):
    """A setpoint that stands in the file once an hour is that of all rows until the next; a measurement is not."""
    folder = made_up(tmp_path / "r", days=1, columns=("t_air_c", "rh_pct", "sp_heat_c"))
    for path in folder.iterdir():
        header, *lines = path.read_text().splitlines()
        thinned = [line if i % 4 == 0 else line.rsplit(",", 2)[0] + ",," for i, line in enumerate(lines)]
        path.write_text("\n".join([header, *thinned]))
    values = read_table(folder).values
    columns = list(VOCABULARY)
    setpoint, humidity = (values[0, :, columns.index(name)] for name in ("sp_heat_c", "rh_pct"))
    np.testing.assert_array_equal(setpoint.reshape(-1, 4), np.repeat(setpoint[::4, None], 4, axis=1))
    assert np.isfinite(setpoint).all()
    assert np.isfinite(humidity).mean() == 0.25


def test_a_zones_first_days_are_no_worse_than_repeating_what_was():
    """From the second hour on, three real zones: less error than the better of persistence and naive, and intervals
    that hold about four fifths and all have a width.
    """
    forecasts = replay(table := read_table(RECORDING), BacktestOptions(warmup_ms=3_600_000, until_ms=3 * DAY_MS))
    found = scores(table, forecasts)
    of_base = (1 - found["skill"]).tolist()
    assert len(found) == 18
    assert np.mean(of_base) < 1  # 1.055 before
    assert max(of_base) < 1.1  # 1.245
    assert found["coverage"].between(0.65, 0.95).all()  # .27 to .80
    quantiles = forecasts.quantiles[np.isfinite(forecasts.quantiles).all(axis=-1)]
    assert (quantiles[:, 0] < quantiles[:, 2]).all()  # a tenth of them had none


def shortened(table, rows):
    """The same with everything after ``rows`` altered."""
    values = table.values.copy()
    values[:, rows:] = np.nan_to_num(values[:, rows:]) * 1.5 + 10
    return type(table)(table.names, table.metrics, table.start_ms, table.step_ms, values, table.spans, table.notes)


def test_nothing_after_an_origin_is_used(real):
    """Altering every value after an origin, labels that mature later included, leaves its forecast's bytes equal."""
    _, table, before = real
    rows = round(2.7 * 288)
    after = replay(shortened(table, rows), OPTIONS)
    old = before.origin_ms < table.start_ms + rows * table.step_ms
    assert old.any()
    assert not old.all()
    assert before.quantiles[old].tobytes() == after.quantiles[old].tobytes()
    assert before.quantiles[~old].tobytes() != after.quantiles[~old].tobytes()


def test_nothing_after_an_origin_is_used_of_the_file(real, tmp_path):
    """Every number in the file's second half is altered: what a number means in the first does not change."""
    folder, table, forecasts = real
    cut = 3 * DAY_MS
    for path in folder.iterdir():
        header, *lines = path.read_text().splitlines()
        for i in range(3 * 288 + 1, len(lines)):
            time, *cells = lines[i].split(",")
            lines[i] = ",".join([time, *(cell and f"{float(cell) * 1.5 + 10:.3f}" for cell in cells)])
        (tmp_path / path.name).write_text("\n".join([header, *lines]))
    # A quarter of the humidity is beyond 100 % then, which is an error unless somebody says that it is in percent.
    (tmp_path / "recording.toml").write_text('[columns]\nrh_pct = { metric = "rh_pct", unit = "%" }')
    altered = replay(read_table(tmp_path), OPTIONS)
    before = forecasts.origin_ms <= table.start_ms + cut
    assert before.any()
    assert not before.all()
    np.testing.assert_array_equal(altered.quantiles[before], forecasts.quantiles[before])


def test_trees_and_network_see_no_future_either(tmp_path, monkeypatch):
    """The same on rows long enough for trees to be grown, and the network to be trained, twice."""
    monkeypatch.setitem(trees.OPTIONS, "num_iterations", 10)
    monkeypatch.setattr(network, "CONFIG", TrainingConfig(epochs=1, hidden=8))
    table = read_table(made_up(tmp_path / "r", days=14, step_min=30))
    rows = round(12.3 * 48)
    options = BacktestOptions(warmup_ms=5 * DAY_MS, every_ms=3_600_000, network=True, **PLACE)
    before, after = replay(table, options), replay(shortened(table, rows), options)
    assert np.isfinite(before.frozen).any()
    old = before.origin_ms < table.start_ms + rows * table.step_ms
    assert before.frozen[old].tobytes() == after.frozen[old].tobytes()
    assert before.quantiles[old].tobytes() == after.quantiles[old].tobytes()
    assert before.quantiles[~old].tobytes() != after.quantiles[~old].tobytes()


def test_two_runs_give_identical_files(real, tmp_path):
    """Equal input gives equal bytes."""
    folder, table, first = real
    second = replay(read_table(folder), OPTIONS)
    for name, forecasts in (("a", first), ("b", second)):
        write(tmp_path / f"{name}.parquet", predictions(table, forecasts))
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_the_file_names_things_as_the_recording_does(real, tmp_path):
    """Zones, columns and local times are the input's; every origin and horizon is there once, quantiles in order."""
    _, table, forecasts = real
    made = predictions(table, forecasts)
    write(tmp_path / "p.parquet", made)
    written = pq.read_table(tmp_path / "p.parquet").to_pandas()
    assert len(written) == len(made)
    assert list(written.columns) == ["zone", "origin", "target_time", "metric", "q10", "q50", "q90", "model_version"]
    assert set(written.zone) == {"Koala", "Reference"}
    assert set(written.metric) == {"t_air_c", "rh_pct", "co2_ppm"}
    assert not written.duplicated(["zone", "metric", "origin", "target_time"]).any()
    assert {written[name].dtype for name in ("q10", "q50", "q90")} == {np.dtype(float)}
    assert (written.q10 <= written.q50).all()
    assert (written.q50 <= written.q90).all()
    with lzma.open(RECORDING / "Koala.csv.xz", "rt") as file:
        start = file.readlines()[1].split(",")[0]
    first = written[written.zone == "Koala"].origin.min()
    assert first == np.datetime64(start.replace(" ", "T")) + np.timedelta64(2, "D")
    assert set((written.target_time - written.origin).dt.total_seconds() / 60) == {30, 60, 180, 360, 720, 1440}


def test_the_closing_table_counts_every_case(real):
    """Each cell has its errors, and the base is no worse than either of its two."""
    _, table, forecasts = real
    found = scores(table, forecasts)
    assert len(found) == 18
    for cell in found.itertuples():
        assert cell.base <= min(cell.persistence, cell.naive_24h) + 1e-9
        assert 0 < cell.coverage < 1
        assert cell.pinball > 0


@pytest.mark.parametrize(
    "world",
    [
        {"columns": ("t_air_c",), "days": 4}, {"columns": ("t_air_c", "rh_pct", "co2_ppm"), "step_min": 5, "days": 4},
        {"leave_out": (2, 3)}, {"zones": ("only one",), "days": 4}, {"step_min": 30},
    ],
    ids=["one column", "five minutes", "a gap of days", "a name with a blank", "half-hours"],
)  # fmt: skip
def test_recordings_differ(tmp_path, world):
    """Missing columns, gaps of days, other steps and names, across a change to daylight saving: all is forecast."""
    table = read_table(made_up(tmp_path / "r", **world))
    forecasts = replay(table, OPTIONS)
    assert np.isfinite(forecasts.quantiles).all()
    assert table.names == tuple(world.get("zones", ("a", "b")))
    known = np.isfinite(forecasts.truth)
    assert known.any()


def test_lines_in_any_order_are_the_same_recording(tmp_path):
    """A file whose lines are shuffled, or have the beginning appended again, is read as its sorted one."""
    sorted_one = read_table(made_up(tmp_path / "sorted"))
    shuffled = made_up(tmp_path / "shuffled")
    for number, path in enumerate(sorted(shuffled.iterdir())):
        header, *lines = path.read_text().splitlines()
        lines = list(np.random.default_rng(number).permutation(lines)) if number else lines + lines[:50]
        path.write_text("\n".join([header, *lines]))
    table = read_table(shuffled)
    assert (table.spans, table.start_ms) == (sorted_one.spans, sorted_one.start_ms)
    np.testing.assert_array_equal(table.values, sorted_one.values)


def test_times_with_an_offset_have_the_sun_where_it_is(tmp_path):
    """They come out in UTC, and the site's time zone does not move the sun of a UTC clock."""
    naive, aware = (made_up(tmp_path / name, days=4, step_min=30) for name in ("naive", "aware"))
    for path in aware.iterdir():
        header, *lines = path.read_text().splitlines()
        path.write_text("\n".join([header, *(line.replace(",", "+00:00,", 1) for line in lines)]))
    as_utc = replay(read_table(naive), replace(OPTIONS, timezone="UTC"))
    given = replay(read_table(aware), OPTIONS)
    np.testing.assert_array_equal(given.origin_ms, as_utc.origin_ms)
    np.testing.assert_array_equal(given.quantiles, as_utc.quantiles)
    (aware / "c.csv").write_text((naive / "a.csv").read_text())
    with pytest.raises(HothouseError, match="times of some zones carry a UTC offset, those of others do not"):
        read_table(aware)


def test_origins_that_share_a_row_are_one(tmp_path):
    """Asked for more often than rows come, a forecast is issued at each row, and named after its end."""
    table = read_table(made_up(tmp_path / "w", days=4))
    often = replay(table, replace(OPTIONS, every_ms=300_000))
    assert not (often.origin_ms % 900_000).any()
    assert len(often.origin_ms) == 2 * (2 * 96)


def test_zones_that_start_late_and_say_nothing(tmp_path):
    """A zone of empty cells gives no forecast and harms none; another that begins days later has its own warm-up."""
    folder = made_up(tmp_path / "r", zones=("a",), days=7, step_min=30)
    made_up(folder, zones=("late",), days=4, step_min=30, start="2022-03-28")
    empty = [line.split(",")[0] + ",," for line in (folder / "a.csv").read_text().splitlines()[1:]]
    (folder / "silent.csv").write_text("\n".join(["time,t_air_c,rh_pct", *empty]) + "\n")
    table = read_table(folder)
    forecasts = replay(table, OPTIONS)
    late, silent = table.names.index("late"), table.names.index("silent")
    assert np.isnan(forecasts.quantiles[forecasts.zone == silent]).all()
    assert np.isfinite(forecasts.quantiles[forecasts.zone != silent]).all()
    assert forecasts.origin_ms[forecasts.zone == late].min() == table.spans[late][0] + OPTIONS.warmup_ms
    assert set(pq.read_table(written(tmp_path, table, forecasts)).to_pandas().zone) == {"a", "late"}


def test_until_ends_each_zone_after_so_much_of_it(tmp_path):
    """The same forecasts as without it, of fewer origins; a zone that begins late counts from its own beginning."""
    folder = made_up(tmp_path / "r", zones=("a",), days=7, step_min=30)
    made_up(folder, zones=("late",), days=4, step_min=30, start="2022-03-28")
    table = read_table(folder)
    whole, short = replay(table, OPTIONS), replay(table, replace(OPTIONS, until_ms=3 * DAY_MS))
    assert 0 < len(short.zone) < len(whole.zone)
    for zone, (first, _) in enumerate(table.spans):
        assert short.origin_ms[short.zone == zone].max() == first + 3 * DAY_MS
        early = (whole.zone == zone) & (whole.origin_ms <= first + 3 * DAY_MS)
        np.testing.assert_array_equal(short.quantiles[short.zone == zone], whole.quantiles[early])


def written(folder, table, forecasts):
    """The path of the written predictions."""
    write(folder / "p.parquet", predictions(table, forecasts))
    return folder / "p.parquet"


def test_what_cannot_be_forecast_is_told(tmp_path):
    """No target, no folder, and a recording shorter than its warm-up are each one sentence."""
    with pytest.raises(HothouseError, match="there is no folder"):
        read_table(tmp_path / "nothing")
    folder = tmp_path / "lamps"
    folder.mkdir()
    (folder / "z.csv").write_text("time,lamp_pct\n2022-01-01 00:00,1\n2022-01-01 00:05,1\n")
    with pytest.raises(HothouseError, match="none of the columns"):
        replay(read_table(folder), OPTIONS)
    with pytest.raises(HothouseError, match="warm-up"):
        replay(read_table(made_up(tmp_path / "short", days=1)), OPTIONS)


def test_a_target_that_only_second_sensors_measure_is_told(tmp_path):
    """It is not forecast, and a sentence says which line makes it so; beside a main column nothing is said."""
    for path, columns in ((tmp_path / "a.csv", "t_air_1_c,rh_pct"), (tmp_path / "b.csv", "t_air_c,rh_2_pct")):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"time,{columns}\n2022-01-01 00:00,20,70\n2022-01-01 00:05,20,70\n")
        (beside := tmp_path / path.stem).mkdir()
        (beside / path.name).write_text(path.read_text())
    assert read_table(tmp_path).notes == ()
    (note,) = read_table(tmp_path / "a").notes
    assert note.startswith("column t_air_1_c is a second sensor, and is not forecast")
    assert '"t_air_1_c" = "air_temp_c" in recording.toml' in note
    (tmp_path / "a" / "recording.toml").write_text('ignore = ["t_air_1_c"]')
    assert read_table(tmp_path / "a").notes == ()


def test_a_hot_first_hour_costs_no_column(tmp_path):
    """A unit is judged by a day, or said: a greenhouse that is above 45 °C at first is not in °F."""
    air = [52.0 if n < 8 else 41.0 for n in range(96)]
    lines = [f"2022-07-01 {n // 4:02d}:{n % 4 * 15:02d},{value}" for n, value in enumerate(air)]
    (tmp_path / "a.csv").write_text("\n".join(["time,t_air_c", *lines]))
    table = read_table(tmp_path)
    assert table.notes == ()
    np.testing.assert_array_equal(table.values[0, :, list(VOCABULARY).index("air_temp_c")], np.float32(air))


def test_a_column_to_ignore_names_no_target(tmp_path):
    """What is forecast has the name of the column that it was read from."""
    (tmp_path / "a.csv").write_text("time,T_air_c,air_temp_c,rh_pct\n2022-01-01 00:00,20,21,70\n")
    (tmp_path / "recording.toml").write_text('ignore = ["t_air_c", "rh_pct"]')
    assert read_table(tmp_path).metrics == {"air_temp_c": "air_temp_c"}


def test_the_command_says_what_it_leaves_out_and_refuses_a_target_of_another_unit(tmp_path):
    """One line a column and file, markup-free, with what to write into recording.toml; an error is one sentence."""
    path = tmp_path / "r" / "a.csv"
    path.parent.mkdir()
    times = [f"2022-03-25 {n // 4:02d}:{n % 4 * 15:02d}" for n in range(96)]
    path.write_text(
        "\n".join(["time,t_air_c,out_t_c", *(f'{time},{20 + n % 3},"5,1"' for n, time in enumerate(times))])
    )
    command = ["backtest", str(path.parent), "--out", str(tmp_path / "p.csv"), "--warmup", "12h"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0
    (line,) = [line for line in done.output.splitlines() if "out_t_c" in line]
    assert line == (
        "a.csv: column out_t_c: 96 of 96 cells have a decimal comma, such as '5,1', and are left out; "
        'say decimal = "," in recording.toml'
    )
    path.write_text("\n".join(["time,t_air_c,out_t_c", *(f"{time},{70 + n % 9},4" for n, time in enumerate(times))]))
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 1
    assert 't_air_c = { metric = "air_temp_c", unit = "°F" } in recording.toml, under [columns]' in refused.output


def test_the_sun_stands_highest_at_noon_and_is_unknown_without_a_place():
    """Without a time zone the clock is taken to be the sun's; without a place there is no sun."""
    times = np.arange(24, dtype=np.int64) * 3_600_000
    assert np.isnan(sun_sine(times, None, None, None)).all()
    assert np.argmax(sun_sine(times, None, 52.0, 90.0)) == 12
    assert np.argmax(sun_sine(times, "Europe/Amsterdam", 52.0, 4.5)) == 13


def test_the_command(tmp_path):
    """`hothouse backtest` writes the file, prints the table, and refuses what it does not understand."""
    folder, out = made_up(tmp_path / "r"), tmp_path / "p.parquet"
    run = CliRunner()
    done = run.invoke(
        app, ["backtest", str(folder), "--out", str(out), "--warmup", "3d", "--every", "1h", "--no-network"]
    )
    assert done.exit_code == 0, done.output
    assert "t_air_c" in done.output
    assert "persistence" in done.output
    assert "…" not in done.output, "a number was cut"
    assert "mean MAE" in done.output
    assert out.exists()
    refused = run.invoke(app, ["backtest", str(folder), "--out", str(out), "--every", "often"])
    assert refused.exit_code == 2
    refused = run.invoke(app, ["backtest", str(folder), "--out", str(out), "--warmup", "3d", "--until", "2d"])
    assert refused.exit_code == 2
