"""Serving's parts that need no Ray."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from services.config import load_settings
from services.key_file import write_secret
from services.runtime.joined import Deployed
from services.serve.api.auth import OPERATOR_KEY_FILE
from services.serve.deployment import NOTHING, build_app


@pytest.mark.skipif(platform.system() != "Linux", reason="libraries have these names on Linux only")
@pytest.mark.thorough
def test_torch_is_linked_before_it_is_imported() -> None:
    """Its libraries are in the process, and nothing of it was imported: what is left of the import holds nobody up."""
    code = (
        "import sys; from services.serve.models.model_loading import link_torch; link_torch(); "
        "print('libtorch_cpu.so' in open('/proc/self/maps').read(), 'torch' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True", "False"]


def test_a_start_like_the_one_before_leaves_replicas_of_a_cluster_as_they_are(tmp_path: Path) -> None:
    """They know the forecasts and go on answering; with other settings, or another key, they are made anew."""

    def version(folder: str = "a", there: Mapping[str, Deployed] = NOTHING, **changed: object) -> str | None:
        data_dir = tmp_path / folder
        write_secret(data_dir / OPERATOR_KEY_FILE)
        settings = load_settings(data_dir=data_dir, **{"ray": {"address": "head:6379"}, **changed})
        found: str | None = build_app(settings, there=there)._bound_deployment.version
        return found

    assert version()
    assert version() == version()
    assert len({version(), version("b"), version(api={"rate_per_s": 7})}) == 3
    again = version(there={"Api": Deployed(version() or "", given_up=True)})
    assert again != version(), "Serve gave it up"
    assert version(there={"Api": Deployed(again or "")}) == again
    assert version(there={"Forecaster": Deployed("", given_up=True)}) == version(), "the other one"
    assert version(ray={}) is None


@pytest.mark.parametrize(
    ("ray", "options"),
    [
        ({"address": "head:6379", "api_resource": "api"}, {"num_cpus": 0, "resources": {"api": 1}}),
        ({"address": "head:6379"}, {"num_cpus": 0.1}),
        ({"api_resource": "api"}, {"num_cpus": 0.1}),
    ],
    ids=["nodes of its own", "any node", "no cluster"],
)
def test_the_api_is_put_where_its_resource_is(tmp_path: Path, ray: dict[str, object], options: object) -> None:
    """On nodes that have it, and that need no CPUs; a runtime of our own has no such node."""
    write_secret(tmp_path / OPERATOR_KEY_FILE)
    api = build_app(load_settings(data_dir=tmp_path, ray=ray))._bound_deployment
    assert {key: api.ray_actor_options.get(key) for key in ("num_cpus", "resources")} == {"resources": None, **options}  # type: ignore[dict-item]
