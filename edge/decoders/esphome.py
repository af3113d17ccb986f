"""Step 2 of the way of a reading: sensors of ESPHome, a number a message.

ESPHome publishes ``<topic_prefix>/sensor/<object id>/state``. With ``topic_prefix: esphome/SITE/ZONE/DEVICE`` and a
sensor whose name is a metric of the vocabulary, the topic says all. There is no time in a message: it is when it came.
"""

from __future__ import annotations

from edge.decoders.numbering import Numbering
from edge.wire.decoder import DecodedMessage
from edge.wire.envelope import UNKNOWN_SITE
from edge.wire.reading import Refusal
from edge.wire.topic import SITE_ZONE, is_name

__all__ = ["EsphomeDecoder"]

_EXPECTED = "expected esphome/SITE/ZONE/DEVICE/sensor/METRIC/state: set mqtt: topic_prefix: esphome/SITE/ZONE/DEVICE"
_SILENT = ("nan", "unknown", "unavailable", "")


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
        if len(parts) < 4 or parts[-1] != "state" or parts[-3] != "sensor":
            return DecodedMessage(UNKNOWN_SITE)
        if len(parts) != 7 or not _are_names(*parts[1:4]):
            return DecodedMessage(UNKNOWN_SITE, refusals=[Refusal("malformed", topic, _EXPECTED, payload)])
        _, site, zone, device, _, metric, _ = parts
        said = payload.decode("utf-8", "replace").strip()
        if said.lower() in _SILENT:
            detail = f"the sensor says {said or 'nothing'!s}: it has no reading"
            return DecodedMessage(site, refusals=[Refusal("no_values", topic, detail, payload)])
        try:
            value = float(said)
        except ValueError as error:
            raise ValueError(f"the state is {said[:40]!r}, and not a number") from error
        return DecodedMessage(site, [self._numbering.sample(site, zone, device, receive_ms, {metric: value})])


def _are_names(site: str, zone: str, device: str) -> bool:
    return is_name(site) and (zone == SITE_ZONE or is_name(zone)) and is_name(device)
