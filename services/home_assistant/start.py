"""Step 9 of the way of a reading: the link to Home Assistant over the live state and the shards of a running system."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, cast

from edge.mqtt.connection import MqttAddress
from services.config import Settings, SiteNames
from services.errors import StartError
from services.forecast_spec import forecast_spec
from services.home_assistant.documents import About
from services.home_assistant.home_assistant_link import HomeAssistantLink, PublishedTopics, presence_topic
from services.home_assistant.publication import Publication
from services.installation import installation_of
from services.messages import ZoneForecast, ZoneOutlook
from services.observe.version import hothouse_version
from services.serve.api.predict_parameters import Asked, Event, answer_of
from services.store.storage import FolderStorage, Storage, storage_of

__all__ = ["TOPICS_FILE", "home_assistant_link"]

TOPICS_FILE = "home-assistant.json"
TARGET = "air_temp_c"
EVENTS = (Event("night"), Event("day"), Event("night_below", TARGET), Event("day_above", TARGET))
WAIT_S = 1.0
ANSWER_S = 5.0
PAUSE_S = 30.0
LEAST_EXPIRY_S = 900


def home_assistant_link(
    settings: Settings, address: MqttAddress, live_states: Sequence[Any], shards: Sequence[Any]
) -> HomeAssistantLink | None:
    """The link, not entered yet; ``None`` where nobody wants one and none was there before. The last two are handles
    of Ray actors. Raises :class:`StartError` where it is not known what an earlier process has published.
    """
    prefix, topics = settings.home_assistant.prefix, PublishedTopics(_beside(settings), TOPICS_FILE)
    try:
        published = topics.read()
    except OSError as error:
        raise StartError(
            f"which topics Home Assistant was sent cannot be read: {error}",
            f"See to {TOPICS_FILE} in the data folder or bucket; start again once it can be read.",
        ) from error
    if not prefix and not published:
        return None
    client_id = f"hothouse-home-assistant-{installation_of(storage_of(settings))}"
    spec = forecast_spec(settings)

    outlooks = _Outlooks(shards)
    turns = cycle(range(len(live_states)))

    def changes(seen: Mapping[int, int]) -> Mapping[str, Any]:
        import ray

        index, wait_s = next(turns), WAIT_S / len(live_states)
        asked = live_states[index].wait.remote(seen.get(index, 0), wait_s)
        found: Mapping[str, Any] = ray.get(asked, timeout=wait_s + ANSWER_S)
        return found

    def events_of(forecast: ZoneForecast) -> list[dict[str, Any]]:
        outlook = outlooks.of(forecast["site"], forecast["zone"])
        if outlook is None or TARGET not in forecast["forecasts"]:
            return []
        asked = Asked((TARGET,), None, None, EVENTS)
        answer = answer_of(cast(dict[str, Any], forecast), asked, outlook, spec, with_scenarios=False)
        return list(answer["events"])

    about = About(
        presence_topic(client_id), hothouse_version(), max(LEAST_EXPIRY_S, 3 * settings.stream.step_s),
        settings.forecast.stale_after_s, SiteNames.of(settings.sites),
    )  # fmt: skip
    publication = Publication(
        prefix, about, events_of, lambda site: settings.site(site).timezone, time.monotonic, published
    )
    return HomeAssistantLink(address, client_id, prefix, publication, changes, topics)


def _beside(settings: Settings) -> Storage:
    """Where the topics are noted: the data folder, or the bucket."""
    return storage_of(settings) if settings.storage.url else FolderStorage(settings.data_dir)


class _Outlooks:
    """Asks the shards. Where one does not answer in time none is asked for ``PAUSE_S``: zones wait for each other."""

    def __init__(self, shards: Sequence[Any]) -> None:
        self._shards, self._from_s = shards, float("-inf")

    def of(self, site: str, zone: str) -> ZoneOutlook | None:
        """What the zone's shard says; the others do not know the zone, and one that restarts says nothing."""
        import ray

        if time.monotonic() < self._from_s:
            return None
        try:
            answers = ray.get([shard.outlook.remote(site, zone) for shard in self._shards], timeout=ANSWER_S)
        except ray.exceptions.GetTimeoutError:
            self._from_s = time.monotonic() + PAUSE_S
            return None
        except ray.exceptions.RayError:
            return None
        return next((answer for answer in answers if answer is not None), None)
