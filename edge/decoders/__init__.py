"""Step 2 of the way of a reading: decoders that come with Hothouse, for formats that many devices speak.

``gateway.decoders`` names them as it names those of other packages (docs/decoders.md).
"""

from __future__ import annotations

__all__ = ["BUILT_IN"]

BUILT_IN = {
    "esphome": "edge.decoders.esphome:EsphomeDecoder",
    "zigbee2mqtt": "edge.decoders.zigbee2mqtt:Zigbee2MqttDecoder",
}
"""Name -> where its class is."""
