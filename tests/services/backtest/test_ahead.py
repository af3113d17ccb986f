"""A backtest with what was known ahead: read as the recording is, never from the future, and shown beside without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from edge.recordings.columns import Mapping
from edge.wire.plan import decode_plan, encode_plan, plan_topic
from services.backtest.ahead import _ms, plans_of, read_plans, replayed_plans
from services.backtest.frames import backtest, table_of_frames
from services.backtest.prequential import BacktestOptions, replay
from services.backtest.table import Table
from services.cli import app
from services.errors import ConfigError, HothouseError

START = pd.Timestamp("2022-02-01")
STEP = pd.Timedelta("30min")
OPTIONS = BacktestOptions(warmup_ms=5 * 86_400_000, every_ms=3_600_000, trees=False)
SHORT = {"warmup": "5d", "every": "1h"}


def frames(days: int = 9) -> dict[str, pd.DataFrame]:
    """Two zones whose air follows the weather, which nobody can tell from the past."""
    times = pd.date_range(START, periods=days * 48, freq=STEP)
    rng = np.random.default_rng(3)
    weather = 6 + np.convolve(rng.normal(0, 3, len(times) + 11), np.ones(12) / 3, "valid")
    hour = times.hour + times.minute / 60
    air = 18 + 4 * np.sin((hour - 8) * np.pi / 12)
    return {
        zone: pd.DataFrame({
            "time": times, "t_air_c": air + 0.4 * weather + rng.normal(0, 0.1, len(times)),
            "out_t_c": weather, "sp_heating_temp_vip": np.where((hour > 6) & (hour < 20), 20.0, 17.0),
        })
        for zone in ("a", "b")
    }  # fmt: skip


def plans(
    recording: dict[str, pd.DataFrame], source: str = "service", every: int = 12, noise: float = 0
) -> pd.DataFrame:
    """The weather of the recording, issued every six hours for a day and a half, and a plan of zone a."""
    weather = recording["a"].set_index("time")["out_t_c"]
    parts = []
    for k in range(0, len(weather), every):
        ahead = weather.iloc[k : k + 72]
        values = ahead + np.random.default_rng(k).normal(0, noise, len(ahead)) if noise else ahead
        parts.append(pd.DataFrame({"issued": weather.index[k], "valid": ahead.index, "value": values}))
    found = pd.concat(parts).assign(source=source, zone="", metric="out_t_c")
    grower = recording["a"].rename(columns={"time": "valid", "sp_heating_temp_vip": "value"})[["valid", "value"]]
    grower = grower.assign(issued=grower["valid"].dt.normalize(), source="grower", zone="a",
                           metric="sp_heating_temp_vip")  # fmt: skip
    return pd.concat([found, grower], ignore_index=True)


@pytest.fixture(scope="module")
def recording() -> dict[str, pd.DataFrame]:
    """Nine days."""
    return frames()


@pytest.fixture(scope="module")
def table(recording: dict[str, pd.DataFrame]) -> Table:
    """Their rows."""
    return table_of_frames(recording, {})


def test_plans_are_read_as_the_recording_is(recording: dict[str, pd.DataFrame], table: Table) -> None:
    """Names, times and zones are the recording's; each source and time of issue is one plan."""
    found, notes = plans_of(plans(recording), [], table, "plans")
    assert notes == []
    weather = [plan for plan in found if plan.kind == "weather"]
    setpoints = [plan for plan in found if plan.kind == "setpoint"]
    assert (len(weather), len(setpoints)) == (36, 9)
    assert {(plan.zone, *plan.series) for plan in found} == {("", "out_temp_c"), ("a", "sp_heat_c")}
    at, value = weather[2].series["out_temp_c"]
    assert weather[2].issued_ms == table.start_ms + 24 * 1_800_000 == at[0]
    np.testing.assert_allclose(value, recording["a"]["out_t_c"][24:96], rtol=1e-6)


def test_sources_are_chosen(recording: dict[str, pd.DataFrame], table: Table) -> None:
    """Those that are named, or all; one that the file does not have is an error that names what it has."""
    frame = plans(recording)
    assert {plan.kind for plan in plans_of(frame, ["grower"], table, "plans")[0]} == {"setpoint"}
    with pytest.raises(ConfigError, match=r"no plans of 'oracle'") as raised:
        plans_of(frame, ["oracle", "grower"], table, "plans")
    assert "'grower', 'service'" in raised.value.hint


def test_what_cannot_be_used_is_named(recording: dict[str, pd.DataFrame], table: Table) -> None:
    """Zones and metrics that the recording does not have, and values that the metric cannot have."""
    frame = plans(recording)
    frame.loc[0, "value"] = 999.0
    frame.loc[1, "value"] = np.nan
    more = pd.concat([frame, frame.tail(2).assign(zone="c"), frame.tail(2).assign(metric="sp_moon")])
    found, notes = plans_of(more, [], table, "plans")
    assert [note.split(": ", 1)[1] for note in notes] == [
        "the plans of zone 'c' are left out, which the recording does not have",
        "2 values of out_t_c are left out, because the metric cannot have them",
        "sp_moon is left out, because the recording has no metric of this name",
    ]
    assert len(found[0].series["out_temp_c"][0] if "out_temp_c" in found[0].series else
               found[1].series["out_temp_c"][0]) == 70  # fmt: skip


def test_a_file_without_a_plan_of_use_is_told(recording: dict[str, pd.DataFrame], table: Table) -> None:
    """A table without plans must not look like one with them."""
    given = plans(recording)
    for none in (given[:0], given.assign(value=np.inf), given.assign(zone="c")):
        found, notes = plans_of(none, [], table, "plans")
        assert (found, notes[-1]) == ([], "plans has no plan that is of use: forecasts are made without")


def test_plans_of_a_second_sensor_are_left_out(recording: dict[str, pd.DataFrame]) -> None:
    """A number behind the metric says that its column is one."""
    two = {zone: frame.assign(roof=frame["out_t_c"] + 1) for zone, frame in recording.items()}
    given = plans(recording).replace({"metric": {"out_t_c": "roof"}})
    found, notes = plans_of(given, [], table_of_frames(two, {"roof": "out_temp_c.2"}), "plans")
    assert {metric for plan in found for metric in plan.series} == {"sp_heat_c"}
    assert notes == ["plans: roof is left out, because the recording has no metric of this name"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda frame: frame.drop(columns="issued"), "has no column issued"),
        (lambda frame: frame.assign(valid="yesterday"), "column 'valid' holds 'yesterday', which is no time$"),
        (lambda frame: frame["value"], "plans.parquet is a Series"),
        (lambda frame: frame.assign(value="warm"), "cannot be read"),
        (
            lambda frame: frame.assign(issued=frame["issued"].dt.tz_localize("UTC")),
            "both have a UTC offset, or neither",
        ),
        (
            lambda frame: frame.assign(issued=frame["issued"].astype("datetime64[ms]").astype(np.int64)),
            "column 'issued' holds numbers, as 1643673600000, and the recording's times are none",
        ),
    ],
)
def test_a_file_that_is_no_plan_is_one_sentence(spoil, said: str, recording, table: Table) -> None:
    """It names the file and what is wrong."""
    with pytest.raises(HothouseError, match=said):
        plans_of(spoil(plans(recording)), [], table, "plans.parquet")


def test_a_missing_file_is_one_sentence(tmp_path: Path, table: Table) -> None:
    """Also a damaged one."""
    for name in ("none.parquet", "none.csv"):
        with pytest.raises(HothouseError, match=rf"there is no file .*{name}$"):
            read_plans(tmp_path / name, [], table)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 or not")
    with pytest.raises(HothouseError, match="cannot be read as plans"):
        read_plans(tmp_path / "bad.parquet", [], table)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("said", "is_utc", "times", "hours"),
    [
        ("%d-%m-%Y %H:%M", False, ["01-02-2022 00:00", "12-02-2022 06:00"], 11 * 24 + 6),
        ("", True, ["2022-03-27T01:00:00+01:00", "2022-03-27T04:00:00+02:00"], 2),
        ("", False, ["2022-03-27 01:00", "2022-03-27T04:00:00"], 3),
        ("unix_s", True, [1643670000, 1643677200], 2),
        ("unix_ms", True, ["1643670000000", "1643677200000"], 2),
        (
            "unix_s",
            True,
            [pd.Timestamp(1643670000, unit="s", tz="UTC"), pd.Timestamp(1643677200, unit="s", tz="UTC")],
            2,
        ),
    ],
    ids=["days before months", "over a change of the clock", "without offsets", "Unix", "Unix as text", "timestamps"],
)
def test_times_of_plans_are_written_as_those_of_the_recording(
    said: str, is_utc: bool, times: list[Any], hours: int
) -> None:
    """In its form; and an offset may change."""
    table: Any = SimpleNamespace(said=Mapping(time_format=said), is_utc=is_utc)
    first, last = _ms(pd.Series(times, name="issued"), table)
    assert last - first == hours * 3_600_000


@pytest.mark.thorough
def test_nothing_is_used_before_it_was_issued(recording: dict[str, pd.DataFrame], table: Table) -> None:
    """Plans of after an origin may say what they like: no forecast up to it changes, and one after it does."""
    until = START + pd.Timedelta("7d")
    honest = plans(recording)
    lying = honest.assign(value=np.where(honest["issued"] > until, -honest["value"], honest["value"]))
    said = [replay(table, OPTIONS, plans=plans_of(f, ["service"], table, "p")[0]) for f in (honest, lying)]
    before = said[0].origin_ms <= until.value // 10**6
    np.testing.assert_array_equal(said[0].quantiles[before], said[1].quantiles[before])
    assert (said[0].quantiles[~before] != said[1].quantiles[~before]).any()
    assert before.any()


@pytest.mark.thorough
def test_without_plans_a_backtest_is_as_before(recording: dict[str, pd.DataFrame], table: Table) -> None:
    """An empty list of plans gives the forecasts of none, bit for bit, and so do zones that have none."""
    options = replace(OPTIONS, until_ms=6 * 86_400_000)
    plain = replay(table, options)
    np.testing.assert_array_equal(replay(table, options, plans=[]).quantiles, plain.quantiles)
    of_a = replay(table, options, plans=plans_of(plans(recording), ["grower"], table, "p")[0])
    np.testing.assert_array_equal(of_a.quantiles[of_a.zone == 1], plain.quantiles[plain.zone == 1])
    assert (of_a.quantiles[of_a.zone == 0] != plain.quantiles[plain.zone == 0]).any()
    again = replay(table, options, plans=plans_of(plans(recording), ["grower"], table, "p")[0])
    np.testing.assert_array_equal(of_a.quantiles, again.quantiles)


@pytest.mark.thorough
def test_the_command_shows_both(recording: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    """Forecasts with plans are better, the table has the error without them, and the file is that of the function."""
    folder = tmp_path / "r"
    folder.mkdir()
    for zone, frame in recording.items():
        frame.to_csv(folder / f"{zone}.csv", index=False)
    plans(recording).to_parquet(tmp_path / "plans.parquet")
    asked = ["backtest", str(folder), "--out", str(tmp_path / "p.parquet"), "--warmup", "5d", "--every", "1h",
             "--ahead", str(tmp_path / "plans.parquet")]  # fmt: skip
    done = CliRunner().invoke(app, [*asked, "--ahead-source", "service", "--ahead-source", "grower"])
    assert done.exit_code == 0, done.output
    assert "without plans" in done.output
    assert "with / without" in done.output
    ratio = float(done.output.split("with plans / without: mean ")[1].split(",")[0])
    assert ratio < 0.97
    made = backtest(folder, ahead=tmp_path / "plans.parquet", ahead_sources=["service", "grower"], **SHORT)
    read = pd.read_parquet(tmp_path / "p.parquet")
    np.testing.assert_array_equal(read["q50"].to_numpy(np.float32), made.predictions["q50"].to_numpy(np.float32))
    refused = CliRunner().invoke(app, [*asked, "--ahead-source", "nobody"])
    assert refused.exit_code == 2
    assert "has no plans of 'nobody'" in refused.output


def test_a_source_without_a_file_is_refused(tmp_path: Path) -> None:
    """It would change nothing."""
    out = CliRunner().invoke(app, ["backtest", str(tmp_path), "--out", "p.parquet", "--ahead-source", "x"])
    assert out.exit_code == 2
    assert "--ahead FILE" in out.output


def test_plans_are_published_beside_a_replayed_recording(tmp_path: Path, recording: dict[str, pd.DataFrame]) -> None:
    """As a device would: in UTC, under the site's and zones' names of the topics, and nothing of them is refused."""
    folder, file = tmp_path / "lettuce", tmp_path / "ahead.csv"
    folder.mkdir()
    for zone, frame in recording.items():
        frame.to_csv(folder / f"{zone}.csv", index=False)
    plans(recording).to_csv(file, index=False)
    found, notes = replayed_plans(file, ["grower"], folder, timezone="Europe/Amsterdam")
    assert notes == []
    assert {(plan.site, plan.zone, plan.source, plan.kind) for plan in found} == {
        ("lettuce", "a", "grower-setpoint", "setpoint")
    }
    assert [plan.issued_ms for plan in found][:2] == [1_643_670_000_000, 1_643_756_400_000]  # midnight in Amsterdam
    for plan in found:
        topic = plan_topic(plan.site, plan.zone, plan.source)
        decoded = decode_plan(topic, encode_plan(plan), plan.issued_ms)
        assert (decoded.plan, decoded.refusals) == (plan, [])
    weather, notes = replayed_plans(file, ["service"], folder, timezone="Europe/Amsterdam")
    assert notes == []
    assert {plan.zone for plan in weather} == {"_site"}
    assert len(weather) == 36


def test_an_empty_zone_of_a_file_is_the_whole_site(tmp_path: Path, recording: dict[str, pd.DataFrame]) -> None:
    """However a file says that there is none: an empty cell of CSV, null or an empty text of Parquet."""
    table = table_of_frames(recording, {})
    said = plans(recording)
    said.to_csv(tmp_path / "plans.csv", index=False)
    said.to_parquet(tmp_path / "texts.parquet")
    said.assign(zone=said["zone"].replace("", None)).to_parquet(tmp_path / "nulls.parquet")
    for name in ("plans.csv", "texts.parquet", "nulls.parquet"):
        found, notes = read_plans(tmp_path / name, ["service"], table)
        assert (len(found), {plan.zone for plan in found}, notes) == (36, {""}, []), name


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_zones_may_have_numbers_for_names(tmp_path: Path, recording: dict[str, pd.DataFrame], suffix: str) -> None:
    """Beside plans of the whole site, whose zone is empty, a file or frame has them as 1.0."""
    table = table_of_frames({"1": recording["a"], "2": recording["b"]}, {})
    given, path = plans(recording), tmp_path / f"plans{suffix}"
    given["zone"] = given["zone"].map({"": np.nan, "a": 1})
    given.to_csv(path, index=False) if suffix == ".csv" else given.to_parquet(path)
    for found, notes in (read_plans(path, [], table), plans_of(given, [], table, "plans")):
        assert notes == []
        assert {plan.zone for plan in found} == {"", "1"}


def test_a_damaged_recording_is_said_in_one_sentence(tmp_path: Path, recording: dict[str, pd.DataFrame]) -> None:
    """Plans of a folder that holds no recording are refused by the folder's name."""
    plans(recording).to_csv(tmp_path / "ahead.csv", index=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(HothouseError, match="holds no recording"):
        replayed_plans(tmp_path / "ahead.csv", [], tmp_path / "empty")
