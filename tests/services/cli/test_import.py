"""``hothouse import``: what was understood is shown, and what cannot be is refused in one sentence."""

from __future__ import annotations

import os
import uuid
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from services.cli.history import import_rows
from services.cli.history.influx_tables import read_influx, write_zones
from services.cli.root import app
from services.config import InfluxSettings
from services.errors import HothouseError
from services.store.history import History
from services.store.imports.import_job import open_jobs
from services.store.rows import DeviceRow, SiteStep
from services.store.series import InfluxWriter
from tests.conftest import require_env
from tests.patience import patience_s

T0 = 1_646_092_800_000


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def folder_of(path: Path, start: str = "2022-03-01 00:00", **columns: float) -> Path:
    """An hour of a zone."""
    path.mkdir()
    times = pd.date_range(start, periods=12, freq="5min")
    pd.DataFrame({"time": times, **(columns or {"air_temp_c": 20.0, "foo": 1.0})}).to_csv(
        path / "north-1.csv", index=False
    )
    return path


def test_a_dry_run_shows_what_was_understood_and_writes_nothing(tmp_path: Path) -> None:
    """Zones, metrics, times in UTC, and columns that nothing is known of."""
    data, folder = tmp_path / "data", folder_of(tmp_path / "old")
    shown = run("--data-dir", str(data), "import", str(folder), "--site", "demo", "--timezone", "Europe/Amsterdam",
                "--dry-run")  # fmt: skip
    assert shown.exit_code == 0, shown.output
    assert "2022-02-28 23:00" in shown.output
    assert "site demo: 12 rows of one zone" in shown.output
    assert shown.output.count("no metric is known for foo") == 1
    assert not (data / "storage").exists()


def test_values_that_come_more_seldom_than_rows_are_told(tmp_path: Path) -> None:
    """Twelve times as many rows as values would look like a fault; where each row has a value nothing is said."""
    folder = folder_of(tmp_path / "old")
    options = ("--data-dir", str(tmp_path / "data"), "import", str(folder), "--site", "demo", "--dry-run")
    assert "values come" not in run(*options).output
    for every, sentence in (
        ("7min", "values come every 7 min, a row is of 5 min: about one row in 1.4 holds one"),
        ("1h", "values come every 1 h, a row is of 5 min: about one row in 12 holds one"),
        ("1D", "values come every 24 h, a row is of 5 min: about one row in 288 holds one"),
    ):
        times = pd.date_range("2022-03-01", periods=12, freq=every)
        pd.DataFrame({"time": times, "air_temp_c": 20.0}).to_csv(folder / "north-1.csv", index=False)
        assert sentence in " ".join(run(*options).output.split())


def test_zones_that_never_sent_are_named(tmp_path: Path) -> None:
    """A name that was misspelt would make a zone that nobody has. What was imported counts as no sign of life."""
    data, folder = tmp_path / "data", folder_of(tmp_path / "old")

    def said(*options: str) -> str:
        shown = run("--data-dir", str(data), "import", str(folder), "--site", "demo", *options)
        assert shown.exit_code == 0, shown.output
        return " ".join(shown.output.split())

    assert "No zone has sent anything at site demo in 60 days." in said("--dry-run")
    sent(data / "storage", "demo", "north-1", "north-2")
    assert "sent" not in said("--dry-run").replace("north-1", "")
    (folder / "north-1.csv").rename(folder / "nort-1.csv")
    for options in ((), ("--no-wait",), ()):  # the real one says so, too: it cannot be taken back
        expected = "nort-1 has sent nothing at site demo in 60 days; did you mean north-1?"
        assert expected in said(*(options or ("--dry-run",)))
    assert "at site dmeo in 60 days; did you mean demo?" in said("--site", "dmeo", "--dry-run")
    sent(data / "storage", "demo", "nort-1", days=70)
    assert "north-2" not in said("--dry-run")


def sent(storage: Path, site: str, *zones: str, days: int = 0) -> None:
    """Rows of devices, as a shard keeps them."""
    values = np.full((len(zones), 1), 20, np.float32)
    devices = [DeviceRow(zone, "climate", "air_temp_c", 1, 20, 20, 20, 20) for zone in zones]
    history = History(storage, ("air_temp_c",))
    history.add([SiteStep(0, site, T0 + days * 86_400_000, zones, values, values, devices)])
    history.flush()


def test_the_clock_is_that_of_the_site_and_is_told(tmp_path: Path) -> None:
    """An option, then recording.toml, then the settings of the site, then UTC; a plan in a file is read alike."""
    data, folder, config = tmp_path / "data", folder_of(tmp_path / "old"), tmp_path / "h.toml"
    config.write_text('[[sites]]\nname = "demo"\ntimezone = "Europe/Amsterdam"\n')

    def first(*options: str, site: str = "demo") -> str:
        said = run("--config", str(config), "--data-dir", str(data), "import", str(folder), "--site", site, *options,
                   "--dry-run")  # fmt: skip
        assert said.exit_code == 0, said.output
        (line,) = [line for line in said.output.splitlines() if "north-1" in line]
        (clock,) = [line for line in said.output.splitlines() if line.startswith("times are read as the clock in ")]
        return f"{line.split('│')[3].strip()} {clock.split()[7]}"

    assert first() == "2022-02-28 23:00 Europe/Amsterdam"
    assert first("--timezone", "Asia/Tokyo") == "2022-02-28 15:00 Asia/Tokyo"
    assert first(site="other") == "2022-03-01 00:00 UTC"
    (folder / "recording.toml").write_text('timezone = "Europe/London"\n')
    assert first() == "2022-03-01 00:00 Europe/London"


def test_the_weather_is_shown_and_what_is_left_out_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Columns that were understood are in the table, the weather station's too; no sentence comes twice."""
    folder = folder_of(tmp_path / "old", air_temp_c=20.0, out_temp_c=70.0, wind_m_s=3.0)
    said = run("--data-dir", str(tmp_path / "data"), "import", str(folder), "--dry-run")
    assert said.exit_code == 0, said.output
    (line,) = [line for line in said.output.splitlines() if "_site" in line]
    assert "wind_m_s" in line
    assert said.output.count("out_temp_c looks like °F") == 1
    assert not caplog.records


def test_a_file_of_the_weather_alone_is_no_zone(tmp_path: Path) -> None:
    """It is the site's station, whatever the file's name; no zone of that name is missed, or counted."""
    folder = folder_of(tmp_path / "old", air_temp_c=20.0)
    (folder / "weather.csv").write_text((folder / "north-1.csv").read_text().replace("air_temp_c", "out_temp_c"))
    sent(tmp_path / "data" / "storage", "demo", "north-1")
    shown = run("--data-dir", str(tmp_path / "data"), "import", str(folder), "--site", "demo", "--dry-run").output
    assert "12 rows of one zone" in shown
    assert "out_temp_c" in shown
    assert "weather" not in shown


def test_rows_wait_for_the_system_and_the_same_again_is_the_same_job(tmp_path: Path) -> None:
    """Without a running system the import waits on the data folder."""
    data, folder = tmp_path / "data", folder_of(tmp_path / "old")
    for _ in range(2):
        said = run("--data-dir", str(data), "import", str(folder), "--site", "demo", "--no-wait")
        assert said.exit_code == 0, said.output
    (job,) = open_jobs(data / "storage")
    assert job.id in said.output
    assert (job.note()["zones"], job.note()["rows"], job.note()["state"]) == (["north-1"], 12, "new")


def test_a_site_without_lateness_has_all_that_its_devices_said_at_an_instant(tmp_path: Path) -> None:
    """Several devices of several zones, at times that end rows."""
    data, folder = tmp_path / "data", folder_of(tmp_path / "old", air_temp_c=20.0, sp_heat_c=18.0, out_temp_c=5.0)
    (folder / "north-2.csv").write_text((folder / "north-1.csv").read_text())
    config = tmp_path / "hothouse.toml"
    config.write_text("[stream]\nlateness_s = 0\n")
    said = run("--config", str(config), "--data-dir", str(data), "import", str(folder), "--site", "demo", "--no-wait")
    assert said.exit_code == 0, said.output
    (job,) = open_jobs(data / "storage")
    rows = pa.concat_tables(job.days())
    assert len(rows) == 24
    assert [np.isfinite(rows[name].to_numpy()).sum() for name in ("air_temp_c", "sp_heat_c", "out_temp_c")] == [24] * 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "history comes from a folder or from an InfluxDB"),
        (["--influx", "http://127.0.0.1:1"], "InfluxDB is read by a query"),
        (["{nowhere}"], "there is no folder"),
        (["{future}/north-1.csv"], "north-1.csv is a file: name the folder that it is in"),
        (["{future}"], "some rows are of the future"),
        (["{no_year}"], "some rows are of 1900-03-01 00:00, before 1970"),
        (["{short_year}"], "some rows are of 0022-03-01 00:00, before 1970"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    """Each says what to do next."""
    future = datetime.now(UTC).replace(year=datetime.now(UTC).year + 1, day=1).strftime("%Y-%m-%d")
    named = {"nowhere": tmp_path / "none", "future": folder_of(tmp_path / "f", future)}
    named |= {name: folder_of(tmp_path / name) for name in ("no_year", "short_year")}
    for name, year in (("no_year", "1900"), ("short_year", "0022")):
        file = named[name] / "north-1.csv"
        file.write_text(file.read_text().replace("2022-", f"{year}-", 1))
    said = run("--data-dir", str(tmp_path / "data"), "import", *(one.format(**named) for one in arguments))
    assert said.exit_code != 0
    assert sentence in " ".join(said.output.split())
    assert not open_jobs(tmp_path / "data" / "storage")


def test_history_up_to_now_comes_in_without_the_row_that_has_not_ended(tmp_path: Path) -> None:
    """What a query up to now gives: samples of the past, in a row that more samples may come into."""
    data, now = tmp_path / "data", pd.Timestamp.now("UTC").floor("s").tz_localize(None)
    folder = tmp_path / "old"
    folder.mkdir()
    times = pd.date_range(end=now, periods=120, freq="1min")
    pd.DataFrame({"time": times, "air_temp_c": 20.0}).to_csv(folder / "north-1.csv", index=False)
    said = run("--data-dir", str(data), "import", str(folder), "--site", "demo", "--no-wait")
    assert said.exit_code == 0, said.output
    (job,) = open_jobs(data / "storage")
    assert now.timestamp() * 1000 - 600_000 <= job.note()["last_ms"] <= datetime.now(UTC).timestamp() * 1000


def test_it_waits_for_learners_that_begin_late(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Adding the rows took longer than a system needs to begin; patience with the learners begins after it."""
    notes = [{"state": "new"}] * 50 + [{"state": "added"}, {"state": "added", "grown_pct": 50}, {"state": "done"}]
    common = {"zones": ["north-1"], "grown": [], "grown_pct": 0, "days": 1, "of_days": 2, "added": 12, "there": 0,
              "conflicts": 0, "too_new": 0, "rows": 12, "site": "demo"}  # fmt: skip
    seen = iter([{**common, **note} for note in notes])

    class Job:
        def note(self) -> dict[str, object]:
            note = next(seen)
            return {**note, "grown": ["north-1"]} if note["state"] == "done" else note

    now_s = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now_s[0], sleep=lambda seconds: now_s.__setitem__(0, now_s[0] + seconds))
    monkeypatch.setattr(import_rows, "time", clock)
    import_rows._wait(Job())  # type: ignore[arg-type]
    said = capsys.readouterr()
    assert "learned later" not in said.out
    assert [line for line in said.err.splitlines() if line.endswith(" ...")] == [
        "adding rows ...", "learning again from the history ...",
    ], "where there is no terminal, a line as the work changes"  # fmt: skip
    assert next(seen, None) is None


def test_records_become_a_file_a_zone(tmp_path: Path) -> None:
    """A column a field, a row a time; a record without the zone's tag is refused."""
    at = datetime(2022, 3, 1, tzinfo=UTC)
    records = [
        {"_time": at, "_field": "air_temp_c", "_value": 20.5, "house": "a"},
        {"_time": at, "_field": "rh_pct", "_value": 70, "house": "a"},
        {"_time": at, "_field": "rh_pct", "_value": 60.0, "house": "b"},
    ]
    write_zones(records, "house", tmp_path)
    frame = pd.read_parquet(tmp_path / "a.parquet")
    assert (frame["air_temp_c"].tolist(), frame["rh_pct"].tolist()) == ([20.5], [70.0])
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["a", "b"]
    with pytest.raises(HothouseError, match="zones b and /b would both be called b"):
        write_zones([*records, {**records[2], "house": "/b"}], "house", tmp_path)
    write_zones([{**records[2], "house": "north/1"}], "house", tmp_path)
    assert (tmp_path / "north-1.parquet").is_file()
    with pytest.raises(HothouseError, match=r"the zone a has several values of rh_pct at .*: 70 and 71"):
        write_zones([*records, {**records[1], "_value": 71}], "house", tmp_path)
    with pytest.raises(HothouseError, match=r"the field vents of the zone b is no number: .*'open'"):
        write_zones([*records, {**records[2], "_field": "vents", "_value": "open"}], "house", tmp_path)
    write_zones([*records, records[1], {**records[0], "_time": at.replace(hour=1), "_value": None}], "house", tmp_path)
    frame = pd.read_parquet(tmp_path / "a.parquet")
    assert frame["time"].tolist() == [at, at.replace(hour=1)], "the same again is one; nothing is missing"
    assert frame["air_temp_c"].isna().tolist() == [False, True]
    with pytest.raises(HothouseError, match="a record's _time is 'noon', not a time"):
        write_zones([{**records[0], "_time": "noon"}], "house", tmp_path)
    with pytest.raises(HothouseError, match="no _field, _value"):
        write_zones([{"_time": at, "rh_pct": 60.0, "house": "a"}], "house", tmp_path)
    with pytest.raises(HothouseError, match="no tag zone"):
        write_zones(records, "zone", tmp_path)
    with pytest.raises(HothouseError, match="finds nothing"):
        write_zones([], "zone", tmp_path)


@pytest.mark.influx
def test_what_we_wrote_into_influxdb_comes_back(tmp_path: Path) -> None:
    """A real InfluxDB, asked by a query: the values and times of the rows that were sent there."""
    url, token = require_env("HOTHOUSE_TEST_INFLUXDB_URL"), require_env("HOTHOUSE_TEST_INFLUXDB_TOKEN")
    org = os.environ.get("HOTHOUSE_TEST_INFLUXDB_ORG", "-")
    bucket = os.environ.get("HOTHOUSE_TEST_INFLUXDB_BUCKET", "hothouse/autogen")
    site, values = f"test-{uuid.uuid4().hex[:12]}", np.array([[20.25, 71.5]], np.float32)
    writer = InfluxWriter(url, org, bucket, lambda: token, ("air_temp_c", "rh_pct"))
    writer.rows([SiteStep(0, site, T0 + n * 300_000, ("z1",), values + n, values) for n in range(3)])
    writer.close(patience_s(30))
    query = tmp_path / "q.flux"
    query.write_text(
        f'from(bucket: "{bucket}") |> range(start: 2022-02-28T00:00:00Z, stop: 2022-03-02T00:00:00Z)'
        f' |> filter(fn: (r) => r.site == "{site}")'
    )
    out = tmp_path / "out"
    out.mkdir()
    read_influx(url, org, InfluxSettings(token=token), query, "zone", out)
    frame = pd.read_parquet(out / "z1.parquet")
    assert frame["air_temp_c"].tolist() == [20.25, 21.25, 22.25]
    assert [int(time.timestamp() * 1000) for time in frame["time"]] == [T0, T0 + 300_000, T0 + 600_000]


def test_a_storage_that_is_away_is_told_and_ends_no_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that was unmounted and comes back; one that stays away ends the wait with what to do, not as a fault."""
    storage = tmp_path / "data" / "storage"
    said = run("--data-dir", str(tmp_path / "data"), "import", str(folder_of(tmp_path / "old")), "--site", "demo",
               "--no-wait")  # fmt: skip
    assert said.exit_code == 0, said.output
    (job,) = open_jobs(storage)
    done = {**job.note(), "state": "done", "grown": ["north-1"], "added": 12}
    now_s, back_s = [0.0], import_rows.PATIENCE_S - 2

    def sleep(seconds: float) -> None:
        now_s[0] += seconds
        if storage.is_dir():
            storage.rename(tmp_path / "unmounted")
        elif now_s[0] > back_s:
            (tmp_path / "unmounted").rename(storage)
            job.put(done)  # type: ignore[arg-type]

    # Not time itself, in which threads of other tests may sleep.
    monkeypatch.setattr(import_rows, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep))
    import_rows._wait(job)
    shown = capsys.readouterr()
    assert "12 rows added" in shown.out
    assert shown.err.count("the storage does not say how far it is: ") == 1
    storage.rename(tmp_path / "unmounted")
    back_s = float("inf")
    with pytest.raises(HothouseError, match="how far the import is cannot be read") as raised:
        import_rows._wait(job)
    assert "once the storage is back" in raised.value.hint


def test_a_disk_that_refuses_is_no_fault_of_hothouse(tmp_path: Path) -> None:
    """What the operating system says of a file is told with that file, and with where to look."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "storage").touch()  # where the folder should be
    said = run("--data-dir", str(tmp_path / "data"), "import", str(folder_of(tmp_path / "old")), "--no-wait")
    assert said.exit_code == 1
    words = " ".join(said.output.split())
    assert "job.json: Not a directory Look whether its disk is there and has room" in words
    assert "fault" not in words
