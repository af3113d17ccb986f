"""What is published for Home Assistant, and when; ``test_in_home_assistant`` asks Home Assistant itself."""

from __future__ import annotations

import json
from typing import Any

from edge.wire.vocabulary import is_weather
from models.alerts.alert_rule import COURSES, STATES
from services.config import NO_LABELS, SiteNames
from services.home_assistant.alert_states import ZoneAlerts
from services.home_assistant.documents import About
from services.home_assistant.names import RetainedMessage, config_topic, device_id
from services.home_assistant.publication import Publication
from services.home_assistant.states import MAX_ATTRIBUTES_BYTES, zone_state
from tests.services.home_assistant.greenhouse import EVENTS, ORIGIN_MS, alert, forecast

ZONE = config_topic("homeassistant", device_id("demo", "north-1"))
SITE = config_topic("homeassistant", device_id("demo"))
STATE, ALERTS = "hothouse/state/demo/north-1", "hothouse/state/demo/north-1/alerts"
SITE_STATE, SITE_ALERTS = "hothouse/state/demo/_site", "hothouse/state/demo/_site/alerts"


class Clock:
    """Stands until it is told."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def publication(
    clock: Clock | None = None, prefix: str = "homeassistant", names: SiteNames = NO_LABELS, **options: Any
) -> Publication:
    """One whose zones are in Amsterdam."""
    about = About("hothouse/presence/us", "0.1", 900, 900, names)
    return Publication(prefix, about, lambda _: EVENTS, lambda _: "Europe/Amsterdam", clock or Clock(), **options)


def said(messages: list[RetainedMessage]) -> dict[str, Any]:
    """Topic -> what it holds now; None where it was taken back."""
    return {topic: json.loads(payload) if payload else None for topic, payload in messages}


def test_devices_are_called_as_people_call_zones_and_sites() -> None:
    """Topics and ids stay those of their own names."""
    names = SiteNames({"demo": "De Linde"}, {("demo", "north-1"): "Tomatoes, north"})
    made = publication(names=names)
    found = said(made.take({"version": 1, "forecasts": [forecast()]}))
    zone, site = found[ZONE]["device"], found[SITE]["device"]
    assert (zone["name"], zone["suggested_area"], site["name"]) == ("Tomatoes, north", "Tomatoes, north", "De Linde")
    assert zone["identifiers"] == [device_id("demo", "north-1")]


def test_a_zone_and_its_site_are_devices() -> None:
    """The documents have device, origin, availability and components with expire_after; devices come before states."""
    messages = publication().take({"version": 1, "forecasts": [forecast()]})
    found = said(messages)
    assert list(found) == [ZONE, STATE, ALERTS, SITE, SITE_STATE, SITE_ALERTS]
    document = found[ZONE]
    assert document["device"]["identifiers"] == [device_id("demo", "north-1")]
    assert document["device"]["via_device"] == device_id("demo")
    assert document["origin"] == {"name": "Hothouse", "sw_version": "0.1"}
    assert document["availability"][0]["topic"] == "hothouse/presence/us"
    components = document["components"]
    alerts = {f"alert_{rule}" for rule in (*COURSES, *STATES)}
    assert components.keys() - alerts == {
        "air_temp_c", "rh_pct", "vpd_kpa", "forecast_air_temp_c", "forecast_rh_pct", "forecast_vpd_kpa", "night", "day",
        "health",
    }  # fmt: skip
    assert {key for key, one in components.items() if one.get("expire_after") != 900} == alerts
    assert len({one["unique_id"] for one in components.values()}) == len(components)
    assert {"out_temp_c", "model", "problem", "alert_drift"} == found[SITE]["components"].keys()


def test_what_a_counter_gained_in_a_step_is_no_total() -> None:
    """Home Assistant takes a total that falls for one that was reset, and one that stays for no water at all."""
    found = said(publication().take({"version": 1, "forecasts": [forecast(now={"irrigation_l_m2": 0.5})]}))
    assert found[STATE]["readings"] == {"irrigation_l_m2": 0.5}
    assert found[ZONE]["components"]["irrigation_l_m2"]["state_class"] == "measurement"


def test_the_night_has_time_and_chance() -> None:
    """Tonight's minimum comes with its band, its time by the site's clock, and the chance of an unusual cold."""
    state = said(publication().take({"version": 1, "forecasts": [forecast()]}))[STATE]
    assert state["night"] == {"value": 12.41, "attributes": {
        "p10": 11.6, "p90": 13.3, "time": "2022-03-02T05:30+01:00", "earliest": "2022-03-02T03:00+01:00",
        "latest": "2022-03-02T07:00+01:00", "from": "2022-03-01T18:30+01:00", "to": "2022-03-02T07:30+01:00",
        "day": "tomorrow", "limit": 11.2, "side": "below", "chance": 0.18,
    }}  # fmt: skip
    assert state["day"] == {"value": None, "attributes": {"missing": "no day ends within the path"}}
    assert state["readings"] == {"air_temp_c": 18.3, "rh_pct": 81.0, "vpd_kpa": 0.4}
    assert state["health"]["value"] == "ON"
    assert state["forecast"]["air_temp_c"]["value"] == 17.2


def test_no_attributes_are_longer_than_home_assistant_keeps() -> None:
    """A path of thousands of times, and hundreds of reasons, are thinned below 16 KB."""
    long = forecast()
    long["path"] = {"horizon_min": list(range(5, 20_000, 5)), "targets": {
        "air_temp_c": {name: [17.12] * 3999 for name in ("p10", "p50", "p90")}}}  # fmt: skip
    long["degraded"] = ["a sensor is stuck at a value since yesterday"] * 1000
    state = zone_state(long, EVENTS, {"air_temp_c"}, "UTC")
    parts = [state["night"], state["day"], state["health"], *state["forecast"].values()]
    sizes = [len(json.dumps(part["attributes"], separators=(",", ":"))) for part in parts]
    assert max(sizes) <= MAX_ATTRIBUTES_BYTES < 2**14
    assert len(state["forecast"]["air_temp_c"]["attributes"]["path"]) > 100


def test_an_alert_about_hundreds_of_sensors_is_cut_short() -> None:
    """Home Assistant keeps its chance, state and times, too; the topic of the alert has the whole sentence."""
    one = "north-1/ß9 air_temp_c looks like °F (61.2 to 78.4): send °C; "
    told = alert("firing", 1, "sensor_fault") | {"text": "sensor fault: " + 300 * one}
    alerts = ZoneAlerts()
    alerts.take([told])
    attributes = alerts.state("UTC")["sensor_fault"]["attributes"]
    assert len(json.dumps(attributes, ensure_ascii=False).encode()) <= MAX_ATTRIBUTES_BYTES
    assert attributes["text"].startswith("sensor fault: " + 30 * one)
    assert attributes["text"].endswith("…")


def test_what_says_nothing_new_is_not_published() -> None:
    """A device is announced again only when it has another entity; a new forecast renews states alone."""
    made = publication()
    made.take({"version": 1, "forecasts": [forecast()]})
    later = {"version": 2, "forecasts": [forecast(origin_ms=ORIGIN_MS + 300_000)]}
    assert list(said(made.take(later))) == [STATE, SITE_STATE]
    assert made.take({"version": 3, "stats": {"gateway": {"error": ""}}}) == []
    more = forecast(now={"air_temp_c": 18.0, "co2_ppm": 612.0})
    found = said(made.take({"version": 4, "forecasts": [more]}))
    assert "co2_ppm" in found[ZONE]["components"]
    assert found[STATE]["readings"]["rh_pct"] is None, "an entity stays, and is unknown"


def test_a_firing_alert_is_on_until_it_is_over() -> None:
    """Firing and acknowledged are on; pending, muted and resolved are off; an older change does not count."""
    made = publication()
    made.take({"version": 1, "forecasts": [forecast()]})
    states = ["pending", "firing", "acknowledged", "muted", "resolved"]
    seen = []
    for change, state in enumerate(states, 1):
        found = said(made.take({"version": 2, "alerts": [alert(state, change)]}))
        seen.append(found[ALERTS]["condensation"]["value"])
        assert STATE not in found, "an alert does not renew what the forecast said"
    assert seen == ["OFF", "ON", "ON", "OFF", "OFF"]
    assert made.take({"version": 3, "alerts": [alert("firing", 2)]}) == []
    told = found[ALERTS]["condensation"]["attributes"]
    assert told["text"].startswith("condensation 72 %")
    assert told["from"] == "2022-03-02T04:00+01:00"


def test_a_rule_that_somebody_named_appears_with_its_first_alert() -> None:
    """Its binary sensor is added to the zone; it may have come before the zone's first forecast."""
    made = publication()
    assert made.take({"version": 1, "alerts": [alert("firing", 1, "too wet.here")]}) == []
    found = said(made.take({"version": 2, "forecasts": [forecast()]}))
    assert found[ZONE]["components"]["alert_too_wet_here_1f875a"]["name"] == "Alert: too wet.here"
    assert found[ALERTS]["too_wet_here_1f875a"]["value"] == "ON"


def test_an_alert_about_no_zone_is_one_of_its_site() -> None:
    """As of weather that drifts; it goes with the site."""
    made = publication()
    made.take({"version": 1, "forecasts": [forecast()]})
    told = said(made.take({"version": 2, "alerts": [alert("firing", 1, "drift", zone="_site")]}))
    assert told.keys() == {SITE_ALERTS}
    assert told[SITE_ALERTS]["drift"]["value"] == "ON"
    own = alert("firing", 1, "odd weather", zone="_site", kind="drift")
    found = said(made.take({"version": 3, "alerts": [own]}))
    [component] = [one for one in found[SITE]["components"].values() if one["name"] == "Alert: odd weather"]
    assert component["state_topic"] == SITE_ALERTS
    left = {"site": "demo", "zone": "north-1", "left_ms": ORIGIN_MS}
    assert said(made.take({"version": 4, "stats": {"shard-0": {"left": [left]}}}))[SITE_ALERTS] is None


def test_rules_in_any_letters_are_told_apart() -> None:
    """Too cold and too hot: one that is over does not turn the other off."""
    made = publication()
    made.take({"version": 1, "forecasts": [forecast()]})
    made.take({"version": 2, "alerts": [alert("firing", 1, "太冷")]})
    later = {"version": 3, "alerts": [alert("resolved", 2, "太热")]}
    told = said(made.take(later))
    components = [one for one in told[ZONE]["components"].values() if one["name"] in ("Alert: 太冷", "Alert: 太热")]
    assert len({one["unique_id"] for one in components}) == 2
    assert sum(state["value"] == "ON" for state in told[ALERTS].values()) == 1


def test_a_zone_that_retires_is_removed() -> None:
    """Device and states are taken back, with the site's after its last zone; the next sample brings them back."""
    made = publication()
    made.take({"version": 1, "forecasts": [forecast(), forecast("north-2")]})
    left = [{"site": "demo", "zone": "north-1", "left_ms": ORIGIN_MS}]
    found = said(made.take({"version": 2, "stats": {"shard-0": {"left": left}}}))
    assert found == {ZONE: None, STATE: None, ALERTS: None}
    assert made.take({"version": 3, "stats": {"shard-0": {"left": left}}}) == []
    left.append({"site": "demo", "zone": "north-2", "left_ms": ORIGIN_MS})
    found = said(made.take({"version": 4, "stats": {"shard-0": {"left": left}}}))
    assert SITE in found
    assert set(found.values()) == {None}
    for topic in [*made.published]:
        made.cleared(topic)
    assert made.published == set()
    back = said(made.take({"version": 5, "forecasts": [forecast(origin_ms=ORIGIN_MS + 300_000)]}))
    assert back[ZONE] is not None


def test_what_is_taken_back_goes_out_again_until_the_broker_has_it() -> None:
    """The broker may have been away, and a process that starts then has to know. What was said there since stays."""
    made = publication()
    made.take({"version": 1, "forecasts": [forecast(), forecast("north-2")]})
    everything = set(made.published)
    left = {"stats": {"shard-0": {"left": [{"site": "demo", "zone": "north-1", "left_ms": ORIGIN_MS}]}}}
    made.take({"version": 2, **left})
    gone = {ZONE, STATE, ALERTS}
    for _ in range(2):
        assert {topic for topic, payload in made.again() if not payload} == gone
    assert made.published == everything
    assert made.take({"version": 3, **left}) == [], "it is said once a connection"
    made.cleared(ALERTS)
    assert {topic for topic, payload in made.again() if not payload} == {ZONE, STATE}
    made.take({"version": 4, "forecasts": [forecast(origin_ms=ORIGIN_MS + 300_000)]})
    made.cleared(ZONE)
    assert made.published == everything
    assert all(payload for _, payload in made.again())


def test_a_restart_remembers_what_the_broker_holds() -> None:
    """A zone that left meanwhile is removed; states of before are taken back, as they may be old; devices stay."""
    before = publication()
    before.take({"version": 1, "forecasts": [forecast(), forecast("north-2")]})
    after = publication(published=before.published)
    assert {topic for topic, payload in after.again() if not payload} == {
        topic for topic in before.published if topic.startswith("hothouse/state/")
    }
    left = [{"site": "demo", "zone": "north-1", "left_ms": ORIGIN_MS}]
    after.take({"version": 1, "forecasts": [forecast("north-2")]})
    assert said(after.take({"version": 2, "stats": {"shard-0": {"left": left}}})) == {ZONE: None}


def test_nothing_stays_behind_another_prefix_or_none() -> None:
    """Under another prefix the devices of the former are removed; without one all of them."""
    before = publication()
    before.take({"version": 1, "forecasts": [forecast()]})
    other = publication(prefix="house", published=before.published)
    other.take({"version": 1, "forecasts": [forecast()]})
    gone = {topic for topic, payload in other.again() if not payload}
    assert gone == {ZONE, SITE}
    off = publication(prefix="", published=before.published)
    assert {topic for topic, _ in off.again()} == before.published
    assert off.published == before.published, "until the broker has it"


def test_a_state_that_has_grown_old_is_taken_back() -> None:
    """Else a Home Assistant that starts would take a retained state of yesterday for one of now."""
    clock = Clock()
    made = publication(clock)
    made.take({"version": 1, "forecasts": [forecast()]})
    clock.now_s = 899.0
    assert made.take({"version": 2}) == []
    clock.now_s = 901.0
    assert said(made.take({"version": 2})) == {STATE: None, SITE_STATE: None}


def test_what_was_taken_back_waits_for_the_next_row() -> None:
    """Neither a failure of a part nor an alert brings readings back that have grown old."""
    clock, site = Clock(), "hothouse/state/demo/_site"
    made = publication(clock)
    made.take({"version": 1, "forecasts": [forecast()]})
    clock.now_s = 901.0
    made.take({"version": 2})
    assert made.take({"version": 3, "stats": {"shard-0": {"last_error": "storage"}}}) == []
    assert said(made.take({"version": 4, "alerts": [alert("firing", 1)]})).keys() == {ALERTS}
    renewed = made.take({"version": 5, "forecasts": [forecast(origin_ms=ORIGIN_MS + 300_000)]})
    assert {STATE, site} <= said(renewed).keys()
    assert said(renewed)[site]["problem"]["value"] == "ON"


def aged(made: Any, age_s: float, outside_age_s: float | None = None) -> Any:
    """A forecast whose newest readings are so old, and those of the weather station; left out: as old."""
    outside_s = age_s if outside_age_s is None else outside_age_s
    ages = {metric: outside_s if is_weather(metric) else age_s for metric in made["freshness_s"]}
    return {**made, "freshness_s": ages}


def test_a_zone_that_reports_seldom_is_given_its_time() -> None:
    """As by ``/predict``: two and a half of its usual gaps."""
    made = publication(Clock())
    for step, age_s in enumerate((4000.0, 9000.0, 9300.0)):
        row = aged({**forecast(origin_ms=ORIGIN_MS + 300_000 * step), "reports_every_s": 3600}, age_s)
        assert (said(made.take({"version": step, "forecasts": [row]}))[STATE] is None) == (age_s > 9000), age_s


def test_a_silent_zone_is_taken_back_beside_one_that_lives() -> None:
    """Its rows go on to close with those of its site. From 15 minutes without a reading on nothing is said of it but
    its alerts; device and site stay, and its first reading brings it back.
    """
    clock = Clock()
    made = publication(clock)
    silent, held = "hothouse/state/demo/north-2", dict[str, Any]()
    for step in range(24):
        clock.now_s, origin_ms = 300.0 * step, ORIGIN_MS + 300_000 * step
        rows = [forecast("north-1", origin_ms), aged(forecast("north-2", origin_ms), 300.0 * step, 12.0)]
        told = said(made.take({"version": step, "forecasts": rows}))
        held |= told
        assert (held[silent] is None) == (step > 3), step
        assert (silent in told) == (step <= 4), step
        assert told[STATE] is not None
        assert told[SITE_STATE] is not None
    assert said(made.take({"version": 24, "alerts": [alert("firing", 1, zone="north-2")]})).keys() == {
        "hothouse/state/demo/north-2/alerts"
    }  # fmt: skip
    assert silent not in {topic for topic, payload in made.again() if payload}
    assert held[config_topic("homeassistant", device_id("demo", "north-2"))] is not None
    back = said(made.take({"version": 25, "forecasts": [forecast("north-2", ORIGIN_MS + 24 * 300_000)]}))
    assert back[silent]["readings"]["air_temp_c"] == 18.3


def test_a_zone_that_is_silent_from_the_start_has_a_device_and_no_state() -> None:
    """As after a restart of Hothouse."""
    told = said(publication().take({"version": 1, "forecasts": [aged(forecast(), 901.0)]}))
    assert told.keys() == {ZONE, ALERTS, SITE, SITE_ALERTS}


def test_a_site_stays_while_its_weather_station_or_a_zone_is_read() -> None:
    """Else it is taken back, too, also where its zones fall silent one after the other."""
    site, made = "hothouse/state/demo/_site", publication()
    made.take({"version": 1, "forecasts": [forecast(), forecast("north-2")]})

    def after(step: int, **age_s: float) -> dict[str, Any]:
        origin_ms = ORIGIN_MS + 300_000 * step
        rows = [aged(forecast(f"north-{zone[-1]}", origin_ms), age) for zone, age in age_s.items()]
        return said(made.take({"version": step, "forecasts": rows}))

    assert after(1, zone_1=1200.0) == {STATE: None}
    assert after(2, zone_2=1200.0).get(site, "") is None
    weather = aged(forecast(origin_ms=ORIGIN_MS + 900_000), 1500.0, 12.0)
    told = said(made.take({"version": 3, "forecasts": [weather]}))
    assert told[site]["readings"] == {"out_temp_c": 6.5}
    assert STATE not in told
    assert after(4, zone_1=2000.0, zone_2=2000.0) == {site: None}


def test_home_assistant_is_told_everything_again() -> None:
    """After its start it gets all devices and all states."""
    made = publication()
    first = made.take({"version": 1, "forecasts": [forecast()]})
    assert made.again() == first
