"""What the backtest reads of a recording: the rows that a stream would have, and what it says of columns."""

from dataclasses import replace

import numpy as np
import pytest

from edge.log.memory import MemoryLog
from edge.recordings.importing import import_samples
from edge.recordings.replay import RecordingSource
from edge.wire.vocabulary import VOCABULARY
from services.backtest.prequential import replay
from services.backtest.table import read_table, sun_sine
from services.errors import HothouseError
from services.ingest.windows.partition_windows import PartitionWindows
from tests.services.backtest.short_recordings import DAY_MS, OPTIONS, lettuce_days, made_up

pytestmark = pytest.mark.thorough


def test_its_rows_are_those_of_a_stream(tmp_path):
    """The same files, published, logged and windowed, give the same rows, bit for bit."""
    table = read_table(folder := lettuce_days(tmp_path))
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


def test_the_sun_stands_highest_at_noon_and_is_unknown_without_a_place():
    """Without a time zone the clock is taken to be the sun's; without a place there is no sun."""
    times = np.arange(24, dtype=np.int64) * 3_600_000
    assert np.isnan(sun_sine(times, None, None, None)).all()
    assert np.argmax(sun_sine(times, None, 52.0, 90.0)) == 12
    assert np.argmax(sun_sine(times, "Europe/Amsterdam", 52.0, 4.5)) == 13
