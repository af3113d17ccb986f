"""Every query of every panel, and of every variable, finds data in the real Prometheus and the real InfluxDB."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from influxdb_client import InfluxDBClient
from prometheus_client.parser import text_string_to_metric_families

from edge.figure_fields import Figure, figures_of
from services.serve.components import SHOWN_ON_METRICS
from tests.conftest import require_program
from tests.patience import patience_s, until
from tests.prometheus.said import said_by
from tests.prometheus.whole_system import START_MS, Whole, whole

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((FOLDER / "dashboards").glob("*.json"))}
LABEL_VALUES = re.compile(r"label_values\((.+), (\w+)\)")

# A running system need not have these: without an uplink nothing waits for it.
NOT_ALWAYS = {
    "hothouse_gateway_buffered_records", "hothouse_gateway_buffered_bytes", "hothouse_gateway_oldest_unsent_seconds",
    "hothouse_certificate_end_timestamp_seconds",
}  # fmt: skip


def queries() -> list[tuple[str, str, str]]:
    """``(dashboard and panel, type of the data source, query)`` of all targets and variables."""
    found = []
    for name, board in DASHBOARDS.items():
        for panel in board["panels"]:
            for target in panel["targets"]:
                kind = target["datasource"]["type"]
                found.append((f"{name}: {panel['title']}", kind, target["query" if kind == "influxdb" else "expr"]))
        for variable in board["templating"]["list"]:
            found.append((f"{name}: ${variable['name']}", variable["datasource"]["type"], variable["definition"]))
    return found


def test_dashboards_are_five_and_name_their_sources() -> None:
    """Fleet, site, zone, learning, system; each panel has a title, a query, and a source that is provisioned."""
    assert set(DASHBOARDS) == {"fleet", "site", "zone", "learning", "system"}
    provisioned = set(re.findall(r"uid: (\w+)", (FOLDER / "provisioning/datasources/hothouse.yml").read_text()))
    assert len({board["uid"] for board in DASHBOARDS.values()}) == 5
    for board in DASHBOARDS.values():
        assert len({panel["title"] for panel in board["panels"]}) == len(board["panels"])
        for panel in board["panels"]:
            assert panel["targets"]
            assert {target["datasource"]["uid"] for target in panel["targets"]} <= provisioned


def test_one_gateway_of_several_that_is_away_is_seen(tmp_path: Path) -> None:
    """Gateways that share a subscription answer for themselves: the panel says 1 while all are connected."""
    panel = next(panel for panel in DASHBOARDS["system"]["panels"] if panel["title"] == "Gateway")
    connected = next(t["expr"] for t in panel["targets"] if "hothouse_gateway_connected" in t["expr"])
    series = [
        {"series": 'hothouse_gateway_connected{instance="one"}', "values": "1 1"},
        {"series": 'hothouse_gateway_connected{instance="two"}', "values": "1 0"},
    ]
    said = [
        {"expr": connected, "eval_time": at, "exp_samples": [{"labels": "{}", "value": value}]}
        for at, value in (("0m", 1), ("1m", 0))
    ]
    case = {"interval": "1m", "input_series": series, "promql_expr_test": said}
    (tmp_path / "panel.yml").write_text(json.dumps({"evaluation_interval": "1m", "tests": [case]}))
    assert "SUCCESS" in said_by(require_program("promtool"), "test", "rules", tmp_path / "panel.yml")


@pytest.mark.e2e
@pytest.mark.broker
@pytest.mark.influx
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_query_returns_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of trainings, swaps, dead letters and alerts, which are caused here; and `/metrics` shows what
    docs/metrics.md lists, each as the kind that stands there.
    """
    with whole(tmp_path, monkeypatch) as found:
        until(lambda: found.prometheus.query("hothouse_api_ready == 1"), "it is ready", 120)
        found.order("/models/retrain")
        found.rubbish()
        until(lambda: found.prometheus.query("hothouse_swaps_total > 0"), "a trained model serves", 180)
        missing, began_s = queries(), time.monotonic()
        while missing := [query for query in missing if not has_data(found, *query[1:])]:
            assert time.monotonic() - began_s < patience_s(90), "no data:\n" + "\n".join(map(str, missing))
            time.sleep(1)
        assert_metrics_are_those_of_the_table(found)


def has_data(found: Whole, kind: str, query: str) -> bool:
    """Whether it gives at least one number (for a variable: one value), asked as Grafana asks."""
    query = query.replace("${site}", found.site).replace("$site", found.site).replace("${zone}", found.zone)
    if kind == "prometheus":
        query = query.replace("$__rate_interval", "15s")
        if told := LABEL_VALUES.fullmatch(query):
            return any(told[2] in one["metric"] for one in found.prometheus.query(told[1]))
        return any(math.isfinite(float(one["value"][1])) for one in found.prometheus.query(query))
    assert kind == "influxdb", kind
    for name, value in {
        "v.defaultBucket": f'"{found.influx.bucket}"', "v.timeRangeStart": f"time(v: {START_MS}000000)",
        "v.timeRangeStop": f"time(v: {START_MS + 10 * 86_400_000}000000)", "v.windowPeriod": "30m",
    }.items():  # fmt: skip
        query = query.replace(name, value)
    with InfluxDBClient(url=found.influx.url, token=found.influx.token, org=found.influx.org) as client:
        tables: list[Any] = client.query_api().query(query, org=found.influx.org)
    return any(record.get_value() is not None for table in tables for record in table.records)


def assert_metrics_are_those_of_the_table(found: Whole) -> None:
    """Each family that the running process shows is in the table with its kind and labels; and each of the table is
    shown before long, but those of what did not happen.
    """
    table = {figure.name: figure for kind in SHOWN_ON_METRICS.values() for figure in figures_of(kind).values()}
    began_s = time.monotonic()
    while set(table) - NOT_ALWAYS - (shown := shown_on_metrics(found, table)):
        absent = sorted(set(table) - NOT_ALWAYS - shown)
        assert time.monotonic() - began_s < patience_s(60), f"not on /metrics: {', '.join(absent)}"
        time.sleep(1)


def shown_on_metrics(found: Whole, table: Mapping[str, Figure]) -> set[str]:
    """The figures that `/metrics` shows now, each as it stands in the table. A part that is busy answers later."""
    shown = set()
    for family in text_string_to_metric_families(httpx.get(f"{found.system.url}/metrics", timeout=patience_s(30)).text):
        for sample in family.samples:
            figure = table[sample.name]
            assert figure.kind == family.type, sample.name
            assert set(sample.labels) - {"component"} == set(figure.labels) - {"component"}, sample.name
            assert "zone" not in sample.labels, "a label a zone is thousands of series"
            shown.add(sample.name)
    return shown
