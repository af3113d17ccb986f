"""Step 2 of the way of a reading: sensors that Zigbee2MQTT hands on, a JSON document a message.

The friendly name of a device is SITE/ZONE/DEVICE, so that its topic is ``zigbee2mqtt/SITE/ZONE/DEVICE``. The time is
``last_seen`` where Zigbee2MQTT is told to send it, else when the message came.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from edge.decoders.numbering import Numbering
from edge.wire.decoder import DecodedMessage
from edge.wire.envelope import UNKNOWN_SITE
from edge.wire.reading import Refusal
from edge.wire.topic import SITE_ZONE, is_name

__all__ = ["METRICS", "Zigbee2MqttDecoder"]

METRICS = {
    "temperature": "air_temp_c", "humidity": "rh_pct", "co2": "co2_ppm", "soil_moisture": "soil_vwc_pct",
    "soil_temperature": "soil_temp_c", "leaf_temperature": "leaf_temp_c",
}  # fmt: skip
"""What Zigbee2MQTT calls it -> what it is here; of the rest, such as the battery, nothing is said."""
_NO_DEVICES = ("bridge",)
_OTHER = ("set", "get", "availability", "action")
_EXPECTED = (
    "the friendly name {name!r} is not SITE/ZONE/DEVICE: rename the device in Zigbee2MQTT, to demo/north-1/bench"
)


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
        site, zone, device = parts if len(parts) == 3 else ("", "", "")
        said = msgspec.json.decode(payload, type=dict[str, Any])
        values = {
            metric: float(said[name]) for name, metric in METRICS.items()
            if isinstance(said.get(name), int | float) and not isinstance(said[name], bool)
        }  # fmt: skip
        if not (is_name(site) and (zone == SITE_ZONE or is_name(zone)) and is_name(device)):
            detail = _EXPECTED.format(name="/".join(parts)[:80])
            return DecodedMessage(UNKNOWN_SITE, refusals=[Refusal("malformed", topic, detail, payload)])
        if not values:
            detail = f"none of {', '.join(METRICS)} is in the message"
            return DecodedMessage(site, refusals=[Refusal("no_values", topic, detail, payload)])
        ts_ms = _time(said.get("last_seen"), receive_ms)
        return DecodedMessage(site, [self._numbering.sample(site, zone, device, ts_ms, values)])


def _time(last_seen: object, receive_ms: int) -> int:
    """``last_seen`` as Zigbee2MQTT writes it: ``epoch`` (ms) or ``ISO_8601``; a form without an offset says too little.

    >>> _time("2022-03-01T01:00:00+01:00", 7), _time(1646092800000, 7), _time(None, 7), _time("soon", 7)
    (1646092800000, 1646092800000, 7, 7)
    """
    if isinstance(last_seen, int) and not isinstance(last_seen, bool):
        return last_seen
    if isinstance(last_seen, str):
        try:
            moment = datetime.fromisoformat(last_seen)
        except ValueError:
            return receive_ms
        if moment.tzinfo is not None:
            return round(moment.timestamp() * 1000)
    return receive_ms
