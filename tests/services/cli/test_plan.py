"""``hothouse plan``: a grower's plan from a CSV file, and what is foreseen for a zone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import services.message_broker
from edge.wire.plan import PlanMessage, decode_plan
from services.cli import app
from services.cli.plan_file import PlanFileError, read_plans
from services.cli.running.client import Client

HOUR_MS = 3_600_000
MIDNIGHT_MS = 1_772_319_600_000  # 2026-03-01 00:00 in Amsterdam
AMSTERDAM = "Europe/Amsterdam"


def written(folder: Path, text: str) -> Path:
    path = folder / "plan.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_says_what_is_set_at_which_times(tmp_path: Path) -> None:
    """By the site's clock, or with an offset; an empty cell says nothing, and lines may stand in any order."""
    lines = "time,sp_heat_c,sp_co2_ppm\n2026-03-01T20:00,17,\n2026-03-01T06:00,19.5,800\n2026-03-01T05:00+00:00,,\n\n"
    path = written(tmp_path, lines + "2026-03-01T11:00Z,20,700\n")
    assert read_plans(path, AMSTERDAM, "north-1") == {
        "north-1": {
            "sp_heat_c": [(MIDNIGHT_MS + 6 * HOUR_MS, 19.5), (MIDNIGHT_MS + 12 * HOUR_MS, 20.0),
                          (MIDNIGHT_MS + 20 * HOUR_MS, 17.0)],
            "sp_co2_ppm": [(MIDNIGHT_MS + 6 * HOUR_MS, 800.0), (MIDNIGHT_MS + 12 * HOUR_MS, 700.0)],
        }
    }  # fmt: skip


def test_semicolons_bring_decimal_commas(tmp_path: Path) -> None:
    """As a spreadsheet writes it where numbers have them; a point is read, too."""
    path = written(
        tmp_path, "\ufefftime;sp_heat_c;sp_co2_ppm\n2026-03-01T06:00;19,5;800\n2026-03-01 12:00;20.25;\n;;\n"
    )
    assert read_plans(path, AMSTERDAM, "z1")["z1"] == {
        "sp_heat_c": [(MIDNIGHT_MS + 6 * HOUR_MS, 19.5), (MIDNIGHT_MS + 12 * HOUR_MS, 20.25)],
        "sp_co2_ppm": [(MIDNIGHT_MS + 6 * HOUR_MS, 800.0)],
    }
    with pytest.raises(PlanFileError, match="line 2: sp_heat_c is '1,9,5', not a number"):
        read_plans(written(tmp_path, "time;sp_heat_c\n2026-03-01T06:00;1,9,5\n"), AMSTERDAM, "z1")


def test_what_spreadsheets_write_beside_a_plan_is_no_mistake(tmp_path: Path) -> None:
    """The separator's own line, capitals in names, and columns without a name or a cell."""
    path = written(tmp_path, "sep=;\nTime;SP_heat_c;;\n2026-03-01T06:00;19,5;;\n")
    assert read_plans(path, AMSTERDAM, "z1")["z1"] == {"sp_heat_c": [(MIDNIGHT_MS + 6 * HOUR_MS, 19.5)]}


def test_a_file_that_is_no_text_says_how_to_save_it(tmp_path: Path) -> None:
    """A spreadsheet, text of Windows, or no file at all."""
    for content in (b"PK\x03\x04\xff", "time,°C\n".encode("cp1252")):
        (tmp_path / "plan.xlsx").write_bytes(content)
        with pytest.raises(PlanFileError, match='and save it as "CSV UTF-8"'):
            read_plans(tmp_path / "plan.xlsx", AMSTERDAM, "z1")
    with pytest.raises(PlanFileError, match=r"\Ait cannot be read: No such file or directory\Z"):
        read_plans(tmp_path / "none.csv", AMSTERDAM, "z1")


def test_a_column_of_zones_makes_a_plan_for_each(tmp_path: Path) -> None:
    """Also one for the whole site."""
    path = written(tmp_path, "zone,time,sp_heat_c\nz1,2026-03-01T06:00,19\n_site,2026-03-01T06:00,18\n")
    assert sorted(read_plans(path, AMSTERDAM, "")) == ["_site", "z1"]


@pytest.mark.parametrize(
    ("text", "zone", "said"),
    [
        ("", "z1", "its first line is empty; it must name the columns, `time` among them"),
        ("when,sp_heat_c\n", "z1", "`time` among them; it has when, sp_heat_c"),
        ("time,sp_heat\n", "z1", "column 'sp_heat' is no metric that is planned; did you mean sp_heat_c?"),
        ("time,air_temp_c\n", "z1", "column 'air_temp_c' is no metric that is planned"),
        ("time,sp_heat_c,sp_heat_c\n", "z1", "two columns are called 'sp_heat_c'"),
        ("time,sp_heat_c\n", "", "name site and zone with --zone"),
        ("time,zone,sp_heat_c\n", "z1", "name the site alone"),
        ("time,sp_heat_c\n", "z1", "it says nothing"),
        ("time,sp_heat_c\n2026-03-01T06:00\n", "z1", "line 2 has 1 cells, the header has 2"),
        ("time,sp_heat_c\n1/3/2026 6:00,18\n", "z1", "line 2: '1/3/2026 6:00' is no time such as"),
        ("time,sp_heat_c\n1796112000000,18\n", "z1", "line 2: '1796112000000' is no time such as"),
        ("time,sp_heat_c\n2026-03-01T06:00,warm\n", "z1", "line 2: sp_heat_c is 'warm', not a number"),
        ('time,sp_heat_c\n2026-03-01T06:00,"18,5"\n', "z1", "write it with a point"),
        ("time,sp_heat_c\n2026-03-29T02:30,18\n", "z1", "there is no 2026-03-29T02:30 on the site's clock"),
        (
            "time,sp_heat_c\n2026-03-01T06:00,18\n2026-03-01T20:00,NaN\n",
            "z1",
            "line 3: sp_heat_c is 'NaN', not a number",
        ),
        ("time,sp_heat_c\n2026-03-01T06:00,inf\n", "z1", "line 2: sp_heat_c is 'inf', not a number"),
        (
            "time,sp_heat_c\n2026-03-01T06:00,18\n2026-03-01T05:00Z,19\n",
            "z1",
            "lines 2 and 3 both say what sp_heat_c of z1 is at the same time",
        ),
        ("time,sp_heat_c\n0001-01-01T00:00,18\n", "z1", "line 2: '0001-01-01T00:00' is no time that can be planned"),
        ("time,zone,sp_heat_c\n2026-03-01T06:00,../x,18\n", "", "'../x' names no zone"),
        ("sep=,\ntime,sp_heat_c,\n2026-03-01T06:00,18,wet\n", "z1", "line 3: 'wet' is in a column without a name"),
    ],
)
def test_a_file_that_is_no_plan_gets_one_sentence(tmp_path: Path, text: str, zone: str, said: str) -> None:
    """It names the line, and what to write instead."""
    with pytest.raises(PlanFileError) as refused:
        read_plans(written(tmp_path, text), AMSTERDAM, zone)
    assert said in str(refused.value)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[PlanMessage]:
    """What went to the broker, in a folder of its own; it is noon."""
    found: list[PlanMessage] = []
    now_ms = MIDNIGHT_MS + 12 * HOUR_MS

    def take(_: object, name: str, topic: str, payload: bytes) -> None:
        plan = decode_plan(topic, payload, now_ms).plan
        assert plan is not None
        found.append(plan)

    monkeypatch.setattr(services.message_broker, "publish", take)
    monkeypatch.setattr("services.cli.planning.time.time_ns", lambda: now_ms * 1_000_000)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hothouse.toml").write_text(f'[[sites]]\nname = "demo"\ntimezone = "{AMSTERDAM}"\n')
    return found


def test_a_plan_is_published(published: list[PlanMessage], tmp_path: Path) -> None:
    """Of the zone that was named; with --check nothing is."""
    path = written(tmp_path, "time,sp_heat_c\n2026-03-01T06:00,19.5\n2026-03-01T20:00,17\n")
    for more in (["--check"], []):
        result = CliRunner().invoke(app, ["plan", "import", str(path), "--zone", "demo/north-1", *more])
        assert result.exit_code == 0, result.output
        said = "hothouse/v1/demo/north-1/operator/plan: 2 values of sp_heat_c, until 2026-03-01 19:00 UTC"
        assert f"published on {said}" in result.output
        assert f"times without an offset are read by the clock in {AMSTERDAM}" in result.output
    (plan,) = published
    assert (plan.site, plan.zone, plan.source, plan.kind) == ("demo", "north-1", "grower", "setpoint")
    assert plan.values == {"sp_heat_c": [(MIDNIGHT_MS + 6 * HOUR_MS, 19.5), (MIDNIGHT_MS + 20 * HOUR_MS, 17.0)]}


def test_a_setpoint_that_holds_now_is_published_with_the_rest(published: list[PlanMessage], tmp_path: Path) -> None:
    """At noon CO2 has no later value than that of the morning."""
    path = written(tmp_path, "time,sp_heat_c,sp_co2_ppm\n2026-03-01T06:00,19.5,800\n2026-03-01T20:00,17,\n")
    result = CliRunner().invoke(app, ["plan", "import", str(path), "--zone", "demo/north-1"])
    assert result.exit_code == 0, result.output
    (plan,) = published
    assert plan.values["sp_co2_ppm"] == [(MIDNIGHT_MS + 6 * HOUR_MS, 800.0)]


@pytest.mark.parametrize(
    ("line", "said"),
    [("2026-03-01T20:00,170", "allowed -20 to 60"), ("2025-03-01T20:00,17", "had passed when it came"),
     ("2027-03-01T20:00,17", "is too far ahead: at most 15 days after the issue, until 2026-03-16T11:00Z")],
)  # fmt: skip
def test_a_plan_that_would_be_a_dead_letter_is_not_published(
    published: list[PlanMessage], tmp_path: Path, line: str, said: str
) -> None:
    """The command says what the dead letter would."""
    path = written(tmp_path, f"time,sp_heat_c\n{line}\n")
    result = CliRunner().invoke(app, ["plan", "import", str(path), "--zone", "demo/north-1"])
    assert result.exit_code == 1
    assert said in result.output
    assert published == []


def test_what_is_foreseen_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each source in one line, then what holds now and its next values."""
    path = [[MIDNIGHT_MS + n * HOUR_MS, 17.0 + n] for n in range(8)]
    plan = {
        "source": "grower",
        "kind": "setpoint",
        "zone": "z1",
        "issued_ms": MIDNIGHT_MS,
        "values": {"sp_heat_c": path},
    }
    found: dict[str, Any] = {"site": "demo", "zone": "z1", "stream_ms": MIDNIGHT_MS + 2 * HOUR_MS, "plans": [plan]}
    asked: list[tuple[str, dict[str, str]]] = []

    def get(self: Client, path: str, **query: str) -> Any:
        asked.append((path, query))
        return found

    monkeypatch.setattr(Client, "get", get)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["--url", "http://127.0.0.1:1", "plan", "show", "demo/z1"])
    assert result.exit_code == 0, result.output
    assert asked == [("/zones/z1/plan", {"site": "demo"})]
    assert result.output.splitlines() == [
        "demo/z1: setpoint plan of grower, issued 2026-02-28 23:00 UTC",
        "  sp_heat_c: now 19, 02:00 UTC 20, 03:00 UTC 21, 04:00 UTC 22 … until 2026-03-01 06:00 UTC",
    ]
    found["plans"] = []
    result = CliRunner().invoke(app, ["--url", "http://127.0.0.1:1", "plan", "show", "z1"])
    assert result.output == "nothing is foreseen for demo/z1\n"


@pytest.mark.parametrize(
    ("kind", "metric", "hours", "shown"),
    [
        ("setpoint", "sp_heat_c", (-14, -2), "now 17"),
        ("setpoint", "sp_heat_c", (-2, 10), "now 16, 21:00 UTC 17"),
        ("setpoint", "sp_heat_c", (-30, -25), "over"),
        ("setpoint", "sp_heat_c", (-30, -24), "now 17"),
        ("setpoint", "sp_heat_c", (1, 2), "12:00 UTC 16, 13:00 UTC 17"),
        ("weather", "out_temp_c", (-14, -2), "over"),
        ("weather", "out_temp_c", (-2, 1), "12:00 UTC 17"),
        ("event", "harvest_pct", (-2, 1), "12:00 UTC 17"),
    ],
)
def test_a_setpoint_that_holds_is_shown_as_that_of_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, metric: str, hours: tuple[int, int], shown: str
) -> None:
    """Until the next one, for a day at most; what else has passed is over."""
    now_ms = MIDNIGHT_MS + 12 * HOUR_MS
    path = [[now_ms + hour * HOUR_MS, 16.0 + n] for n, hour in enumerate(hours)]
    plan = {
        "source": "grower", "kind": kind, "zone": "z1", "issued_ms": now_ms - 40 * HOUR_MS, "values": {metric: path},
    }  # fmt: skip
    found = {"site": "demo", "zone": "z1", "stream_ms": now_ms, "plans": [plan]}
    monkeypatch.setattr(Client, "get", lambda self, path, **query: found)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["--url", "http://127.0.0.1:1", "plan", "show", "demo/z1"])
    assert result.output.splitlines()[1:] == [f"  {metric}: {shown}"]
