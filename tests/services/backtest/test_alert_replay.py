"""Rules along a recording: limits, nothing from the future, and scores."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from edge.wire.vocabulary import VOCABULARY
from models.alerts.alert_book import Alert
from models.alerts.alert_rule import AlertRule
from models.alerts.crop_rules import rules_for
from services.backtest.alert_replay import LEAST, MOST, Scored, Scores, limits_by_share, score_alerts
from services.backtest.prequential import BacktestOptions
from services.backtest.table import Table, read_table
from services.cli import app
from services.cli.alerts.alert_score import shown, write
from services.errors import HothouseError
from tests.services.backtest.short_recordings import made_up

pytestmark = pytest.mark.thorough

DAY_MS = 86_400_000
OPTIONS = BacktestOptions(warmup_ms=3 * DAY_MS, latitude=52.0, longitude=4.5, timezone="Europe/Amsterdam")
RULES = [rule for rule in rules_for("tomato") if rule.kind in ("heat", "vpd_high", "co2_low", "sensor_fault")]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Six days of two zones, warm by day."""
    return read_table(made_up(tmp_path_factory.mktemp("made") / "up", step_min=30))


def changed_after(table: Table, row: int) -> Table:
    """The same recording, but everything after a row is otherwise."""
    values = table.values.copy()
    values[:, row + 1 :] = values[:, row + 1 :][:, ::-1] * 1.3
    return replace(table, values=values)


def test_limits_are_chosen_from_the_first_part_alone(table: Table) -> None:
    """What comes after it changes none; each has events in two to ten per cent of that part's hours."""
    first = 3 * DAY_MS // table.step_ms
    chosen = limits_by_share(table, OPTIONS, RULES, whole=False)
    other = limits_by_share(changed_after(table, first), OPTIONS, RULES, whole=False)
    assert [each.rule for each in chosen] == [each.rule for each in other]
    assert [each.rule.name for each in chosen if not each.why_not] == ["heat", "vpd_high"]
    assert all(LEAST <= each.first_share <= MOST for each in chosen if not each.why_not)


def test_rows_need_not_end_with_half_hours(table: Table) -> None:
    """A logger that began two minutes past has the same alerts, two minutes later."""
    late_ms = 120_000
    spans = tuple((begin + late_ms, end + late_ms) for begin, end in table.spans)
    late = replace(table, start_ms=table.start_ms + late_ms, spans=spans)
    level = float(np.nanquantile(table.values[..., list(VOCABULARY).index("air_temp_c")], 0.9))
    heat = [replace(rule, limit=level) for rule in RULES if rule.kind == "heat"]
    fired = [[(a.zone, a.told_ms) for a in score_alerts(each, OPTIONS, heat).fired] for each in (table, late)]
    assert fired[0]
    assert [(zone, ms - late_ms) for zone, ms in fired[1] if ms is not None] == fired[0]


def test_limits_of_the_whole_recording_suit_the_hours_that_are_scored(table: Table) -> None:
    """Two to ten per cent of them, also where the first part was much colder; else the rule says why not."""
    first = 3 * DAY_MS // table.step_ms
    warmer = table.values.copy()
    warmer[:, first:, list(VOCABULARY).index("air_temp_c")] += 4
    heat = [rule for rule in RULES if rule.kind == "heat"]
    [whole] = limits_by_share(replace(table, values=warmer), OPTIONS, heat)
    [alone] = limits_by_share(replace(table, values=warmer), OPTIONS, heat, whole=False)
    assert LEAST <= whole.share <= MOST
    assert not whole.why_not
    assert alone.share > MOST
    constant = table.values.copy()
    constant[:, :, list(VOCABULARY).index("air_temp_c")] = 20.0
    [never] = limits_by_share(replace(table, values=constant), OPTIONS, heat)
    assert never.why_not == "no limit has events in 2% to 10% of the scored hours"


def test_a_rule_without_its_metric_says_so(table: Table) -> None:
    """It is not scored; a rule of a state has no limit."""
    chosen = limits_by_share(table, OPTIONS, RULES)
    assert [(c.rule.name, c.why_not) for c in chosen if c.why_not] == [
        ("co2_low", "the recording does not have what it watches")
    ]


HEAT = AlertRule(name="heat", kind="heat", limit=22.0, hysteresis=0.5, keep_min=60, lead_h=4)


@pytest.fixture(scope="module")
def scored(table: Table) -> tuple[Scored, list[Alert]]:
    """A heat at every noon, scored."""
    found = score_alerts(table, OPTIONS, [HEAT])
    return found.rules[0], found.fired


def test_events_that_come_every_day_are_told(scored: tuple[Scored, list[Alert]]) -> None:
    """Hours before, and never in vain."""
    score = scored[0].score
    assert score is not None
    assert score.events >= 4
    assert score.hit_rate == 1
    assert score.false == 0
    assert score.lead_h >= 1
    assert any("heat" in alert.why for alert in scored[1])


def test_nothing_is_said_from_the_future(table: Table, scored: tuple[Scored, list[Alert]]) -> None:
    """Alerts of the days before a change of the recording are the same, bit for bit."""
    row = 4 * DAY_MS // table.step_ms
    other = score_alerts(changed_after(table, row), OPTIONS, [HEAT]).fired
    before = [
        [alert for alert in each if alert.is_over and alert.changed_ms <= int(table.end_ms[row])]
        for each in (scored[1], other)
    ]
    assert before[0] == before[1]
    assert before[0]


def test_a_recording_that_is_all_first_part_is_refused(table: Table) -> None:
    """In one sentence."""
    with pytest.raises(HothouseError, match="ends with its first part"):
        score_alerts(table, replace(OPTIONS, warmup_ms=6 * DAY_MS), RULES)


def test_the_command_prints_and_writes(tmp_path: Path) -> None:
    """JSON with every figure, and a line an alert; it says where limits are from."""
    folder, out = made_up(tmp_path / "made", zones=("a",), step_min=30), tmp_path / "new" / "alerts.csv"
    rules = tmp_path / "rules.toml"
    rules.write_text("".join(f"[rules.{rule.name}]\noff = true\n" for rule in rules_for() if rule.kind != "heat"))
    said = ["alerts", "score", str(folder), "--first", "3d", "--limits-from", "first", "--rules", str(rules)]
    ran = CliRunner().invoke(app, [*said, "--out", str(out), "--json"])
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    assert told["limits"] == "chosen from the first 3d alone"
    [heat] = told["rules"]
    assert heat["rule"] == "heat"
    assert {"hit_rate", "false_a_week", "lead_h_median", "brier", "climatology_brier", "skill_low", "groups"} <= set(
        heat
    )
    assert told["together"]["events"] == heat["events"]
    assert heat["near"] <= heat["false"]
    with out.open() as file:
        alerts = list(csv.DictReader(file))
    assert alerts
    assert np.all([alert["told"] < (alert["over"] or "9") for alert in alerts])


def test_alerts_that_cannot_be_written_are_told(tmp_path: Path, scored: tuple[Scored, list[Alert]]) -> None:
    """In a sentence that names the file."""
    (tmp_path / "file").write_text("")
    with pytest.raises(HothouseError, match=r"file/alerts\.csv cannot be written"):
        write(tmp_path / "file" / "alerts.csv", scored[1])


def test_a_table_has_a_line_a_rule(scored: tuple[Scored, list[Alert]]) -> None:
    """With every figure that the rule was scored by, and one of all rules; few events are called few."""
    table = shown("a recording", Scores([scored[0]], scored[0].score, scored[1]))
    heat, together = (
        dict(zip((str(column.header) for column in table.columns), cells, strict=True))
        for cells in zip(*(column.cells for column in table.columns), strict=True)
    )
    assert heat["rule"] == "heat"
    assert heat["events"].endswith(", few")
    assert heat["hit rate"] == together["hit rate"] == "1.00"
    assert heat["false a week"] == together["false a week"] == "0.00"
    assert heat["worst group (at least)"] == ""  # no group has ten days
    assert all(cell for column, cell in heat.items() if not column.startswith("worst group"))


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (["--crop", "moss"], "crop 'moss' is not one of"),
        (["--ahead-source", "weather"], "--ahead-source names plans of a file"),
        (["--out", "alerts.parquet"], "alerts.parquet cannot hold alerts"),
        (["--rules", "none.toml"], "none.toml cannot be read"),
        (["--first", "often"], "--first 'often' is not a duration"),
    ],
)
def test_a_wrong_option_is_told_in_a_sentence(said: list[str], sentence: str, tmp_path: Path) -> None:
    """Before anything is read, with exit code 2."""
    ran = CliRunner().invoke(app, ["alerts", "score", str(tmp_path), *said])
    assert ran.exit_code == 2
    assert sentence in " ".join(ran.stderr.split())


@pytest.mark.parametrize("said", [(), ("--fine-tune",)])
def test_the_network_is_fine_tuned_where_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: tuple[str, ...]
) -> None:
    """Along the recording, as by a backtest; not by default."""
    asked: list[BacktestOptions] = []

    def scored(table: Table, options: BacktestOptions, *rest: object) -> Scores:
        asked.append(options)
        return Scores([], None, [])

    monkeypatch.setattr("services.backtest.alert_replay.score_alerts", scored)
    ran = CliRunner().invoke(app, ["alerts", "score", str(made_up(tmp_path / "up", step_min=30)), "--json", *said])
    assert ran.exit_code == 0, ran.output
    assert [options.fine_tune for options in asked] == [bool(said)]
