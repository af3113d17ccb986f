"""Step 9 of the way of a reading: which messages Home Assistant needs, when something has changed.

Pure: it takes the live state's changes, remembers what was said, and gives messages to publish. All are retained, so
that Home Assistant finds them whenever it asks; a state that has grown old is taken back, or it would be found as if
it were new. So is that of a silent zone, of which rows go on to close at each step with the others of its site.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import is_weather
from models.durations import MINUTE_MS
from services.home_assistant.alert_states import RULES, SITE_RULES, ZoneAlerts
from services.home_assistant.documents import About, site_document, zone_document
from services.home_assistant.names import RetainedMessage, alerts_topic, config_topic, device_id, state_topic
from services.home_assistant.states import site_state, zone_state
from services.messages import ModelRow, ZoneForecast
from services.serve.view import input_age_s, usable_for_s

__all__ = ["Publication"]

ASK_EVERY_MS = 15 * MINUTE_MS
"""How often a zone's scenarios are asked for tonight and tomorrow, in the stream's time."""

Events = Sequence[Mapping[str, Any]]


@dataclass
class _Zone:
    forecast: ZoneForecast
    readings: set[str] = field(default_factory=set)
    targets: dict[str, None] = field(default_factory=dict)  # in their order
    events: Events = ()
    asked_ms: int | None = None


class Publication:
    """Not shared between threads. ``events_of`` asks for a zone's ``night, day, night_below, day_above``, and gives
    nothing where nobody answers; ``timezone_of`` is a site's. ``published`` are the topics on which the broker may hold
    something of ours, at first those of an earlier process; what is taken back stays among them until the broker has
    it (:meth:`cleared`). ``clock_s`` is monotonic. Without a prefix :meth:`again` takes all of them back.
    """

    def __init__(
        self, prefix: str, about: About, events_of: Callable[[ZoneForecast], Events],
        timezone_of: Callable[[str], str], clock_s: Callable[[], float], published: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._prefix, self._about = prefix, about
        self._events_of, self._timezone_of, self._clock_s = events_of, timezone_of, clock_s
        self._zones: dict[tuple[str, str], _Zone] = {}
        self._alerts: dict[tuple[str, str], ZoneAlerts] = {}
        self._models: Sequence[ModelRow] = ()
        self._problems: dict[str, str] = {}
        self._left: dict[tuple[str, str], int] = {}
        self.published = set(published)
        self._taken_back = set[str]()  # of these; the broker may not know yet
        self._said: dict[str, bytes] = {}
        self._said_s: dict[str, float] = {}
        self._old = set[str]()  # states that are not said: they wait for the next row with a reading

    def take(self, changes: Mapping[str, Any]) -> list[RetainedMessage]:
        """What the live state's changes (``LiveStateChanges``) make necessary to publish, devices before states."""
        self._models = changes.get("models", self._models)
        for component, figures in changes.get("stats", {}).items():
            self._problems[component] = str(figures.get("error") or figures.get("last_error") or "")
            for left in figures.get("left", ()):
                self._left[left["site"], left["zone"]] = left["left_ms"]
        came = set()
        for forecast in changes.get("forecasts", ()):
            key = forecast["site"], forecast["zone"]
            if forecast["origin_ms"] > self._left.get(key, -1):
                self._take_forecast(key, forecast)
                came.add(key)
        alerted = set()
        for alert in changes.get("alerts", ()):
            key = alert["site"], alert["zone"]
            if self._alerts_at(*key).take([alert]):
                alerted.add(key)
        messages = self._removals()
        fresh, silent = self._by_readings(came)
        self._old |= silent
        for key in self._zones:
            if key in came | alerted:
                messages += [*self._of_zone(*key), self._alerts_of(*key)]
        for site in dict.fromkeys(site for site, _ in self._zones):
            messages += self._of_site(site)
        return [*self._news(messages, fresh), *self._expired(silent)]

    def again(self) -> list[RetainedMessage]:
        """Everything, for a Home Assistant or a broker that has started.

        What an earlier process said under another prefix is taken back, and its states: they may be old by now. So is
        what was taken back before, while the broker was away perhaps.
        """
        stays = f"{self._prefix}/device/" if self._prefix else "\0"
        unsaid = self.published - self._said.keys()
        self._taken_back |= {topic for topic in unsaid if not topic.startswith(stays)}
        return [
            *(RetainedMessage(topic, b"") for topic in sorted(self._taken_back)),
            *(RetainedMessage(*said) for said in self._said.items()),
        ]

    def cleared(self, topic: str) -> None:
        """The broker has it that the topic was taken back; of no avail where something was said there again."""
        if topic in self._taken_back:
            self._taken_back.discard(topic)
            self.published.discard(topic)

    def _take_forecast(self, key: tuple[str, str], forecast: ZoneForecast) -> None:
        zone = self._zones.setdefault(key, _Zone(forecast))
        zone.forecast = forecast
        zone.readings |= {metric for metric, value in forecast["now"].items() if value is not None}
        zone.targets |= dict.fromkeys(forecast["forecasts"])
        if zone.asked_ms is None or forecast["origin_ms"] >= zone.asked_ms + ASK_EVERY_MS:
            events = self._events_of(forecast)
            if events:
                zone.events, zone.asked_ms = events, forecast["origin_ms"]

    def _by_readings(self, came: Collection[tuple[str, str]]) -> tuple[set[str], set[str]]:
        """The state topics of these zones and their sites: those that readings renew, and those whose readings are all
        too old. A site is in neither while another of its zones is well.
        """
        fresh, silent = set[str](), set[str]()
        for key in came:
            forecast = self._zones[key].forecast
            is_young = input_age_s(forecast) <= usable_for_s(forecast, self._about.silent_after_s)
            (fresh if is_young else silent).add(state_topic(*key))
        old = self._old | silent
        for site in {site for site, _ in came}:
            if any(state_topic(*key) in fresh or self._has_weather(key) for key in came if key[0] == site):
                fresh.add(state_topic(site))
            elif all(state_topic(*key) in old for key in self._zones if key[0] == site):
                silent.add(state_topic(site))
        return fresh, silent

    def _has_weather(self, key: tuple[str, str]) -> bool:
        """Whether something of the site's weather station was young enough at the zone's newest row."""
        ages = self._zones[key].forecast["freshness_s"].items()
        return any(
            age_s is not None and age_s <= self._about.silent_after_s
            for metric, age_s in ages if is_weather(metric)
        )  # fmt: skip

    def _of_zone(self, site: str, name: str) -> list[RetainedMessage]:
        zone = self._zones[site, name]
        inside = {metric for metric in zone.readings if not is_weather(metric)}
        rules = self._alerts_at(site, name).rules
        document = zone_document(self._about, site, name, inside, zone.targets, rules)
        state = zone_state(zone.forecast, zone.events, inside, self._timezone_of(site))
        for target in zone.targets:  # one that cannot be forecast now is still an entity
            state["forecast"].setdefault(target, {"value": None, "attributes": {}})
        config = config_topic(self._prefix, device_id(site, name))
        return [_message(config, document), _message(state_topic(site, name), state)]

    def _alerts_at(self, site: str, name: str) -> ZoneAlerts:
        rules = SITE_RULES if name == SITE_ZONE else RULES
        return self._alerts.setdefault((site, name), ZoneAlerts(rules))

    def _alerts_of(self, site: str, name: str) -> RetainedMessage:
        return _message(alerts_topic(site, name), self._alerts[site, name].state(self._timezone_of(site)))

    def _of_site(self, site: str) -> list[RetainedMessage]:
        zones = [zone for (of, _), zone in self._zones.items() if of == site]
        newest = max(zones, key=lambda zone: zone.forecast["origin_ms"])
        outside = {metric for zone in zones for metric in zone.readings if is_weather(metric)}
        problems = [f"{component}: {said}" for component, said in sorted(self._problems.items()) if said]
        state = site_state(newest.forecast, outside, self._models, problems)
        config = config_topic(self._prefix, device_id(site))
        document = site_document(self._about, site, outside, self._alerts_at(site, SITE_ZONE).rules)
        return [_message(config, document), _message(state_topic(site), state), self._alerts_of(site, SITE_ZONE)]

    def _removals(self) -> list[RetainedMessage]:
        """Take back the zones that have left, and sites without a zone; also those of an earlier process."""
        gone = [
            key for key, left_ms in self._left.items()
            if key not in self._zones or self._zones[key].forecast["origin_ms"] <= left_ms
        ]  # fmt: skip
        for key in gone:
            self._zones.pop(key, None)
        kept = {site for site, _ in self._zones}
        gone += [(site, SITE_ZONE) for site in {site for site, _ in gone} - kept]
        for key in gone:
            self._alerts.pop(key, None)
        topics = [
            topic for key in gone
            for topic in (config_topic(self._prefix, device_id(*key)), state_topic(*key), alerts_topic(*key))
        ]  # fmt: skip
        held = self.published - self._taken_back
        return [RetainedMessage(topic, b"") for topic in topics if topic in held]

    def _news(self, messages: Sequence[RetainedMessage], fresh: Collection[str] = ()) -> list[RetainedMessage]:
        """Those that say something new, and the states in ``fresh``, which would else be called expired. A state that
        was taken back is not said again before it is fresh.
        """
        news = []
        for message in messages:
            topic, payload = message
            if not payload:
                self._said.pop(topic, None)
                self._said_s.pop(topic, None)
                self._taken_back.add(topic)
            elif topic not in fresh and (topic in self._old or self._said.get(topic) == payload):
                continue
            else:
                self._said[topic] = payload
                self._taken_back.discard(topic)
                self.published.add(topic)
                if topic in fresh:
                    self._said_s[topic] = self._clock_s()
                    self._old.discard(topic)
            news.append(message)
        return news

    def _expired(self, silent: Collection[str]) -> list[RetainedMessage]:
        """Take back the states that have grown old, and at once those in ``silent``."""
        limit_s = self._clock_s() - self._about.expire_after_s
        old = [topic for topic, at_s in self._said_s.items() if at_s < limit_s or topic in silent]
        self._old.update(old)
        return self._news([RetainedMessage(topic, b"") for topic in old])


def _message(topic: str, content: Mapping[str, Any]) -> RetainedMessage:
    return RetainedMessage(topic, msgspec.json.encode(content))
