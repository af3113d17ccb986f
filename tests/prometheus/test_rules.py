"""Rules and routes: valid for the real tools, each alert tested both ways and with a runbook, on metrics that exist."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml

from edge.figure_fields import figures_of
from services.serve.components import SHOWN_ON_METRICS
from tests.conftest import require_program
from tests.prometheus.rule_file import ALERTS, RULES, alerts
from tests.prometheus.said import said_by

ROOT = Path(__file__).parents[2]
ROUTES = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
HEADINGS = ["What it means", "What to look at", "What to do", "How it ends"]


def test_promtool_finds_the_rules_right() -> None:
    """`promtool check rules` names no error."""
    assert "SUCCESS" in said_by(require_program("promtool"), "check", "rules", RULES)


def test_promtool_finds_the_configuration_right() -> None:
    """`promtool check config`: the file that compose gives to Prometheus, with the rules that it names."""
    assert "SUCCESS" in said_by(
        require_program("promtool"), "check", "config", ROOT / "deploy/prometheus/prometheus.yml"
    )


def test_each_alert_fires_and_is_quiet() -> None:
    """`promtool test rules`: all cases hold."""
    assert "SUCCESS" in said_by(require_program("promtool"), "test", "rules", ALERTS)


def test_an_alert_that_stays_quiet_is_seen(tmp_path: Path) -> None:
    """The cases can fail: with a limit that nothing reaches, promtool says which alert did not fire."""
    (tmp_path / "tests").mkdir()
    broken = RULES.read_text().replace("connected[3m]) == 0", "connected[3m]) == 7")
    (tmp_path / RULES.name).write_text(broken)
    (tmp_path / "tests" / ALERTS.name).write_text(ALERTS.read_text())
    done = subprocess.run(
        [require_program("promtool"), "test", "rules", str(tmp_path / "tests" / ALERTS.name)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "HothouseBrokerAway" in done.stdout + done.stderr


def test_each_alert_fires_although_one_replica_of_two_hears_nothing(tmp_path: Path) -> None:
    """What other parts tell is missing in every second scrape then, and `for` must not begin anew each time."""
    own = ("up{", "hothouse_api")
    cases = [
        {
            "name": case["name"], "interval": "30s", "alert_rule_test": case["alert_rule_test"],
            "input_series": [
                {**given, "values": _every_second(given["values"], replicas_own=given["series"].startswith(own))}
                for given in case["input_series"]
            ],
        }
        for case in yaml.safe_load(ALERTS.read_text())["tests"]
        if case["interval"] == "1m" and "replica" not in case["name"] and case["name"].endswith(" fires")
        if "for" in alerts()[case["name"].partition(" ")[0]]
    ]  # fmt: skip
    assert len(cases) > 20
    order = ["hothouse-records", "hothouse-alerts"]
    test = {"rule_files": [str(RULES)], "evaluation_interval": "30s", "group_eval_order": order, "tests": cases}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    assert "SUCCESS" in said_by(require_program("promtool"), "test", "rules", tmp_path / "test.yml")


def _every_second(values: str, *, replicas_own: bool) -> str:
    """Values a minute as values each half of one: the same again of what a replica says of itself, else none.

    >>> _every_second("1+2x2 _ 7", replicas_own=False)
    '1 stale 3 stale 5 stale _ stale 7 stale'
    """
    each: list[str] = []
    for word in values.split():
        found = re.fullmatch(r"([\d.e]+)(?:([+-][\d.e]+))?x(\d+)", word)
        if found is None:
            each.append(word)
        else:
            each += [f"{float(found[1]) + float(found[2] or 0) * n:g}" for n in range(int(found[3]) + 1)]
    return " ".join(f"{value} {value if replicas_own else 'stale'}" for value in each)


def test_each_alert_has_both_cases() -> None:
    """One in which it fires, one in which it is quiet, and none of an alert that is gone."""
    cases = yaml.safe_load(ALERTS.read_text())["tests"]
    found = Counter((rule["alertname"], bool(rule["exp_alerts"])) for case in cases for rule in case["alert_rule_test"])
    assert set(found) == {(name, fires) for name in alerts() for fires in (True, False)}


@pytest.mark.parametrize("name", sorted(alerts()))
def test_each_alert_has_severity_summary_and_runbook(name: str) -> None:
    """Its page has the four headings, each with something under it."""
    rule = alerts()[name]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{name}.md"
    page = (ROOT / rule["annotations"]["runbook_url"]).read_text()
    parts = re.split(r"^## ", page, flags=re.M)
    assert [part.splitlines()[0] for part in parts[1:]] == HEADINGS
    assert all(part.split("\n", 1)[1].strip() for part in parts[1:])
    assert " ".join(rule["expr"].split()) in page, "the page shows another expression than the rule"


def test_the_list_of_runbooks_is_complete() -> None:
    """docs/runbooks/README.md names each alert, and no page is left of one that is gone."""
    folder = ROOT / "docs" / "runbooks"
    assert {page.stem for page in folder.glob("*.md")} - {"README"} == set(alerts())
    assert re.findall(r"\]\((\w+)\.md\)", (folder / "README.md").read_text()) == list(alerts())


def test_rules_and_dashboards_use_metrics_that_exist() -> None:
    """A name that no part declares would give no data for ever."""
    declared = {figure.name for kind in SHOWN_ON_METRICS.values() for figure in figures_of(kind).values()}
    groups = yaml.safe_load(RULES.read_text())["groups"]
    recorded = {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
    texts = [rule["expr"] for group in groups for rule in group["rules"]]
    texts += [path.read_text() for path in (ROOT / "deploy" / "grafana" / "dashboards").glob("*.json")]
    used = {name for text in texts for name in re.findall(r"(?:\w+:)?hothouse[_:][\w:]+", text)}
    assert len(used) > 60
    assert sorted(used - declared - recorded) == []


def test_amtool_finds_the_routes_right() -> None:
    """`amtool check-config` names no error, and no secret stands in the file."""
    assert "SUCCESS" in said_by(require_program("amtool"), "check-config", ROUTES)
    assert re.findall(r"(?:password|token|key|secret|url):", ROUTES.read_text()) == []


@pytest.mark.parametrize(
    ("severity", "receiver"),
    [("critical", "on-call"), ("warning", "in-working-hours"), ("info", "dashboard-only")],
)
def test_each_severity_finds_its_receiver(severity: str, receiver: str) -> None:
    """By what the real amtool says; routes look at nothing but the severity."""
    assert severity in {rule["labels"]["severity"] for rule in alerts().values()}
    amtool = require_program("amtool")
    labels = ("alertname=HothouseAny", f"severity={severity}")
    assert said_by(amtool, "config", "routes", "test", "--config.file", ROUTES, *labels).strip() == receiver


def test_a_gateway_without_its_broker_mutes_no_other_gateways_failure() -> None:
    """Of one gateway both have one cause; another one whose log is full acknowledges nothing, and says so by this."""
    rules = yaml.safe_load(ROUTES.read_text())["inhibit_rules"]
    mute = [rule for rule in rules if any("HothouseGatewayFailing" in words for words in rule["target_matchers"])]
    assert [(rule["source_matchers"], rule.get("equal")) for rule in mute] == [
        (['alertname = "HothouseBrokerAway"'], ["job", "instance"])
    ]
