"""Step 2 of the way of a reading: sensors that Zigbee2MQTT hands on, a JSON document a message.

The friendly name of a device is SITE/ZONE/DEVICE, so that its topic is ``zigbee2mqtt/SITE/ZONE/DEVICE``. The time is
``last_seen`` where Zigbee2MQTT is told to send it, else when the message came. With ``last_seen`` a document that comes
twice is the same sample: Zigbee2MQTT sends what it knows again when it starts, and a broker what is not acknowledged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from edge.decoders.numbering import Numbering
from edge.wire.decoder import DecodedMessage
from edge.wire.envelope import UNKNOWN_SITE
from edge.wire.reading import Refusal, Sample, read_json, together
from edge.wire.topic import NAME_RULE, SITE_ZONE, is_name

__all__ = ["METRICS", "Zigbee2MqttDecoder"]

METRICS = {
    "temperature": "air_temp_c", "humidity": "rh_pct", "co2": "co2_ppm", "soil_moisture": "soil_vwc_pct",
    "soil_temperature": "soil_temp_c", "leaf_temperature": "leaf_temp_c",
}  # fmt: skip
"""What Zigbee2MQTT calls it -> what it is here; of the rest, such as the battery, nothing is said."""
_OUTSIDE = {"temperature": "out_temp_c", "humidity": "out_rh_pct"}
"""In the zone of the weather station."""
_NO_DEVICES = ("bridge",)
_OTHER = ("set", "get", "availability", "action")
_DATED_BOOT = "zigbee2mqtt"
"""The boot of samples with a time of their own, which are named by what they say."""
_EXPECTED = (
    "the friendly name {name!r} is not SITE/ZONE/DEVICE: rename the device in Zigbee2MQTT, to demo/north-1/bench; "
    f"{NAME_RULE}"
)
_ATTRIBUTES = "Zigbee2MQTT publishes single attributes: set advanced: output: json"


class Zigbee2MqttDecoder:
    """See :class:`edge.wire.decoder.Decoder`.

    >>> payload = b'{"temperature": 21.4, "humidity": 71, "battery": 98, "linkquality": 120}'
    >>> Zigbee2MqttDecoder().take("zigbee2mqtt/demo/north-1/bench", payload, 1646092800000).samples[0].values
    {'air_temp_c': 21.4, 'rh_pct': 71.0}
    """

    prefix = "zigbee2mqtt/"

    def __init__(self) -> None:
        self._numbering = Numbering()

    def take(self, topic: str, payload: bytes, receive_ms: int) -> DecodedMessage:
        """Read a device's document; raises ``ValueError`` where it is no JSON object."""
        parts = topic.split("/")[1:]
        if parts[0] in _NO_DEVICES or parts[-1] in _OTHER or not payload:
            return DecodedMessage(UNKNOWN_SITE)
        if len(parts) == 4 and parts[3] in METRICS:
            return DecodedMessage(UNKNOWN_SITE, refusals=[Refusal("malformed", topic, _ATTRIBUTES, payload)])
        site, zone, device = parts if len(parts) == 3 else ("", "", "")
        said = _document(payload)
        if not (is_name(site) and (zone == SITE_ZONE or is_name(zone)) and is_name(device)):
            if not METRICS.keys() & said.keys():
                return DecodedMessage(UNKNOWN_SITE)  # a lamp or a switch of the house: nobody meant a reading
            detail = _EXPECTED.format(name="/".join(parts)[:80])
            return DecodedMessage(UNKNOWN_SITE, refusals=[Refusal("malformed", topic, detail, payload)])
        values, wrong = _values(zone, said)
        if not values:
            detail = together(wrong) or f"none of {', '.join(METRICS)} has a number in the message"
            return DecodedMessage(site, refusals=[Refusal("no_values", topic, detail, payload)])
        refusals = [Refusal("malformed", topic, together(wrong), payload, whole=False)] if wrong else []
        ts_ms = _time(said.get("last_seen"))
        if ts_ms is None:
            sample = self._numbering.sample(site, zone, device, receive_ms, values)
        else:
            sample = Sample(site, zone, device, _DATED_BOOT, _name(ts_ms, values), ts_ms, values)
        return DecodedMessage(site, [sample], refusals)


def _document(payload: bytes) -> dict[str, Any]:
    """A converter of a device's own may compute NaN: it spoils no other value of the document."""
    try:
        return msgspec.json.decode(payload, type=dict[str, Any])
    except msgspec.DecodeError:
        said = read_json(payload)
        if not isinstance(said, dict):
            raise
        return said


def _values(zone: str, said: Mapping[str, Any]) -> tuple[dict[str, float], list[str]]:
    """The readings in a document by metric, and a sentence about each that is no number; ``null`` says nothing.

    A probe in the soil that also says how warm it is, and nothing of the air, says so of the soil.

    >>> _values("z", {"soil_moisture": 42, "temperature": 14.5}), _values("_site", {"temperature": 8, "humidity": "80"})
    (({'soil_temp_c': 14.5, 'soil_vwc_pct': 42.0}, []), ({'out_temp_c': 8.0}, ["humidity is '80', and not a number"]))
    """
    metrics = METRICS | _OUTSIDE if zone == SITE_ZONE else METRICS
    if "soil_moisture" in said and not {"humidity", "soil_temperature"} & said.keys():
        metrics = metrics | {"temperature": "soil_temp_c"}
    values, wrong = dict[str, float](), list[str]()
    for name, metric in metrics.items():
        value = said.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            values[metric] = float(value)
        elif value is not None:
            wrong.append(f"{name} is {str(value)[:40]!r}, and not a number")
    return values, wrong


def _name(ts_ms: int, values: Mapping[str, float]) -> int:
    """The ``seq`` of a sample with a time of its own: the same for the same reading, whoever reads it and when."""
    return int.from_bytes(hashlib.blake2b(msgspec.msgpack.encode((ts_ms, values)), digest_size=4).digest())


def _time(last_seen: object) -> int | None:
    """``last_seen`` as Zigbee2MQTT writes it: ``epoch`` (ms) or ``ISO_8601``; a form without an offset says too little.

    >>> _time("2022-03-01T01:00:00+01:00"), _time(1646092800000), _time(None), _time("soon")
    (1646092800000, 1646092800000, None, None)
    """
    if isinstance(last_seen, int) and not isinstance(last_seen, bool):
        return last_seen
    if isinstance(last_seen, str):
        try:
            moment = datetime.fromisoformat(last_seen)
        except ValueError:
            return None
        if moment.tzinfo is not None:
            return round(moment.timestamp() * 1000)
    return None
