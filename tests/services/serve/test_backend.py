"""Which actor the API asks for a site."""

from __future__ import annotations

from services.config import load_settings
from services.messages import shard_actor
from services.serve.api.backend import RayBackend, shard_of


def test_a_site_is_asked_for_where_its_shard_tells_it() -> None:
    """For every site, and with sites for each of the live states."""
    settings = load_settings(log={"partitions": 16}, stream={"shards": 5}, ray={"live_states": 3})
    backend, sites = RayBackend(settings, None), [f"s{n}" for n in range(200)]
    told = {shard_actor(shard): settings.live_state_of(shard) for shard in range(5)}
    assert [backend.live_state_of(site) for site in sites] == [told[shard_of(site, settings)] for site in sites]
    assert {backend.live_state_of(site) for site in sites} == {0, 1, 2}
    assert backend.live_states == 3
