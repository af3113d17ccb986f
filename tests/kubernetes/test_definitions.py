"""What the definitions of KubeRay's and Prometheus' kinds say of the manifests, strictly; no cluster is asked.

Not seen here are rules in Kubernetes' expression language: a cluster checks them (test_cluster.py).
"""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.conftest import missing
from tests.kubernetes.definitions import KUBERAY, PROMETHEUS, definitions
from tests.kubernetes.manifests import OVERLAYS, objects, text

pytestmark = [
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
    pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed: it fetches the definitions"),
]
GROUPS = ("ray.io/", "monitoring.coreos.com/")
Validators = dict[tuple[str, str], Draft202012Validator]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Definitions have `=` as a word, for which YAML 1.1 has another meaning."""


_Loader.yaml_implicit_resolvers = {
    first: [found for found in known if found[0] != "tag:yaml.org,2002:value"]
    for first, known in _Loader.yaml_implicit_resolvers.items()
}


@pytest.fixture(scope="module")
def validators() -> Validators:
    """(apiVersion, kind) -> what refuses what the API server would, and unknown fields."""
    try:
        files = [path for source in (KUBERAY, PROMETHEUS) for path in definitions(*source)]
    except OSError as error:
        missing(str(error))
    found = {}
    for path in files:
        spec = yaml.load(path.read_text(), Loader=_Loader)["spec"]
        for version in spec["versions"]:
            schema = closed(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}  # Kubernetes' own
            found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = Draft202012Validator(schema)
    return found


def closed(schema: Any) -> Any:
    """A schema in which no object has a field that it does not name, but where it says that it may."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: closed(value) for name, value in schema.items()}
    if "properties" in made and made.get("type") == "object" and not made.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def problems(validators: Validators, manifests: list[dict[str, Any]]) -> list[str]:
    """What is wrong with those that are of an operator's kind."""
    found = []
    for one in (one for one in manifests if one["apiVersion"].startswith(GROUPS)):
        for error in validators[one["apiVersion"], one["kind"]].iter_errors(one):
            where = "/".join(map(str, error.absolute_path))
            found.append(f"{one['kind']} {one['metadata']['name']} {where}: {error.message}")
    return found


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_field_is_defined(validators: Validators, overlay: str) -> None:
    """Known, of its type, and there where it must be."""
    assert problems(validators, objects(overlay)) == []


def test_all_kinds_are_seen(validators: Validators) -> None:
    """Those that a cluster may not have, among them."""
    seen = {one["kind"] for overlay in OVERLAYS for one in objects(overlay) if one["apiVersion"].startswith(GROUPS)}
    assert seen == {"RayCluster", "RayJob", "PodMonitor", "PrometheusRule", "ScrapeConfig", "ServiceMonitor"}
    assert seen == {kind for _, kind in validators}


@pytest.mark.parametrize(
    ("overlay", "right", "wrong"),
    [("production", "jobName:", "jobname:"), ("production", "interval: 15s", "intervals: 15s"),
     ("production", "port: metrics", "port: 9108"), ("production", "alert: HothouseDown", "alarm: HothouseDown"),
     ("production", "for: 2m", "for: two minutes"), ("production", "minReplicas:", "minReplica:"),
     ("pretrain", "submissionMode: HTTPMode", "submissionmode: HTTPMode"),
     ("pretrain", "runAsNonRoot:", "runAsNonroot:")],
)  # fmt: skip
def test_a_wrong_field_is_seen(validators: Validators, overlay: str, right: str, wrong: str) -> None:
    """Misspelt, or of another type or form."""
    assert right in text(overlay)
    assert problems(validators, [one for one in yaml.safe_load_all(text(overlay).replace(right, wrong)) if one])
