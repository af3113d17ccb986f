"""docs/kubernetes.md, as somebody would follow it; no cluster is asked."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from services.config import load_settings
from tests.compose.stack import ROOT
from tests.kubernetes.cluster import run
from tests.kubernetes.manifests import KUBERNETES

PAGE = (ROOT / "docs/kubernetes.md").read_text()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_overlay_of_the_page_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written beside the others, it names images and addresses everywhere, also where KubeRay makes the pods; and what
    it sets are settings.
    """
    shutil.copytree(KUBERNETES, tmp_path / "kubernetes")
    mine = tmp_path / "kubernetes/overlays/mine"
    mine.mkdir()
    found = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    (mine / "kustomization.yaml").write_text(re.sub(r"^   ", "", found[1], flags=re.MULTILINE))
    made = run("kubectl", "kustomize", str(mine))
    images = set(re.findall(r"image: (\S+)", made))
    assert images == {
        "registry.example/hothouse-edge:1.0", "registry.example/hothouse-cluster:1.0", "redis:7", "eclipse-mosquitto:2"
    }  # fmt: skip
    settings = [one["data"] for one in yaml.safe_load_all(made) if one["kind"] == "ConfigMap"]
    kafka = {one["HOTHOUSE_KAFKA__SERVERS"] for one in settings if "HOTHOUSE_KAFKA__SERVERS" in one}
    assert kafka == {'["kafka.example:9092"]'}
    [trainings] = re.findall(r"```ini\n(.*?)```", PAGE, re.DOTALL)
    [system] = [one for one in settings if "HOTHOUSE_SITES" in one]
    for name, value in (system | dict(line.split("=", 1) for line in trainings.split())).items():
        monkeypatch.setenv(name, value)
    said = load_settings()
    assert (said.storage.region, said.sites[0].name, said.learn.window_days) == ("eu-west-1", "north", 730)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_job_of_the_page_is_one(tmp_path: Path) -> None:
    """Written beside the other, its pod has the image and the address of the bucket."""
    shutil.copytree(KUBERNETES, tmp_path / "kubernetes")
    mine = tmp_path / "kubernetes/jobs/mine"
    mine.mkdir()
    [written] = [text for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "../pretrain" in text]
    (mine / "kustomization.yaml").write_text(written)
    made = {one["kind"]: one for one in yaml.safe_load_all(run("kubectl", "kustomize", str(mine)))}
    [container] = made["RayJob"]["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/hothouse-cluster-cuda:1.0"
    assert container["envFrom"] == [{"configMapRef": {"name": made["ConfigMap"]["metadata"]["name"]}}]
    assert made["ConfigMap"]["data"]["HOTHOUSE_STORAGE__URL"] == "s3://my-bucket"


def test_what_the_page_names_is_there() -> None:
    """Folders, scripts and targets."""
    for path in re.findall(r"`?(deploy/(?:kubernetes|images)/[\w./-]+|tests/[\w./-]+)`?", PAGE):
        assert (ROOT / path).exists() or "/mine" in path, path
    targets = set(re.findall(r"make ([a-z0-9-]+)", PAGE))
    made = (ROOT / "Makefile").read_text()
    assert targets
    assert [name for name in targets if f"\n{name}:" not in made] == []
    named = set(re.findall(r"`((?:base|overlays|components|jobs)/\w+)`", PAGE))
    assert named
    assert [name for name in named if not (KUBERNETES / name).is_dir()] == []
