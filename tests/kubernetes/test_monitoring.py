"""What Prometheus' operator is given: the rules of deploy/prometheus, and where to ask for the figures."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.kubernetes.cluster import run
from tests.kubernetes.manifests import KUBERNETES, objects
from tests.prometheus.rule_file import RULES

MADE = KUBERNETES / "components/monitoring/rules.yaml"
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def test_the_operators_rules_are_those_of_prometheus() -> None:
    """`make kubernetes-rules` writes them; one file is the source of both."""
    made = yaml.safe_load(MADE.read_text())
    assert made["kind"] == "PrometheusRule"
    assert made["spec"] == yaml.safe_load(RULES.read_text()), "make kubernetes-rules"


@needs_kubectl
def test_each_job_that_a_rule_names_is_one() -> None:
    """A ServiceMonitor's job is called as its service, a ScrapeConfig's as it says."""
    there = objects("production")
    monitored = [one["spec"]["selector"]["matchLabels"] for one in there if one["kind"] == "ServiceMonitor"]
    services = [one["metadata"] for one in there if one["kind"] == "Service"]
    jobs = {one["spec"]["jobName"] for one in there if one["kind"] == "ScrapeConfig"}
    for wanted in monitored:
        [name] = [each["name"] for each in services if wanted.items() <= each["labels"].items()]
        jobs.add(name)
    assert set(re.findall(r'job="(\w+)"', RULES.read_text())) == jobs


@needs_kubectl
def test_what_is_scraped_is_there() -> None:
    """The API's service and port by name; each port that a monitor names, on what it selects."""
    there = {(one["kind"], one["metadata"]["name"]): one for one in objects("production")}
    [target] = there["ScrapeConfig", "hothouse"]["spec"]["staticConfigs"][0]["targets"]
    service = there["Service", "hothouse-api"]
    names = (service["metadata"]["name"], service["metadata"]["namespace"])
    assert target == f"{'.'.join(names)}:{service['spec']['ports'][0]['port']}"
    for port in there["ServiceMonitor", "gateway"]["spec"]["endpoints"]:
        assert port["port"] in {each["name"] for each in there["Service", "gateway"]["spec"]["ports"]}
    cluster = there["RayCluster", "hothouse-a"]["spec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for port in there["PodMonitor", "ray"]["spec"]["podMetricsEndpoints"]:
        for group in groups:
            container = group["template"]["spec"]["containers"][0]
            assert port["port"] in {each["name"] for each in container["ports"]}, container["name"]


@needs_kubectl
def test_in_another_namespace_only_what_the_page_says_is_changed(tmp_path: Path) -> None:
    """The address of the API is the one place where the namespace stands by name."""
    made = in_namespace("elsewhere", tmp_path, "")
    assert named(made) == ["hothouse-api.hothouse:80"]
    page = (KUBERNETES.parents[1] / "docs/kubernetes.md").read_text()
    [patch] = re.findall(r"```yaml\n(patches:.*?)```", page, re.DOTALL)
    assert named(in_namespace("elsewhere", tmp_path, patch)) == []


def in_namespace(name: str, folder: Path, more: str) -> list[dict[str, Any]]:
    """The overlay `production` in that namespace."""
    mine = folder / "kubernetes/overlays/mine"
    shutil.copytree(KUBERNETES, folder / "kubernetes", dirs_exist_ok=True)
    mine.mkdir(exist_ok=True)
    (mine / "kustomization.yaml").write_text(
        f"kind: Kustomization\nnamespace: {name}\nresources: [../production]\n{more}"
    )
    return [one for one in yaml.safe_load_all(run("kubectl", "kustomize", str(mine))) if one]


def named(made: Any) -> list[str]:
    """Each text that has the namespace `hothouse` in an address, or names it."""
    if isinstance(made, dict):
        own = [made["namespace"]] if made.get("namespace") == "hothouse" else []
        return own + [text for value in made.values() for text in named(value)]
    if isinstance(made, list):
        return [text for value in made for text in named(value)]
    return [made] if isinstance(made, str) and re.search(r"\w\.hothouse\b(?!\.\w)", made) else []
