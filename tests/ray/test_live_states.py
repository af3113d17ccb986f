"""Two live state actors on Ray: the loss of one is the matter of its own sites, and nobody who asks sees it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import ray
from fastapi.testclient import TestClient

from edge.log import partition_of
from services.config import load_settings
from services.serve.api.app import create_app
from services.serve.api.auth import Keys
from services.serve.api.state import ApiState
from services.serve.backend.ray_backend import RayBackend
from services.serve.deployment import ServingActors, start_actors
from services.serve.live_state import LiveStateChanges
from tests.patience import patience_s, until
from tests.ray.runtime import NAMESPACE, installed, local_ray
from tests.services.serve.fakes import SPEC, zone_forecast

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
SITES = [next(f"s{n}" for n in range(99) if partition_of(f"s{n}", 2) == partition) for partition in range(2)]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[ServingActors, TestClient]]:
    """Two live states, each with a site of two zones, and the API in this process, which follows both."""
    folder = tempfile.mkdtemp(prefix="r-")  # short: Ray puts sockets in it
    settings = installed(
        load_settings(data_dir=tmp_path, log={"partitions": 2}, stream={"shards": 2}, ray={"live_states": 2})
    )
    try:
        with local_ray(namespace=NAMESPACE, _temp_dir=folder):
            actors = start_actors(settings)
            for live_state, site in zip(actors.live_states, SITES, strict=True):
                forecasts = [zone_forecast("z1", site), zone_forecast("z2", site)]
                ray.get(live_state.publish.remote(forecasts), timeout=patience_s(60))
            state = ApiState(RayBackend(settings, None), Keys("op-key"), SPEC, stale_after_s=1800)
            with TestClient(create_app(state)) as client:
                until(lambda: len(client.get("/zones").json()["zones"]) == 4, "the API has heard of both")
                yield actors, client
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def known(live_state: Any) -> LiveStateChanges | None:
    """All that one knows; None while it is away."""
    with suppress(ray.exceptions.RayError):
        found: LiveStateChanges = ray.get(live_state.wait.remote(0, 0.0), timeout=patience_s(10))
        return found
    return None


def test_one_of_two_is_killed_and_only_its_zones_come_back(two: tuple[ServingActors, TestClient]) -> None:
    """The API answers for all zones meanwhile; it gives a new live state the sites of the one before, and nothing to
    the other one, of which it hears as ever.
    """
    actors, client = two
    first, second = actors.live_states
    before = [known(first), known(second)]

    def answered() -> None:
        for site in SITES:
            assert client.get(f"/predict?zone={site}/z1").status_code == 200

    def restored() -> bool:
        answered()
        found = known(second)
        return bool(found and before[1] and found["identity"] != before[1]["identity"] and found.get("forecasts"))

    ray.kill(second, no_restart=False)
    until(restored, "the new live state knows forecasts")
    assert [(one["site"], one["zone"]) for one in (known(second) or {})["forecasts"]] == [
        (SITES[1], "z1"), (SITES[1], "z2")
    ]  # fmt: skip
    assert known(first) == before[0], "not even asked to take something"
    ray.get(first.publish.remote([zone_forecast("z3", SITES[0])]), timeout=patience_s(60))
    until(lambda: client.get(f"/predict?zone={SITES[0]}/z3").status_code == 200, "news of the other live state")
    ray.get(second.publish.remote([zone_forecast("z3", SITES[1])]), timeout=patience_s(60))
    until(lambda: client.get(f"/predict?zone={SITES[1]}/z3").status_code == 200, "news of the new live state")
    answered()
    past = client.get(f"/history?zone={SITES[1]}/z3").json()
    assert past["end_ms"], "of the live state that has the site"
