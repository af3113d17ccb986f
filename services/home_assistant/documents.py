"""Step 9 of the way of a reading: the documents by which Home Assistant makes devices and entities.

The form is that of Home Assistant's MQTT device discovery: one document a device, with its components.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from edge.wire.vocabulary import VOCABULARY
from models.alerts.alert_words import NAMES
from services.config import NO_LABELS, SiteNames
from services.home_assistant.names import alerts_topic, device_id, state_topic

__all__ = ["About", "site_document", "zone_document"]

_CLASSES = {
    "°C": "temperature", "ppm": "carbon_dioxide", "kPa": "pressure", "W/m²": "irradiance", "m/s": "wind_speed",
}  # fmt: skip
_CLASS_OF = {"rh_pct": "humidity", "out_rh_pct": "humidity", "soil_vwc_pct": "moisture", "out_longwave_net_w_m2": None}
_LABELS = {"vpd_kpa": ("vapour pressure deficit", "kPa")}
_ALERT_CLASSES = {"frost": "cold", "heat": "heat", "condensation": "moisture"}


class About(NamedTuple):
    """What all documents of this installation say of it."""

    presence_topic: str
    version: str
    expire_after_s: int
    """Entities whose state is older become unavailable."""
    silent_after_s: float
    """As do those of a zone whose readings are older: its forecast is refused elsewhere, too."""
    names: SiteNames = NO_LABELS
    """What people call sites and zones."""


def zone_document(
    about: About, site: str, zone: str, readings: Collection[str], targets: Collection[str], rules: Mapping[str, str]
) -> dict[str, Any]:
    """A zone as a device; ``rules`` are key -> rule, as :class:`~services.home_assistant.alert_states.ZoneAlerts` has
    them.
    """
    device = device_id(site, zone)
    components = {metric: _reading(about, metric) for metric in sorted(readings)}
    components |= {f"forecast_{target}": _forecast(about, target) for target in targets}
    if "air_temp_c" in targets:
        components |= {"night": _extreme(about, "night", "Minimum tonight", "mdi:weather-night"),
                       "day": _extreme(about, "day", "Maximum tomorrow", "mdi:white-balance-sunny")}  # fmt: skip
    components["health"] = _entity(about, "health", "Sensors", "binary_sensor") | {
        "device_class": "problem", "entity_category": "diagnostic",
    }  # fmt: skip
    components |= _alerts(rules, alerts_topic(site, zone))
    name = about.names.zone(site, zone)
    named = {"name": name, "model": "Zone", "via_device": device_id(site), "suggested_area": name}
    return _document(about, device, named, components, state_topic(site, zone))


def site_document(about: About, site: str, readings: Collection[str], rules: Mapping[str, str]) -> dict[str, Any]:
    """A site as a device: the weather, the model, whether something fails, and alerts about no zone."""
    components = {metric: _reading(about, metric) for metric in sorted(readings)}
    components["model"] = _entity(about, "model", "Model") | {"entity_category": "diagnostic", "icon": "mdi:brain"}
    components["problem"] = _entity(about, "problem", "Hothouse", "binary_sensor") | {
        "device_class": "problem", "entity_category": "diagnostic",
    }  # fmt: skip
    components |= _alerts(rules, alerts_topic(site))
    named = {"name": about.names.site(site), "model": "Site"}
    return _document(about, device_id(site), named, components, state_topic(site))


def _document(
    about: About, device: str, named: Mapping[str, str], components: Mapping[str, Mapping[str, Any]], topic: str
) -> dict[str, Any]:
    attributes = {key: one.get("json_attributes_template") for key, one in components.items()}
    return {
        "device": {"identifiers": [device], "manufacturer": "Hothouse", "sw_version": about.version, **named},
        "origin": {"name": "Hothouse", "sw_version": about.version},
        "availability": [{
            "topic": about.presence_topic, "value_template": "{{ 'online' if value_json.online else 'offline' }}",
        }],
        "state_topic": topic,
        "qos": 1,
        "components": {
            key: {
                **one, "unique_id": f"{device}_{key}",
                **({"json_attributes_topic": one.get("state_topic", topic)} if attributes[key] else {}),
            }
            for key, one in components.items()
        },
    }  # fmt: skip


def _reading(about: About, metric: str) -> dict[str, Any]:
    label, unit = _label(metric)
    # Also of a counter: a row has what was added in its step, which begins anew each time.
    return {
        "platform": "sensor", "name": _capital(label),
        "value_template": f"{{{{ value_json.readings.get('{metric}') }}}}",
        "expire_after": about.expire_after_s, "state_class": "measurement",
        **_measured(metric, unit),
    }  # fmt: skip


def _forecast(about: About, target: str) -> dict[str, Any]:
    label, unit = _label(target)
    return _part(about, f"forecast.get('{target}', {{}})", f"{_capital(label)} in 1 h") | {
        "state_class": "measurement", **_measured(target, unit),
    }  # fmt: skip


def _extreme(about: About, part: str, name: str, icon: str) -> dict[str, Any]:
    return _entity(about, part, name) | {"icon": icon, "state_class": "measurement", **_measured("air_temp_c", "°C")}


def _entity(about: About, part: str, name: str, platform: str = "sensor") -> dict[str, Any]:
    return _part(about, part, name, platform)


def _part(about: About, part: str, name: str, platform: str = "sensor") -> dict[str, Any]:
    """An entity that is a ``value`` with ``attributes``."""
    return {
        "platform": platform, "name": name, "expire_after": about.expire_after_s,
        "value_template": _template(part, "value"), "json_attributes_template": _template(part, "attributes"),
    }  # fmt: skip


def _template(part: str, member: str) -> str:
    """The member of a part. One that is missing is unknown: a state may be older or newer than its device.

    >>> _template("night", "value")
    "{{ value_json.night.get('value') }}"
    """
    return f"{{{{ value_json.{part}.get('{member}') }}}}" if member == "value" else (
        f"{{{{ value_json.{part}.get('{member}', {{}}) | tojson }}}}"
    )  # fmt: skip


def _alerts(rules: Mapping[str, str], topic: str) -> dict[str, Any]:
    return {f"alert_{key}": _alert(key, rule, topic) for key, rule in rules.items()}


def _alert(key: str, rule: str, topic: str) -> dict[str, Any]:
    """No ``expire_after``: an alert is on until it is said to be over."""
    return {
        "platform": "binary_sensor", "name": f"Alert: {NAMES.get(rule, rule)}", "state_topic": topic,
        "device_class": _ALERT_CLASSES.get(rule, "problem"),
        "value_template": _template(f"get('{key}', {{}})", "value"),
        "json_attributes_template": _template(f"get('{key}', {{}})", "attributes"),
    }  # fmt: skip


def _measured(metric: str, unit: str) -> dict[str, Any]:
    if unit == "0/1":
        return {}
    kind = _CLASS_OF.get(metric, _CLASSES.get(unit))
    decimals = 2 if unit == "kPa" else 0 if unit == "ppm" else 1
    return {"unit_of_measurement": unit, "suggested_display_precision": decimals,
            **({"device_class": kind} if kind else {})}  # fmt: skip


def _label(metric: str) -> tuple[str, str]:
    if metric in VOCABULARY:
        return VOCABULARY[metric].label, VOCABULARY[metric].unit
    return _LABELS.get(metric, (metric, ""))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
