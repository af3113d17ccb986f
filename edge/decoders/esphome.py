"""Step 2 of the way of a reading: sensors of ESPHome, a number a message.

ESPHome publishes ``<topic_prefix>/sensor/<object id>/state``. With ``topic_prefix: esphome/SITE/ZONE/DEVICE`` and a
sensor whose name is a metric of the vocabulary, the topic says all. There is no time in a message: it is when it came.
A ``number``, such as a setpoint, is read like a sensor.
"""

from __future__ import annotations

import re

from edge.decoders.numbering import Numbering
from edge.wire.decoder import DecodedMessage
from edge.wire.envelope import UNKNOWN_SITE
from edge.wire.reading import Refusal
from edge.wire.topic import NAME_RULE, SITE_ZONE, is_name
from edge.wire.vocabulary import VOCABULARY

__all__ = ["EsphomeDecoder"]

_EXPECTED = (
    "expected esphome/SITE/ZONE/DEVICE/sensor/METRIC/state: set mqtt: topic_prefix: esphome/SITE/ZONE/DEVICE; "
    f"{NAME_RULE}"
)
_NUMBERS, _SWITCHES = ("sensor", "number"), ("binary_sensor", "switch")
_SILENT = ("nan", "none", "null", "unknown", "unavailable", "")  # ``none``: with publish_nan_as_none; ``null``: Shelly
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\Z")
_SECOND = re.compile(r"(.+)_([0-9]{1,2})\Z")


class EsphomeDecoder:
    """See :class:`edge.wire.decoder.Decoder`.

    >>> topic = "esphome/demo/north-1/bench/sensor/air_temp_c/state"
    >>> EsphomeDecoder().take(topic, b"21.4", 1646092800000).samples[0].values
    {'air_temp_c': 21.4}
    """

    prefix = "esphome/"

    def __init__(self) -> None:
        self._numbering = Numbering()

    def take(self, topic: str, payload: bytes, receive_ms: int) -> DecodedMessage:
        """Read a state of a sensor; whatever else ESPHome publishes (logs, switches, its own status) holds no sample.
        Raises ``ValueError`` for a state that is no number.
        """
        parts = topic.split("/")
        if len(parts) < 4 or parts[-1] != "state" or parts[-3] not in _NUMBERS + _SWITCHES:
            return DecodedMessage(UNKNOWN_SITE)
        kind, metric = parts[-3], _metric(parts[-2])
        if kind != "sensor" and metric not in VOCABULARY:
            return DecodedMessage(UNKNOWN_SITE)  # a switch or a number of something else: nobody meant a reading
        if len(parts) != 7 or not _are_names(*parts[1:4]):
            return DecodedMessage(UNKNOWN_SITE, refusals=[Refusal("malformed", topic, _EXPECTED, payload)])
        site, zone, device = parts[1:4]
        said = payload.decode("utf-8", "replace").strip()
        if kind in _SWITCHES:
            detail = f"a {kind} is sent only when it changes: send {metric} as a template sensor, a number every minute"
            return DecodedMessage(site, refusals=[Refusal("no_values", topic, detail, payload)])
        if said.lower() in _SILENT:
            detail = f"the sensor says {said or 'nothing'!s}: it has no reading"
            return DecodedMessage(site, refusals=[Refusal("no_values", topic, detail, payload)])
        if not _NUMBER.match(said):
            meant = "; a number has a decimal point, and no unit" if said[:1].isdigit() else ""
            raise ValueError(f"the state is {said[:40]!r}, and not a number{meant}")
        value = float(said)
        return DecodedMessage(site, [self._numbering.sample(site, zone, device, receive_ms, {metric: value})])


def _metric(object_id: str) -> str:
    """The metric that a sensor is called after. ESPHome makes ``air_temp_c_2`` of the name ``air_temp_c.2``.

    >>> _metric("air_temp_c"), _metric("air_temp_c_2"), _metric("uptime_2")
    ('air_temp_c', 'air_temp_c.2', 'uptime_2')
    """
    found = _SECOND.match(object_id)
    return f"{found[1]}.{found[2]}" if found and found[1] in VOCABULARY else object_id


def _are_names(site: str, zone: str, device: str) -> bool:
    return is_name(site) and (zone == SITE_ZONE or is_name(zone)) and is_name(device)
