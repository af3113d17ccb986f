"""The backtest: nothing from the future, the same file twice, and recordings of every kind."""

import lzma
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from models.network.training import TrainingConfig
from models.trees import tree_grower as trees
from services.backtest import retraining as network
from services.backtest.prequential import BacktestOptions, replay
from services.backtest.report import predictions, scores, write
from services.backtest.table import read_table
from services.errors import HothouseError
from tests.services.backtest.short_recordings import DAY_MS, OPTIONS, PLACE, RECORDING, lettuce_days, made_up

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Four days of two real zones, and their forecasts."""
    folder = lettuce_days(tmp_path_factory.mktemp("lettuce"))
    table = read_table(folder)
    return folder, table, replay(table, OPTIONS)


def test_a_zones_first_days_are_no_worse_than_repeating_what_was():
    """From the second hour on, three real zones: less error than the better of persistence and naive, and intervals
    that hold about four fifths and all have a width.
    """
    forecasts = replay(table := read_table(RECORDING), BacktestOptions(warmup_ms=3_600_000, until_ms=3 * DAY_MS))
    found = scores(table, forecasts)
    of_base = (1 - found["skill"]).tolist()
    assert len(found) == 18
    assert np.mean(of_base) < 1
    assert max(of_base) < 1.1
    assert found["coverage"].between(0.65, 0.95).all()
    quantiles = forecasts.quantiles[np.isfinite(forecasts.quantiles).all(axis=-1)]
    assert (quantiles[:, 0] < quantiles[:, 2]).all()


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
