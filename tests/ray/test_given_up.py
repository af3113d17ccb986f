"""What Ray Serve gives up is known, and comes back under another version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ray import serve

from services.runtime.joined import Deployed, deployed
from tests.patience import until
from tests.ray.runtime import local_ray

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
NAME = "ours"


class Picky:
    """A replica that only starts where a file is."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            raise FileNotFoundError(file)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Ray Serve without HTTP."""
    with local_ray():
        serve.start(proxy_location="Disabled")
        yield
        serve.shutdown()


def deploy(file: Path) -> Deployed:
    """Deploy it as a start does, of the fingerprint ``f``; what the cluster then says of it once that is settled."""
    made = serve.deployment(Picky, name="Picky", ray_actor_options={"num_cpus": 0.1})
    made._version = deployed(NAME).get("Picky", Deployed()).next_version("f")
    serve.run_many([serve.RunTarget(made.bind(file), name=NAME)], wait_for_applications_running=False)
    until(lambda: serve.status().applications[NAME].status in ("RUNNING", "DEPLOY_FAILED"), "it is settled", 120)
    return deployed(NAME)["Picky"]


@pytest.mark.thorough
def test_what_serve_gave_up_comes_back_under_another_version(cluster: None, tmp_path: Path) -> None:
    """And keeps that one while it runs, so that replicas stay as they are."""
    assert deployed(NAME) == {}
    file = tmp_path / "file"
    assert deploy(file) == Deployed("f", given_up=True)
    file.touch()
    again = deploy(file)
    assert again.version.startswith("f-")
    assert not again.given_up
    assert deploy(file) == again
